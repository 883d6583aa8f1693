"""Which requests a simulated step contains: queue, slots, prompt chunks, preemption."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import isnan

import numpy as np

from tabletune.simulate.acceptance import AcceptanceModel, RequestQualities, Thresholds
from tabletune.simulate.errors import SimulationError
from tabletune.simulate.request_book import RequestBook
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.slots import Slots
from tabletune.simulate.workload import Source

_WATERMARK = 0.02  # share of the KV cache that admissions leave free


class Scheduler:
    """The queue and the running batch.

    decode_requests, prefill_requests, prefill_tok: what the step being scheduled contains.
    wasted: decode requests of it that have ended already. completing: slots whose prompt ends
    in it. context_tok: tokens of the running requests in the KV cache.
    """

    def __init__(
        self,
        settings: EngineSettings,
        models: Sequence[AcceptanceModel],
        source: Source,
        rng: np.random.Generator,
    ) -> None:
        self.settings = settings
        self.source = source
        self._qualities = RequestQualities(tuple(models), rng)
        self._models = tuple(models)
        self.slots = Slots(settings.max_num_seqs, self._models)
        self.book = RequestBook()
        self.waiting: deque[int] = deque()
        self._prefilling: dict[int, int] = {}  # slot -> prompt tokens left, in order of admission
        self._order: list[int] = []  # slots in order of admission
        self._ended_last: list[int] = []  # slots whose request ended in the last step
        self._ended_before: list[int] = []  # and in the one before
        self._kept_quality: dict[int, float] = {}  # of preempted requests
        self.wasted_next = 0
        self.decode_requests = self.prefill_requests = self.prefill_tok = self.wasted = 0
        self.completing: list[int] = []
        self.context_tok = 0

    @property
    def batch_size(self) -> int:
        return self.decode_requests + self.prefill_requests

    @property
    def quiet(self) -> bool:
        """Whether the same batch runs on until a request ends or arrives."""
        return not (
            self.prefill_requests
            or self.wasted
            or self._prefilling
            or self._ended_last
            or self._ended_before
            or (self.waiting and self.slots.free)
        )

    def schedule(self, now_s: float, verified_length: int) -> None:
        """Compose the next step from what is known at `now_s`."""
        for slot in self._ended_before:
            self.slots.release(slot)
        self._ended_before = self._ended_last
        self._ended_last = []
        if not self.settings.async_scheduling and self._ended_before:
            for slot in self._ended_before:
                self.slots.release(slot)
            self._ended_before = []
        while self.source.next_s <= now_s:
            self._arrive()
        self.wasted = self.wasted_next
        self.wasted_next = 0
        if self.settings.kv_capacity_tok is not None:
            self._make_room(verified_length + 1)
        self.decode_requests = self.slots.live + self.wasted
        self.prefill_requests = self.prefill_tok = 0
        self.completing = []
        if self._prefilling or (self.waiting and self.slots.free):
            budget = self.settings.max_num_batched_tokens
            self._prefill(budget - self.decode_requests * (verified_length + 1), now_s)

    def _arrive(self) -> None:
        arrival_s, prompt, output, kind = self.source.pop()
        capacity = self.settings.kv_capacity_tok
        if capacity is not None and prompt + output + self._models[0].max_draft_length > capacity:
            raise SimulationError(
                "request",
                f"at most kv_capacity_tok {capacity} tokens, guesses included",
                prompt + output,
                "it could never run; raise the capacity or shorten the requests",
            )
        self.waiting.append(self.book.add(arrival_s, prompt, output, kind))

    def _prefill(self, budget: int, now_s: float) -> None:
        for slot, left in list(self._prefilling.items()):
            if budget <= 0:
                return
            budget -= self._chunk(slot, left, budget)
        capacity = self.settings.kv_capacity_tok
        book = self.book
        while self.waiting and self.slots.free and budget > 0:
            request = self.waiting[0]
            left = book.prompt[request] + book.given[request]
            if capacity is not None and self._reserved() + left > self._admit_below(capacity):
                return
            self.waiting.popleft()
            slot = self.slots.take(request)
            if isnan(book.scheduled_s[request]):
                book.scheduled_s[request] = now_s
            if capacity is not None:
                self._order.append(slot)
            self._meet(slot, request)
            budget -= self._chunk(slot, left, budget)

    def _meet(self, slot: int, request: int) -> None:
        kind, kept = self.book.kind[request], self._kept_quality.pop(request, None)
        if kept is None:
            self.slots.quality[slot], self.slots.rows[slot] = self._qualities.new(kind)
        else:
            self.slots.quality[slot], self.slots.rows[slot] = kept, self._row(kind, kept)

    def _row(self, kind: int, quality: float) -> Thresholds:
        row = self._models[kind].request_survival(np.array([quality]))[0]
        return row.astype(np.float32)

    def _admit_below(self, capacity: int) -> float:
        # A little room for the running ones to grow, or what is admitted is preempted at once.
        return capacity * (1 - _WATERMARK) if self._order else capacity

    def _reserved(self) -> int:
        return self.context_tok + sum(self._prefilling.values())

    def _chunk(self, slot: int, left: int, budget: int) -> int:
        tokens = left if left < budget else budget
        self.prefill_requests += 1
        self.prefill_tok += tokens
        self.context_tok += tokens
        if tokens == left:
            self._prefilling.pop(slot, None)
            self.completing.append(slot)
        else:
            self._prefilling[slot] = left - tokens
        return tokens

    def complete_prefills(self, end_s: float) -> int:
        """The step ended: requests whose prompt it completed got a token. Their number."""
        book = self.book
        for slot in self.completing:
            request = self.slots.request[slot]
            if isnan(book.first_token_s[request]):
                book.first_token_s[request] = end_s
            book.given[request] += 1
            left = book.output[request] - book.given[request]
            if left > 0:
                self.slots.start(slot, left, book.kind[request])
            else:
                self._end(slot, end_s)
        self.context_tok += len(self.completing)
        return len(self.completing)

    def complete_decodes(self, emitted: np.ndarray, end_s: float) -> int:
        """End the requests that ran out; the number of tokens beyond their end.

        emitted: int8[S], the tokens that the step yielded per slot.
        """
        slots, beyond = self.slots, 0
        for slot in np.flatnonzero(slots.remaining <= 0).tolist():
            over = -int(slots.remaining[slot])
            beyond += over
            # Sure to end, whatever the target accepts, if one token was missing.
            if self.settings.async_scheduling and int(emitted[slot]) - over > 1:
                self.wasted_next += 1
            slots.stop(slot)
            self._end(slot, end_s)
        return beyond

    def _end(self, slot: int, end_s: float) -> None:
        request, book = self.slots.request[slot], self.book
        book.given[request] = book.output[request]
        book.finish_s[request] = end_s
        self.context_tok -= book.prompt[request] + book.output[request]
        self._ended_last.append(slot)
        if self.settings.kv_capacity_tok is not None:
            self._order.remove(slot)
        self.source.completed(end_s)

    def _make_room(self, per_request_tok: int) -> None:
        capacity = self.settings.kv_capacity_tok
        assert capacity is not None
        while len(self._order) > 1:
            if self.context_tok + self.slots.live * per_request_tok <= capacity:
                return
            self._preempt(self._order.pop())

    def _preempt(self, slot: int) -> None:
        request, book = self.slots.request[slot], self.book
        if self.slots.decoding[slot]:
            book.given[request] = book.output[request] - int(self.slots.remaining[slot])
            self.slots.stop(slot)
        left = self._prefilling.pop(slot, 0)
        self.context_tok -= book.prompt[request] + book.given[request] - left
        book.preempted[request] += 1
        self._kept_quality[request] = self.slots.quality[slot]
        self.slots.release(slot)
        self.waiting.appendleft(request)

    def switch(self, kind: int) -> None:
        """Open requests follow another acceptance from now on, each at its own quality."""
        for slot, request in enumerate(self.slots.request):
            if request >= 0:
                self.book.kind[request] = kind
                self.slots.rows[slot] = self._row(kind, self.slots.quality[slot])
                if self.slots.decoding[slot]:
                    self.slots.set_kind(slot, kind)
        for request in self.waiting:
            self.book.kind[request] = kind

    def given(self) -> list[int]:
        """Output tokens of each request up to now."""
        given = list(self.book.given)
        for slot in np.flatnonzero(self.slots.decoding).tolist():
            request = self.slots.request[slot]
            given[request] = self.book.output[request] - int(self.slots.remaining[slot])
        return given
