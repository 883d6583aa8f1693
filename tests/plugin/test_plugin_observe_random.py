"""What is recorded of any sequence of steps equals what a plain look at each request finds."""

import random
from typing import Any

import pytest

from tabletune_vllm.observe import Observer
from tabletune_vllm.ring import StepRing, decode_steps
from tabletune_vllm.step import Step

K_MAX = 3
COLUMNS = (
    "prefill_requests",
    "prefill_tokens",
    "draft_length_verified",
    "request_steps",
    "drafted_requests",
    "draft_tokens",
    "min_draft_tokens",
    "max_draft_tokens",
    "output_tokens",
)


class World:
    """Requests that arrive, prefill in chunks, decode, skip steps, are preempted and end."""

    def __init__(self, seed: int, v2: bool) -> None:
        self.rng = random.Random(seed)
        self.v2 = v2
        self.born = 0
        # Per request: prompt tokens left to compute, output tokens, K of its last step.
        self.running: dict[str, list[int]] = {}
        self.preempted: dict[str, list[int]] = {}
        self.last: set[str] = set()

    def step(self) -> tuple[Step, list[int]]:
        rng = self.rng
        for name in [name for name in self.running if rng.random() < 0.08]:
            gone = self.running.pop(name)
            if rng.random() < 0.4:
                self.preempted[name] = [rng.randint(2, 12), gone[1], -1]
        new, resumed = self._join()
        length = rng.choice([0, 1, 2, K_MAX, K_MAX])
        scheduled: dict[str, int] = {}
        drafts: dict[str, list[int]] = {}
        tokens: list[list[int]] = []
        prefills = prefill_tokens = 0
        known: set[int] = set()
        skipping = rng.random() < 0.2
        for name, request in self.running.items():
            if skipping and rng.random() < 0.3 and name not in new | resumed:
                continue
            left, outputs, drafted_at = request
            fresh = name in new | resumed
            if left:
                chunk = min(left, rng.randint(2, 6)) if not fresh else min(left, rng.randint(1, 6))
                # A last token recomputed alone looks like a decode step, to vLLM's outputs too.
                chunk += left - chunk == 1 and outputs > 0
                request[0] -= chunk
                scheduled[name] = chunk
                prefills, prefill_tokens = prefills + 1, prefill_tokens + chunk
                tokens.append([] if request[0] else [1])
            else:
                count = rng.randint(0, drafted_at) if rng.random() < 0.3 else drafted_at
                if count > 0:
                    drafts[name] = [-1] * count
                scheduled[name] = 1 + max(count, 0)
                tokens.append([1] * (1 + rng.randint(0, max(count, 0))))
                known.add(drafted_at if name in self.last else -1)
            request[1] = outputs + len(tokens[-1])
            request[2] = length
        names = list(scheduled)
        fresh_names = {name for name in names if name in new or (self.v2 and name in resumed)}
        cached = [name for name in names if name not in fresh_names]
        before = {name: self.running[name][1] for name in names}
        had = [before[n] - len(t) for n, t in zip(names, tokens, strict=True)]
        sizes = [len(draft) for draft in drafts.values()]
        verified = known.pop() if len(known) == 1 else -1
        decodes = len(names) - prefills
        whole = sizes if len(drafts) == decodes else [*sizes, 0]
        longest = max(sizes, default=0)
        expected = [
            prefills,
            prefill_tokens,
            verified,
            decodes if verified > 0 else 0,
            len(drafts),
            sum(sizes),
            min(whole) if decodes and whole else 0,
            longest,
            sum(map(len, tokens)),
        ]
        index = {name: at for at, name in enumerate(names)}
        accepted = [len(tokens[index[name]]) - 1 for name in drafts]
        if names:
            self.last = set(names)
        step = Step(
            time_s=0.0,
            scheduled=scheduled,
            scheduled_tokens=sum(scheduled.values()),
            drafts=drafts,
            draft_length=length,
            new=[name for name in names if name in fresh_names],
            resumed=set() if self.v2 else {name for name in names if name in resumed},
            cached=cached,
            cached_outputs=[had[index[name]] for name in cached],
            outputs=tokens,
            invalid_requests=0,
            preempted_requests=0,
            running_requests=1,
            waiting_requests=0,
            kv_cache_usage=0.0,
            graph_mode=-1,
            padded_tokens=-1,
            counts=(
                len(sizes),
                [sum(size > i for size in sizes) for i in range(K_MAX)],
                [sum(hit > i for hit in accepted) for i in range(K_MAX)],
            ),
        )
        return step, expected

    def _join(self) -> tuple[set[str], set[str]]:
        rng, new, resumed = self.rng, set[str](), set[str]()
        if self.preempted and rng.random() < 0.3:
            name = rng.choice(list(self.preempted))
            self.running[name] = self.preempted.pop(name)
            resumed.add(name)
        while len(self.running) < 6 and rng.random() < 0.3:
            name = f"r{self.born}"
            self.born += 1
            self.running[name] = [rng.randint(1, 15), 0, -1]
            new.add(name)
        return new, resumed


@pytest.mark.parametrize("most_pending", [0, 7])
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_every_column_equals_the_plain_look(seed: int, v2: bool, most_pending: int) -> None:
    world = World(seed, v2)
    observer = Observer(StepRing(K_MAX, 512))
    observer.most_pending = most_pending
    expected: list[list[int]] = []
    for _ in range(300):
        step, row = world.step()
        outputs: Any = step.outputs
        observer.record(step)
        # vLLM goes on with its lists.
        for tokens in outputs:
            tokens.clear()
        if seed % 2 and world.rng.random() < 0.1:
            observer.settle()
        if step.scheduled:
            expected.append(row)
    columns: Any = decode_steps(observer.ring.read(0, 512))["columns"]
    recorded = [list(row) for row in zip(*(columns[name] for name in COLUMNS), strict=True)]
    for number, (found, wanted) in enumerate(zip(recorded, expected, strict=True)):
        assert dict(zip(COLUMNS, found, strict=True)) == dict(zip(COLUMNS, wanted, strict=True)), (
            number
        )
