# The control environment: flows, workers, Prefect and MLflow servers. Never vLLM: its FastAPI
# is too old for Prefect. Workers on GPU hosts make engine environments themselves.
#
#     docker build -f infra/images/control.Dockerfile -t tabletune-control .
#
# Not built in the tests, for want of Docker.
FROM python:3.11-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ git \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 tabletune
WORKDIR /opt/tabletune
COPY infra/locks/control.txt infra/locks/control.txt
RUN pip install --no-cache-dir --require-hashes --no-deps -r infra/locks/control.txt \
 && pip install --no-cache-dir "psycopg2-binary>=2.9"
COPY . .
RUN pip install --no-cache-dir --no-deps . ./plugin
USER tabletune
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["/usr/bin/env"]
CMD ["tabletune", "--help"]
