# A serving image of vLLM with the plugin. Tables come from TABLETUNE_SOURCE at run time.
#
#     docker build -f infra/images/engine.Dockerfile --build-arg VLLM=v0.32.0 -t vllm-tabletune .
#
# Not built in the tests, for want of Docker.
ARG VLLM=v0.32.0
FROM vllm/vllm-openai:${VLLM}
COPY . /tmp/tabletune
# --no-deps: nothing of vLLM's own may move; numpy and pydantic are there already.
RUN pip install --no-cache-dir --no-deps /tmp/tabletune /tmp/tabletune/plugin \
 && pip install --no-cache-dir "boto3>=1.36" \
 && rm -rf /tmp/tabletune \
 && python3 -c "import tabletune_vllm.register"
ENV VLLM_PLUGINS=tabletune VLLM_NO_USAGE_STATS=1
