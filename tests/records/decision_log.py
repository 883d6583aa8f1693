"""A decision log as an engine writes it: good drafts, then bad ones, then a promotion."""

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.settings import ControllerSettings
from tabletune.records.decision_log import encode_header, encode_note, encode_promote, encode_tick
from tests.records.live import BAD, GOOD, MAX_NUM_SEQS, observed, promoted

SEED = 11
#: 2026-03-12 03:10:00 UTC.
STARTED_UNIX_S = 1_773_285_000.0
BATCH_SIZE = 8
SWITCH_S, PROMOTED_S, END_S = 60, 100, 130


def header(file_number: int = 0, run_id: str = "run-1") -> bytes:
    """The first line."""
    return encode_header(
        run_id=run_id,
        file_number=file_number,
        plugin_version="0.1.0",
        vllm_version="0.32.0",
        channel="live",
        mode="adapt",
        seed=SEED,
        boot_lengths=(4,) * MAX_NUM_SEQS,
        settings=ControllerSettings(),
        promoted=promoted(),
        opened_unix_s=STARTED_UNIX_S,
    )


def write_log(following_s: range = range(0)) -> list[bytes]:
    """The lines of a run, the controller deciding what the next observation's length is.

    following_s: seconds in which the engine's mode is ``follow`` instead of ``adapt``.
    """
    controller = Controller(
        ControllerSettings(), promoted(), (4,) * MAX_NUM_SEQS, np.random.default_rng(SEED)
    )
    lines = [header()]
    for second in range(END_S):
        now_s, unix_s = 500.0 + second, STARTED_UNIX_S + second
        if controller.adapt == (second in following_s):
            controller.adapt = not controller.adapt
            mode = "adapt" if controller.adapt else "follow"
            lines.append(encode_note(now_s, unix_s, "mode", mode))
        if second == PROMOTED_S:
            following = promoted((2,) * MAX_NUM_SEQS, "second")
            decision = controller.promote(following, now_s)
            lines.append(encode_promote(now_s, unix_s, following, decision))
        length = controller.table[BATCH_SIZE - 1]
        survival = GOOD if second < SWITCH_S else BAD
        seen = observed(second, BATCH_SIZE, length, survival)
        decision = controller.tick(seen, now_s + 1)
        lines.append(encode_tick(now_s + 1, unix_s + 1, seen, decision))
        if second == 20:
            lines.append(encode_note(now_s + 1, unix_s + 1, "refused", "version abc: too large"))
    return lines
