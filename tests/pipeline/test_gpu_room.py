"""Room for two engines on one GPU."""

from hypothesis import given
from hypothesis import strategies as st

from tabletune.measure.load import LoadRequest
from tabletune.pipeline.gpu_room import KvCache, Room, needed_tok, room_for_two

GIB = 2**30
H200 = 140 * GIB


def test_a_small_model_leaves_room_for_two() -> None:
    # 133 GiB for one engine alone, 18 of them for weights, graphs and activations.
    alone = KvCache(115 * GIB, 800_000)
    room = room_for_two(H200, alone, 128 * 700)
    assert room == Room(0.425, int(0.425 * H200 - 18 * GIB))


def test_a_large_model_does_not() -> None:
    assert room_for_two(H200, KvCache(60 * GIB, 240_000), 100) is None


def test_nor_do_many_long_requests() -> None:
    alone = KvCache(115 * GIB, 800_000)
    assert room_for_two(H200, alone, 128 * 4096) is None


def test_nor_does_an_engine_that_tells_no_tokens() -> None:
    assert room_for_two(H200, KvCache(115 * GIB, 0), 100) is None


def test_a_share_that_was_given_is_that_of_two() -> None:
    # A GPU with others on it: 70 GiB for one engine, 18 of them for what is not its KV cache.
    alone = KvCache(52 * GIB, 400_000, memory_share=0.5)
    assert room_for_two(H200, alone, 1000) == Room(0.25, 17 * GIB)


def test_an_engine_that_had_more_than_its_share_tells_nothing() -> None:
    assert room_for_two(H200, KvCache(71 * GIB, 400_000, memory_share=0.5), 1000) is None
    assert room_for_two(H200, KvCache(H200, 400_000), 1000) is None


def test_blocks_are_filled_in_part() -> None:
    # 41 of 115 GiB: 287,652 tokens.
    alone = KvCache(115 * GIB, 800_000)
    assert room_for_two(H200, alone, 230_000) is not None
    assert room_for_two(H200, alone, 231_000) is None


@given(
    memory_gib=st.integers(8, 300),
    share=st.floats(0.05, 0.95),
    given_share=st.none() | st.floats(0.05, 1.0),
    tokens=st.integers(1, 10**7),
    needed=st.integers(1, 10**7),
)
def test_two_that_fit_take_no_more_than_there_is(
    memory_gib: int, share: float, given_share: float | None, tokens: int, needed: int
) -> None:
    memory = memory_gib * GIB
    alone = KvCache(int(share * memory), tokens, given_share)
    room = room_for_two(memory, alone, needed)
    if room is None:
        return
    besides = (0.95 if given_share is None else given_share) * memory - alone.size_bytes
    together = 0.85 if given_share is None else min(given_share, 0.85)
    assert besides > 0
    assert 2 * (besides + room.kv_cache_bytes) <= together * memory + 2
    assert 2 * room.memory_share <= together
    assert room.kv_cache_bytes < alone.size_bytes
    assert room.kv_cache_bytes * tokens >= 1.25 * needed * alone.size_bytes


def test_what_a_window_touches_stays_in_the_cache() -> None:
    ids = LoadRequest([1, 2, 3], 10)
    text = LoadRequest("some words", 10, {"truncate_prompt_tokens": 8})
    assert needed_tok([ids, text], 4, 13, 100) == 7 * 13 + 6 * 18
    assert needed_tok([ids, text], 8, 8, 100) == 8 * 18, "the longest may be open at once"
    assert needed_tok([ids, text], 4, 4, 100) == 100
    assert needed_tok([ids, LoadRequest("no limit", 10)], 4, 4, 100) == 4 * 100
