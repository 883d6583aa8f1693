"""Tells a step's prefills from its decodes, and the draft length that the decodes verify."""

from collections.abc import Mapping, Sequence

from tabletune_vllm.step import Step, is_thinned

UNKNOWN_LENGTH = -1
# Prefill requests, their tokens, and the K in force for the decodes.
Split = tuple[int, int, int]
_NOBODY: frozenset[str] = frozenset()


class Splitter:
    """Looks at the steps of one engine in their order; each is compared with the one before."""

    def __init__(self) -> None:
        self._last_scheduled: Mapping[str, int] = {}
        self._last_names: Sequence[str] = ()
        # Requests that computed their prompt in the last step, and in this one.
        self._last_starting: set[str] | frozenset[str] = _NOBODY
        self._starting: set[str] | frozenset[str] = _NOBODY
        self._last_length = UNKNOWN_LENGTH

    def split(self, step: Step, longest: int, draft_tokens: int) -> Split:
        """Prefill requests, their tokens, the K in force; of a step with requests."""
        found = self._split(step, longest, draft_tokens)
        self._last_scheduled = step.scheduled
        self._last_names = [*step.cached, *step.new] if step.new else step.cached
        self._last_starting = self._starting
        self._last_length = step.draft_length
        return found

    def _split(self, step: Step, longest: int, draft_tokens: int) -> Split:
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
        if not decoding and self._any_unanswered(step, continued):
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

    def _any_unanswered(self, step: Step, continued: bool) -> bool:
        """Whether a request that is not new has no output yet, and so still computes its prompt.

        Where all were in the last step it can only be one that was starting there; those that
        joined last stand at the end.
        """
        cached, outputs, scheduled = step.cached, step.cached_outputs, step.scheduled
        tail = len(self._last_starting)
        if continued and not any(map(scheduled.__contains__, self._last_starting)):
            return False
        if continued and self._last_starting.issuperset(cached[-tail:]):
            outputs = outputs[-tail:]
        return 0 in outputs
