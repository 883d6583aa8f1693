"""What is recorded of an engine step, from plain values that the seam hands over."""

from collections.abc import Mapping, Sequence

from tabletune_vllm.ring import StepRing
from tabletune_vllm.step import Counts, Step, draft_sizes, is_thinned

UNKNOWN_LENGTH = -1
GRAPH_UNKNOWN, GRAPH_NONE, GRAPH_PIECEWISE, GRAPH_FULL = -1, 0, 1, 2
_NOBODY: frozenset[str] = frozenset()
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


# Prefill requests, their tokens, and the K in force for the decodes.
_Split = tuple[int, int, int]


class Observer:
    """Turns steps into ring records and running totals.

    `draft_counts` is filled by the seam while it counts each request itself: [d][a] counts the
    requests whose d drafts were verified and whose first a were accepted. A request whose drafts
    a grammar invalidated is not counted.
    """

    def __init__(self, ring: StepRing) -> None:
        self.ring = ring
        self.max_draft_length = ring.max_draft_length
        self.width = ring.max_draft_length + 1
        self.draft_counts = [[0] * self.width for _ in range(self.width)]
        self.disturbed = False
        self._idle = True
        self._last_time_s = 0.0
        self._last_scheduled: Mapping[str, int] = {}
        self._last_names: Sequence[str] = ()
        # Requests that computed their prompt in the last step, and in this one.
        self._last_starting: set[str] | frozenset[str] = _NOBODY
        self._starting: set[str] | frozenset[str] = _NOBODY
        self._last_length = UNKNOWN_LENGTH
        self._empty_steps = 0
        self._sums = dict.fromkeys(_SUMS, 0)
        self._drafted = [0] * self.max_draft_length
        self._accepted = [0] * self.max_draft_length
        self._steps_by_length = [0] * self.width

    def record(self, step: Step) -> None:
        """Record a step after its outputs were processed; steps without requests only count.

        Raises:
            Exception: whatever an unforeseen value causes; the seam then turns off.
        """
        step_time_s = step.time_s - self._last_time_s
        after_idle, disturbed = self._idle, self.disturbed
        self._last_time_s = step.time_s
        self._idle = step.running_requests == 0 and step.waiting_requests == 0
        self.disturbed = False
        batch_size = len(step.scheduled)
        if batch_size == 0:
            self._empty_steps += 1
            return

        drafted_requests = len(step.drafts)
        verified, drafted, accepted = step.counts or self._take_counts()
        shortest, longest, draft_tokens = draft_sizes(step.drafts, verified, drafted)
        prefills, prefill_tokens, length_verified = self._split(step, longest, draft_tokens)
        decodes = batch_size - prefills
        if drafted_requests < decodes:
            shortest = 0
        request_steps = decodes if length_verified > 0 else 0
        # vLLM has cut off by now what lies behind a request's end, so counts would tell too much.
        output_tokens = sum(map(len, step.outputs))

        self.ring.append(
            step.time_s,
            0.0 if self.ring.next == 0 else step_time_s,
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
            disturbed,
            *drafted,
            *accepted,
        )
        self._last_scheduled = step.scheduled
        self._last_names = [*step.cached, *step.new] if step.new else step.cached
        self._last_starting = self._starting
        self._last_length = step.draft_length

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
        return {
            "steps": self.ring.next,
            "empty_steps": self._empty_steps,
            **self._sums,
            "steps_by_draft_length": list(self._steps_by_length),
            "drafted_through": list(self._drafted),
            "accepted_through": list(self._accepted),
        }

    def _split(self, step: Step, longest: int, draft_tokens: int) -> _Split:
        """Tell the prefills from the decodes, and the K in force for the decodes.

        A decode request has all its tokens but its drafts and one computed. Its drafts were
        made at the end of the last step that scheduled it, so K is known exactly when every
        decode request was in the step before this one; otherwise it is UNKNOWN_LENGTH.

        Whole lists are compared before any request is looked at, which decides most steps.
        """
        scheduled, cached = step.scheduled, step.cached
        continued = cached == self._last_names
        decoding = continued and not self._last_starting and not step.resumed
        decode_only = step.scheduled_tokens == len(scheduled) + draft_tokens
        if decoding and decode_only and not step.new:
            # The very requests that all decoded in the last step.
            length = self._last_length if longest <= self._last_length else UNKNOWN_LENGTH
            self._starting = _NOBODY
            return 0, 0, length

        continued = continued or is_thinned(cached, self._last_names)
        starting = {*step.new, *step.resumed}
        if not decoding and self._any_unanswered(cached, step.cached_outputs, continued):
            pairs = zip(cached, step.cached_outputs, strict=True)
            starting.update(request for request, outputs in pairs if outputs == 0)
        prefill_tokens = sum(map(scheduled.__getitem__, starting))
        decode_tokens = len(scheduled) - len(starting) + draft_tokens
        if step.scheduled_tokens != prefill_tokens + decode_tokens:
            # Somebody recomputes in chunks, which only a look at each request finds.
            starting.update(
                request
                for request, tokens in scheduled.items()
                if tokens > 1 + len(step.drafts.get(request, ()))
            )
            prefill_tokens = sum(map(scheduled.__getitem__, starting))
        known = len(starting) < len(scheduled) and longest <= self._last_length
        if known and not continued:
            last = self._last_scheduled
            known = all(map(last.__contains__, cached)) or all(
                request in last for request in cached if request not in starting
            )
        length = self._last_length if known else UNKNOWN_LENGTH
        self._starting = starting
        return len(starting), prefill_tokens, length

    def _any_unanswered(
        self, cached: Sequence[str], outputs: Sequence[int], continued: bool
    ) -> bool:
        """Whether a request that is not new has no output yet, and so still computes its prompt.

        Where all were in the last step it can only be one that was starting there; those that
        joined last stand at the end.
        """
        tail = len(self._last_starting)
        if continued and not tail:
            return False
        if continued and self._last_starting.issuperset(cached[-tail:]):
            outputs = outputs[-tail:]
        return 0 in outputs

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
