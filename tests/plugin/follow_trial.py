"""One engine of stand-ins with the real threads, follower and store beside it, as a program.

Arguments: store URL, cache folder, model folder, trace file. Reads commands from its input, one a
line, and answers each with one JSON line: `status`, `serve N`, `stop`.
"""

import json
import sys
from pathlib import Path

import fake_vllm
from live_world import BOOT, K_MAX, SIZE, facts

from tabletune_vllm.live.start import start_following
from tabletune_vllm.seam.hooks import MARK
from tabletune_vllm.seam.step_hooks import hook
from tabletune_vllm.seam.utilities import add_utilities
from tabletune_vllm.settings import FollowSettings
from tabletune_vllm.source import EngineSelf

POLL_S = 0.2


def main(url: str, cache: str, model: str, trace: str, run_id: str) -> None:
    scheduler = fake_vllm.Scheduler(list(BOOT), k_max=K_MAX, max_num_seqs=SIZE)
    ours = facts(run_id=run_id, method="ngram")
    import time

    runtime = hook(scheduler, ours, 4096, time.perf_counter)
    setattr(scheduler, MARK, runtime)
    add_utilities(fake_vllm.EngineCore, "0.32.0", None)
    core = fake_vllm.EngineCore(scheduler)
    settings = FollowSettings(
        url, poll_s=POLL_S, tick_s=0.05, snapshot_s=1.0, cache=Path(cache), trace=Path(trace)
    )
    engine = EngineSelf(
        device="cpu",
        vllm_version="0.32.0",
        runner="V1",
        method="ngram",
        max_num_seqs=SIZE,
        max_draft_length=K_MAX,
        boot_lengths=(0, 1, 3),
        needs_graphs=False,
        model=model,
    )
    start_following(runtime, settings, lambda: engine)
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        if command == "serve":
            for _ in range(int(count)):
                outputs = scheduler.decode(2, 1)
                assert scheduler.update_from_output(*outputs)["of"] is outputs[0]
        elif command == "stop":
            break
        print(json.dumps(core.tabletune_status()), flush=True)  # type: ignore[attr-defined]


main(*sys.argv[1:])
