"""Capture sizes beyond the widest decode step, for steps in which prompts join decodes.

A decode step has at most `max_num_seqs`·(K + 1) tokens, but a step that a prompt joins has the
prompt's tokens on top. vLLM captures a PIECEWISE graph for every size it is given, whatever
`max_num_seqs` is, and pads a step to the next one; FULL graphs end at `max_num_seqs`·(K + 1)
tokens all the same (v1/worker/gpu/cudagraph_utils.py, `_init_candidates`). Sizes above
`max_num_batched_tokens` are dropped (config/vllm.py, `_set_cudagraph_sizes`).
"""

import math

from tabletune.core.capture_search import BASE_STEP_TOKENS

DEFAULT_JOINING_TOK = 512
"""Four prompts of 128 tokens in one step. A request is replaced once in its output's length
divided by the tokens it gets a step: with 128 requests, 2.8 tokens a step (the survival of the
H200 runs in bench/results) and 256 output tokens, 1.4 prompts join a step in the mean, and at
most four do in 98.6 % of steps (Poisson)."""

MAX_JOINING_SIZES = 8
"""These steps are the fewer, and each size costs a graph of the target and one of the drafter."""

JOINING_PADDING = 0.10
"""Share of step time that padding may add where eight sizes suffice (`padding_cost`)."""

LAUNCH_BOUND_TOK = 1400
"""Tokens from which a step computes longer than its kernels take to launch one by one, so that
a graph gains nothing. On one H200 with a 4-billion-parameter model a step of 763 tokens without
a graph took 39 ms, and one of 636 tokens with a graph 27 ms (closed loop of 128 requests, see
docs/capture-planning.md): 10 ms more than its 127 further tokens explain at 0.016 ms each, and
as long as 640 tokens take. An estimate: larger models reach it earlier."""


def joining_sizes(
    widest_decode_tok: int,
    joining_tok: int,
    max_padding_cost: float,
    max_num_batched_tokens: int | None = None,
) -> tuple[int, ...]:
    """Capture sizes in tokens, ascending, above the widest decode step; perhaps none.

    They reach from `widest_decode_tok` to `joining_tok` more, but not beyond `LAUNCH_BOUND_TOK`
    or `max_num_batched_tokens`. Each padding costs the same share of step time, so they are
    spaced geometrically in the tokens above `BASE_STEP_TOKENS`: the fewest sizes that pad by at
    most `JOINING_PADDING`; where `MAX_JOINING_SIZES` are too few for that, these many, padding
    by up to `max_padding_cost` and ending early where even that is too little.

    >>> joining_sizes(640, 128, 0.15)
    (701, 768)
    >>> joining_sizes(1400, 128, 0.15)
    ()
    """
    limits = [LAUNCH_BOUND_TOK, *([max_num_batched_tokens] if max_num_batched_tokens else [])]
    end = min(widest_decode_tok + joining_tok, *limits)
    if end <= widest_decode_tok or max_padding_cost <= 0:
        return ()
    first, last = widest_decode_tok + BASE_STEP_TOKENS, end + BASE_STEP_TOKENS
    span = math.log(last / first)
    wished = span / math.log1p(min(JOINING_PADDING, max_padding_cost))
    count = math.ceil(min(wished - 1e-9, MAX_JOINING_SIZES))
    step = min(span / count, math.log1p(max_padding_cost))
    sizes = (int(first * math.exp(step * i) - BASE_STEP_TOKENS + 1e-6) for i in range(1, count + 1))
    return tuple(sorted({size for size in sizes if size > widest_decode_tok}))
