"""Windows on the same requests from the same start, for acceptance that is real.

Under greedy decoding every policy then produces nearly the same text. With an n-gram drafter
the tokens per step differ more from one passage to the next than from one policy to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bench.evaluation.window import EmptyWindowError
from tabletune.measure.api import EngineApi
from tabletune.measure.driven import Load
from tabletune.measure.load import ClosedLoop, LoadRequest
from tabletune.measure.steps import StepBatch, StepReader, concatenate

LOOK_S = 0.25
IDLE_S = 10.0
"""A cancelled load's requests may stay in the engine for so long."""


def warm(api: EngineApi, model: str, requests: Sequence[LoadRequest], at_once: int) -> None:
    """Send every prompt once for one token, so that no window computes it for the others."""
    once = [LoadRequest(r.prompt, 1, r.extra) for r in requests]
    with ClosedLoop(api.address, model, once, at_once, once=True) as load:
        load.done.wait(300)


def wait_until_idle(
    reader: StepReader, sleep: Callable[[float], None], longest_s: float = IDLE_S
) -> None:
    """Wait until the engine makes no more steps."""
    waited_s = 0.0
    while waited_s < longest_s:
        sleep(LOOK_S)
        waited_s += LOOK_S
        if not len(reader.read_new()):
            return


def read_tokens(
    policy: str,
    reader: StepReader,
    load: Load,
    skip_tok: int,
    count_tok: int,
    sleep: Callable[[float], None],
    longest_s: float = 300.0,
) -> StepBatch:
    """The steps that give `count_tok` output tokens, after `skip_tok` that do not count; the
    first marks the begin.

    Raises:
        EmptyWindowError: the load ended, or the tokens do not come in `longest_s`.
    """
    batches = [reader.read_new()]
    waited_s = 0.0
    while True:
        steps = concatenate(batches)
        given = np.cumsum(steps.output_tok)
        if len(given) and given[-1] >= skip_tok + count_tok:
            break
        if load.done.is_set() or waited_s > longest_s:
            raise EmptyWindowError(policy, len(steps))
        sleep(LOOK_S)
        waited_s += LOOK_S
        batches.append(reader.read_new())
    first, last = np.searchsorted(given, [skip_tok, skip_tok + count_tok]).tolist()
    index = np.arange(len(steps))
    return steps.select((index >= first) & (index <= last))
