"""The ring keeps the newest records, in order, and says what it lost."""

from hypothesis import given
from hypothesis import strategies as st

from tabletune_vllm.ring import FLOAT_COLUMNS, INT_COLUMNS, StepRing, decode_steps


def _append(ring: StepRing, number: int) -> None:
    ints = [number] * (len(INT_COLUMNS) + 2 * ring.max_draft_length)
    ring.append(*[number / 2] * len(FLOAT_COLUMNS), *ints)


@given(
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(0, 40),
    st.integers(0, 50),
    st.integers(1, 30),
)
def test_read_equals_a_plain_list(
    k_max: int, capacity: int, appended: int, since: int, limit: int
) -> None:
    ring = StepRing(k_max, capacity)
    for number in range(appended):
        _append(ring, number)
    kept = [n for n in range(appended) if n >= appended - capacity and n >= since][:limit]

    reply = decode_steps(ring.read(since, limit))
    columns = reply["columns"]
    assert isinstance(columns, dict)
    assert columns["batch_size"] == kept
    assert columns["time_s"] == [n / 2 for n in kept]
    assert columns["accepted_through"] == [[n] * k_max for n in kept]
    assert reply["next"] == (kept[-1] + 1 if kept else reply["first"])
    assert reply["lost"] == max(0, appended - capacity - since)


def test_reading_on_from_next_reads_everything_once() -> None:
    ring = StepRing(2, 100)
    seen: list[int] = []
    since = 0
    for number in range(95):
        _append(ring, number)
        if number % 7 == 0:
            reply = ring.read(since, 1000)
            seen += range(reply["first"], reply["next"])
            since = reply["next"]
    assert seen == list(range(92))
