"""What is recorded of an engine step, from plain values that the seam hands over."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tabletune_vllm.ring import StepRing
from tabletune_vllm.split import Splitter
from tabletune_vllm.step import Counts, Step, draft_sizes

GRAPH_UNKNOWN, GRAPH_NONE, GRAPH_PIECEWISE, GRAPH_FULL = -1, 0, 1, 2
# More steps than this beyond `most_pending`, and whoever should complete them is gone.
LONGEST_QUEUE = 4096
_NO_DRAFTS: Mapping[str, Sequence[int]] = {}
_SUMS = (
    "prefill_steps",
    "scheduled_tokens",
    "output_tokens",
    "request_steps",
    "drafted_requests",
    "draft_tokens",
    "verified_requests",
    "invalid_requests",
)


class Observer:
    """Turns steps into ring records and running totals.

    `draft_counts` is filled by the seam while it counts each request itself: [d][a] counts the
    requests whose d drafts were verified and whose first a were accepted. A request whose drafts
    a grammar invalidated is not counted.

    Where a background thread calls settle() from time to time, `most_pending` steps may wait
    for it, so that the engine's thread only takes down what a step was.
    """

    def __init__(self, ring: StepRing) -> None:
        self.most_pending = 0
        # Told why where a step could not be completed; without it the error is raised.
        self.failed: Callable[[str], None] | None = None
        # Steps to complete, with their draft sizes, drafted requests and output tokens.
        self._pending: deque[tuple[Step, tuple[int, int, int], int, int]] = deque()
        # How long settle() waits for another thread that is at it; nothing, once turned off.
        self.patience_s = 1.0
        # Held by whoever completes steps, for as long as that takes.
        self._lock = threading.Lock()
        self._ring = ring
        self.max_draft_length = ring.max_draft_length
        self.width = ring.max_draft_length + 1
        self.draft_counts = [[0] * self.width for _ in range(self.width)]
        self.disturbed = False
        self._idle = True
        self._last_time_s = 0.0
        self._splitter = Splitter()
        self._empty_steps = 0
        self._sums = dict.fromkeys(_SUMS, 0)
        self._drafted = [0] * self.max_draft_length
        self._accepted = [0] * self.max_draft_length
        self._steps_by_length = [0] * self.width

    @property
    def ring(self) -> StepRing:
        """The records of all steps so far."""
        self.settle()
        return self._ring

    def record(self, step: Step) -> None:
        """Record a step after its outputs were processed; steps without requests only count.

        Done at once is only what cannot wait: counts and sums of what vLLM goes on changing.

        Raises:
            Exception: whatever an unforeseen value causes; the seam then turns off.
        """
        step.disturbed, self.disturbed = self.disturbed, False
        verified, drafted, _ = step.counts = step.counts or self._take_counts()
        sizes = draft_sizes(step.drafts, verified, drafted)
        # vLLM has cut off by now what lies behind a request's end, so counts would tell too much.
        output_tokens = sum(map(len, step.outputs))
        drafted_requests = len(step.drafts)
        # Nothing that holds a list per request is kept, unless a look at each will be needed.
        step.outputs = ()
        if step.scheduled_tokens == len(step.scheduled) + sizes[2] + _joining_tokens(step):
            step.drafts = _NO_DRAFTS
        self._pending.append((step, sizes, drafted_requests, output_tokens))
        waiting = len(self._pending) - self.most_pending
        if waiting > LONGEST_QUEUE:
            raise RuntimeError(f"{waiting} steps wait to be completed and nobody does it")
        if waiting > 0 and not self._lock.locked():
            with self._lock:
                # Another thread may have been quicker.
                if self._pending:
                    self._complete(*self._pending.popleft())

    def settle(self) -> None:
        """Complete the records of all steps so far; by any thread.

        Raises:
            Exception: as record, unless `failed` is there to be told.
        """
        held = False
        try:
            held = self._lock.acquire(timeout=self.patience_s)
            while held and self._pending:
                self._complete(*self._pending.popleft())
        except Exception as error:
            self._pending.clear()
            if self.failed is None:
                raise
            self.failed(f"recording a step failed: {error!r}")
        finally:
            if held:
                self._lock.release()

    def orphan(self) -> None:
        """In a forked child: a lock that another thread held is held there for ever."""
        self._lock = threading.Lock()

    def _complete(
        self, step: Step, sizes: tuple[int, int, int], drafted_requests: int, output_tokens: int
    ) -> None:
        """Derive what is left and write the ring's record."""
        step_time_s = step.time_s - self._last_time_s
        after_idle = self._idle
        self._last_time_s = step.time_s
        self._idle = step.running_requests == 0 and step.waiting_requests == 0
        batch_size = len(step.scheduled)
        if batch_size == 0:
            self._empty_steps += 1
            return

        assert step.counts is not None
        verified, drafted, accepted = step.counts
        shortest, longest, draft_tokens = sizes
        prefills, prefill_tokens, length_verified = self._splitter.split(
            step, longest, draft_tokens
        )
        decodes = batch_size - prefills
        if drafted_requests < decodes:
            shortest = 0
        request_steps = decodes if length_verified > 0 else 0

        ring = self._ring
        ring.append(
            step.time_s,
            0.0 if ring.next == 0 else step_time_s,
            step.kv_cache_usage,
            batch_size,
            step.draft_length,
            length_verified,
            step.scheduled_tokens,
            prefills,
            prefill_tokens,
            request_steps,
            drafted_requests,
            draft_tokens,
            shortest,
            longest,
            verified,
            step.invalid_requests,
            output_tokens,
            step.running_requests,
            step.waiting_requests,
            step.preempted_requests,
            step.graph_mode,
            step.padded_tokens,
            after_idle,
            step.disturbed,
            *drafted,
            *accepted,
        )
        sums = self._sums
        sums["prefill_steps"] += prefills > 0
        sums["scheduled_tokens"] += step.scheduled_tokens
        sums["output_tokens"] += output_tokens
        sums["request_steps"] += request_steps
        # Only steps of a known K, so that drafted over request steps is the proposal rate.
        if request_steps:
            sums["drafted_requests"] += drafted_requests
        sums["draft_tokens"] += draft_tokens
        sums["verified_requests"] += verified
        sums["invalid_requests"] += step.invalid_requests
        self._steps_by_length[step.draft_length] += 1
        for position in range(longest):
            self._drafted[position] += drafted[position]
            self._accepted[position] += accepted[position]

    def totals(self) -> dict[str, object]:
        """Counters since start; steps counts the ring's records, empty steps apart."""
        self.settle()
        return {
            "steps": self._ring.next,
            "empty_steps": self._empty_steps,
            **self._sums,
            "steps_by_draft_length": list(self._steps_by_length),
            "drafted_through": list(self._drafted),
            "accepted_through": list(self._accepted),
        }

    def _take_counts(self) -> Counts:
        """Empty draft_counts into requests verified, drafted and accepted through i."""
        drafted, accepted = [0] * self.max_draft_length, [0] * self.max_draft_length
        verified = 0
        for length in range(1, self.width):
            row = self.draft_counts[length]
            requests = sum(row)
            if not requests:
                continue
            self.draft_counts[length] = [0] * self.width
            verified += requests
            through = 0
            for position in range(length - 1, -1, -1):
                through += row[position + 1]
                drafted[position] += requests
                accepted[position] += through
        return verified, drafted, accepted


def _joining_tokens(step: Step) -> int:
    """What requests that start or recompute schedule beyond one token each."""
    if not step.new and not step.resumed:
        return 0
    tokens = step.scheduled
    joining = {*step.new, *step.resumed}
    return sum(map(tokens.__getitem__, joining)) - len(joining)
