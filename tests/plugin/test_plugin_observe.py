"""What is derived from a step: prefills, the K in force, counts per position."""

import struct
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune_vllm.observe import LONGEST_QUEUE, Observer
from tabletune_vllm.ring import StepRing, decode_steps
from tabletune_vllm.step import Step


def _step(**changes: Any) -> Step:
    values: dict[str, Any] = {
        "time_s": 0.0,
        "scheduled": {},
        "drafts": {},
        "draft_length": 0,
        "new": [],
        "resumed": set(),
        "cached": [],
        "cached_outputs": [],
        "outputs": [],
        "invalid_requests": 0,
        "preempted_requests": 0,
        "running_requests": 1,
        "waiting_requests": 0,
        "kv_cache_usage": 0.0,
        "graph_mode": -1,
        "padded_tokens": -1,
        **changes,
    }
    values.setdefault("scheduled_tokens", sum(values["scheduled"].values()))
    return Step(**values)


def _decode(drafts: dict[str, int], **changes: Any) -> Step:
    return _step(
        scheduled={name: 1 + count for name, count in drafts.items()},
        drafts={name: [-1] * count for name, count in drafts.items() if count},
        cached=list(drafts),
        cached_outputs=[1] * len(drafts),
        **changes,
    )


def _observer(k_max: int = 3) -> Observer:
    return Observer(StepRing(k_max, 64))


def _columns(observer: Observer) -> dict[str, Any]:
    columns = decode_steps(observer.ring.read(0, 64))["columns"]
    assert isinstance(columns, dict)
    return columns


def test_a_full_decode_step_is_recognisable() -> None:
    observer = _observer()
    observer.record(_step(scheduled={"a": 9, "b": 5}, new=["a", "b"], draft_length=3))
    observer.record(_decode({"a": 3, "b": 3}, draft_length=2, time_s=0.5))
    observer.record(_decode({"a": 2, "b": 2}, draft_length=2, time_s=0.75))
    columns = _columns(observer)
    assert columns["prefill_requests"] == [2, 0, 0]
    assert columns["prefill_tokens"] == [14, 0, 0]
    assert columns["draft_length"] == [3, 2, 2]
    assert columns["draft_length_verified"] == [-1, 3, 2]
    assert columns["scheduled_tokens"] == [14, 8, 6]
    assert columns["request_steps"] == [0, 2, 2]
    assert columns["min_draft_tokens"] == [0, 3, 2]
    assert columns["step_time_s"] == [0.0, 0.5, 0.25]
    assert columns["after_idle"] == [1, 0, 0]


def test_no_proposal_counts_as_a_request_step_without_drafts() -> None:
    observer = _observer()
    observer.record(_decode({"a": 0, "b": 0}, draft_length=3))
    observer.record(_decode({"a": 2, "b": 0}, draft_length=0))
    observer.record(_decode({"a": 0, "b": 0}, draft_length=0))
    columns = _columns(observer)
    assert columns["request_steps"] == [0, 2, 0]
    assert columns["drafted_requests"] == [0, 1, 0]
    assert columns["min_draft_tokens"] == [0, 0, 0]
    assert columns["max_draft_tokens"] == [0, 2, 0]
    totals = observer.totals()
    assert totals["request_steps"] == 2
    assert totals["drafted_requests"] == 1


def test_a_request_that_skipped_a_step_makes_the_length_unknown() -> None:
    observer = _observer()
    observer.record(_decode({"a": 0}, draft_length=1))
    observer.record(_decode({"a": 1, "b": 3}, draft_length=1))
    columns = _columns(observer)
    assert columns["draft_length_verified"] == [-1, -1]
    assert columns["request_steps"] == [0, 0]
    assert columns["draft_tokens"] == [0, 4]


def test_chunks_recomputation_and_joining_prefills_are_told_from_decodes() -> None:
    observer = _observer()
    observer.record(_decode({"a": 0, "b": 0, "c": 0}, draft_length=2))
    step = _step(
        scheduled={"a": 3, "b": 1, "c": 1, "chunk": 8, "again": 6, "back": 1, "new": 1},
        drafts={"a": [1, 2]},
        cached=["a", "b", "c", "chunk", "again", "back"],
        cached_outputs=[4, 4, 4, 0, 7, 7],
        resumed={"back"},
        new=["new"],
        draft_length=1,
    )
    observer.record(step)
    columns = _columns(observer)
    assert columns["batch_size"][1] == 7
    assert columns["prefill_requests"][1] == 4
    assert columns["prefill_tokens"][1] == 8 + 6 + 1 + 1
    assert columns["draft_length_verified"][1] == 2
    assert columns["request_steps"][1] == 3
    assert columns["drafted_requests"][1] == 1


def test_empty_steps_are_counted_apart_and_mark_the_pause() -> None:
    observer = _observer()
    observer.record(_decode({"a": 0}, running_requests=0))
    observer.record(_step(time_s=1.0, running_requests=0))
    observer.record(_decode({"a": 0}, time_s=9.0))
    columns = _columns(observer)
    assert columns["batch_size"] == [1, 1]
    assert columns["after_idle"] == [1, 1]
    assert observer.totals()["empty_steps"] == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=20))
def test_counts_per_position_equal_a_plain_count(pairs: list[tuple[int, int]]) -> None:
    pairs = [(drafted, min(drafted, accepted)) for drafted, accepted in pairs]
    observer = _observer(4)
    observer.record(_decode({f"r{i}": 0 for i in range(len(pairs))}, draft_length=4))
    for drafted, accepted in pairs:
        if drafted:
            observer.draft_counts[drafted][accepted] += 1
    observer.record(_decode({f"r{i}": drafted for i, (drafted, _) in enumerate(pairs)}))
    columns = _columns(observer)
    positions = range(1, 5)
    assert columns["drafted_through"][1] == [sum(d >= i for d, _ in pairs) for i in positions]
    assert columns["accepted_through"][1] == [sum(a >= i for _, a in pairs) for i in positions]
    assert columns["verified_requests"][1] == sum(d > 0 for d, _ in pairs)
    assert not any(map(any, observer.draft_counts))
    assert observer.totals()["drafted_through"] == columns["drafted_through"][1]


def test_steps_wait_for_another_thread_up_to_a_number_and_then_one_is_completed_each_time() -> None:
    observer = _observer()
    ring = observer.ring
    observer.most_pending = 3
    for number in range(5):
        observer.record(_decode({"a": 0}, draft_length=1, time_s=float(number)))
    assert ring.next == 2
    thread = threading.Thread(target=observer.settle)
    thread.start()
    thread.join()
    assert ring.next == 5
    assert _columns(observer)["step_time_s"] == [0.0, 1.0, 1.0, 1.0, 1.0]


def test_a_step_does_not_wait_while_another_thread_completes_steps() -> None:
    observer = _observer()
    ring = observer.ring
    with observer._lock:
        for number in range(3):
            observer.record(_decode({"a": 0}, time_s=float(number)))
        assert ring.next == 0
    assert observer.totals()["steps"] == 3


def test_steps_that_nobody_completes_do_not_pile_up() -> None:
    observer = _observer()
    with observer._lock:
        for number in range(LONGEST_QUEUE):
            observer.record(_decode({"a": 0}, time_s=float(number)))
        with pytest.raises(RuntimeError, match="nobody"):
            observer.record(_decode({"a": 0}))


def test_a_call_marks_the_step_that_it_falls_into_though_that_is_completed_later() -> None:
    observer = _observer()
    observer.most_pending = 9
    observer.record(_decode({"a": 0}))
    observer.disturbed = True
    observer.record(_decode({"a": 0}, time_s=1.0))
    observer.record(_decode({"a": 0}, time_s=2.0))
    assert _columns(observer)["disturbed"] == [0, 1, 0]


def test_a_waiting_step_holds_no_list_for_each_request_unless_one_must_be_looked_at() -> None:
    observer = _observer()
    observer.most_pending = 9
    plain, chunked = _decode({"a": 2, "b": 2}), _decode({"a": 2, "b": 2})
    chunked.scheduled_tokens += 5
    for step in (plain, chunked):
        observer.record(step)
        assert not step.outputs
    assert not plain.drafts
    assert chunked.drafts


def test_a_step_that_cannot_be_completed_is_told_of() -> None:
    observer = _observer()
    observer.most_pending = 9
    observer.record(_decode({"a": 0}, graph_mode="odd"))
    with pytest.raises(struct.error):
        observer.settle()
    reasons: list[str] = []
    observer.failed = reasons.append
    observer.record(_decode({"a": 0}, graph_mode="odd"))
    observer.record(_decode({"a": 0}))
    assert observer.totals()["steps"] == 0
    assert len(reasons) == 1
    assert "recording a step failed" in reasons[0]
