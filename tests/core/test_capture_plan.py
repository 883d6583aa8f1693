"""Chosen plans: coverage, safety, budget, what is dropped, and what to try next."""

from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tabletune.core.capture import (
    CaptureCosts,
    CapturePlan,
    GraphSettings,
    GraphSettingsError,
    PlanBudget,
    UnsupportedEngineError,
    choose_plan,
    predict_graphs,
    safer_plans,
)
from tabletune.core.capture_joining import (
    JOINING_PADDING,
    LAUNCH_BOUND_TOK,
    MAX_JOINING_SIZES,
    joining_sizes,
)
from tabletune.core.capture_search import Demand, fewest_sizes, padding_cost

UNLIMITED = PlanBudget(max_graphs=10**6, max_capture_sizes=10**6, max_padding_cost=0.05)


def plan(
    max_num_seqs: int = 128,
    lengths: tuple[int, ...] = (0, 1, 2, 3, 4),
    budget: PlanBudget | None = None,
    method: str = "eagle3",
    plausible: Callable[[int, int], bool] | None = None,
    **changes: object,
) -> CapturePlan:
    fields = {"version": "0.32.0", "runner": "v2", "platform": "gpu"} | changes
    return choose_plan(
        max_num_seqs,
        lengths,
        max_draft_length=max([1, *lengths]),
        method=method,
        budget=budget,
        plausible=plausible,
        **fields,  # type: ignore[arg-type]
    )


def all_pairs(chosen: CapturePlan) -> set[tuple[int, int]]:
    return {(b, k) for b in range(1, chosen.max_num_seqs + 1) for k in chosen.lengths}


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
def test_the_default_budget_covers_five_lengths_at_128(version: str) -> None:
    chosen = plan(version=version)
    assert chosen.lengths == (0, 1, 2, 3, 4)
    assert chosen.coverage == all_pairs(chosen)
    assert chosen.graph_mode == "FULL_DECODE_ONLY"
    assert chosen.graph_count <= 448
    assert chosen.dropped == ()
    assert chosen.mean_padding < 0.05


def test_with_room_every_pair_has_its_exact_graph() -> None:
    chosen = plan(budget=PlanBudget(max_graphs=640, max_capture_sizes=376))
    assert (len(chosen.capture_sizes), chosen.graph_count) == (376, 640)
    assert (chosen.max_padding, chosen.mean_padding) == (0.0, 0.0)
    assert "exact" in chosen.notes[0]


def test_padding_is_relaxed_before_a_length_is_dropped() -> None:
    roomy = plan(lengths=(0, 1, 3), budget=PlanBudget(max_graphs=250))
    tight = plan(lengths=(0, 1, 3), budget=PlanBudget(max_graphs=60))
    assert roomy.lengths == tight.lengths == (0, 1, 3)
    assert roomy.mean_padding < tight.mean_padding
    assert tight.graph_count <= 60
    assert tight.max_padding_cost <= tight.budget.max_padding_cost
    assert "padding relaxed" in tight.notes[0]


def test_a_small_budget_drops_lengths_and_says_why() -> None:
    chosen = plan(budget=PlanBudget(max_graphs=120))
    assert chosen.coverage == all_pairs(chosen)
    gone = {d.draft_length for d in chosen.dropped}
    assert gone
    assert gone | set(chosen.lengths) == {0, 1, 2, 3, 4}
    assert all("120 allowed" in d.reason for d in chosen.dropped)
    assert len(chosen.notes) == 1 + len(gone)


def test_the_caller_says_which_length_matters() -> None:
    values = {0: 1.0, 1: 0.1, 2: 0.1, 3: 0.1, 4: 1.0}
    chosen = plan(budget=PlanBudget(max_graphs=300), length_values=values)
    assert {0, 4} <= set(chosen.lengths)
    assert chosen.dropped


def test_no_budget_at_all_captures_nothing() -> None:
    chosen = plan(budget=PlanBudget(max_graphs=0))
    assert (chosen.graph_mode, chosen.capture_sizes) == ("NONE", ())
    assert "0 allowed" in chosen.notes[0]
    assert chosen.coverage == all_pairs(chosen)


def test_memory_and_boot_time_count_the_drafters_graphs() -> None:
    costs = CaptureCosts(target_s=0.1, draft_s=0.05, target_bytes=10, draft_bytes=1)
    chosen = plan(lengths=(0, 1, 3), costs=costs)
    drafts = chosen.prediction.draft_graph_count
    assert drafts > chosen.graph_count
    assert chosen.capture_s == pytest.approx(0.1 * chosen.graph_count + 0.05 * drafts)
    assert chosen.memory_bytes == 10 * chosen.graph_count + drafts
    limit = chosen.capture_s / 4
    assert plan(lengths=(0, 1, 3), costs=costs, budget=PlanBudget(boot_s=limit)).capture_s <= limit
    memory = chosen.memory_bytes // 4
    cheaper = plan(lengths=(0, 1, 3), costs=costs, budget=PlanBudget(memory_bytes=memory))
    assert cheaper.memory_bytes <= memory


def test_only_plausible_pairs_have_to_be_covered() -> None:
    def plausible(b: int, k: int) -> bool:
        return b * (k + 1) <= 160

    wanted = plan(plausible=plausible)
    assert wanted.wanted <= wanted.coverage
    assert all(plausible(b, k) for b, k in wanted.wanted)
    assert wanted.mean_padding < plan().mean_padding


def test_mixed_steps_get_graphs_and_no_mismatch() -> None:
    chosen = plan(lengths=(0, 1, 3), mixed_steps=True, plausible=lambda b, k: b <= 8 or k == 0)
    assert chosen.graph_mode == "FULL_AND_PIECEWISE"
    assert chosen.prediction.mismatches == ()
    assert chosen.coverage == all_pairs(chosen)
    graph = chosen.prediction.mixed_step_graph(100)
    assert graph is not None
    assert graph.mode == "PIECEWISE"


def test_a_prompt_that_joins_a_full_batch_finds_a_graph() -> None:
    """127 decodes of 5 tokens and a prompt of 128: 763 tokens, 640 in the widest decode step."""
    budget = PlanBudget(max_graphs=704)
    chosen = plan(mixed_steps=True, budget=budget)
    without = plan(mixed_steps=True, budget=budget, joining_tok=0)
    assert without.prediction.mixed_step_graph(763, 128) is None
    graph = chosen.prediction.mixed_step_graph(763, 128)
    assert graph is not None
    assert graph.mode == "PIECEWISE"
    assert padding_cost(763, graph.num_tokens) <= JOINING_PADDING
    # Nothing else changes: the same decode graphs, the same padding.
    assert chosen.decode_sizes == without.capture_sizes
    assert chosen.padding == without.padding
    more = len(chosen.capture_sizes) - len(without.capture_sizes)
    assert 0 < more <= MAX_JOINING_SIZES
    assert chosen.graph_count == without.graph_count + more
    assert any("724, 817" in note for note in chosen.notes)


def test_sizes_for_prompts_cost_no_length_and_stay_in_the_budget() -> None:
    chosen = plan(lengths=(0, 1, 3), mixed_steps=True, joining_tok=0, budget=PlanBudget())
    exact = chosen.graph_count
    tight = plan(lengths=(0, 1, 3), mixed_steps=True, budget=PlanBudget(max_graphs=exact))
    assert tight.lengths == (0, 1, 3)
    assert tight.graph_count <= exact
    assert tight.decode_sizes != tight.capture_sizes
    # The coarsest decode sizes that the budget allows leave no room for more.
    least = plan(16, (0, 3), PlanBudget(max_graphs=60), mixed_steps=True)
    for graphs in range(59, 0, -1):
        least = plan(16, (0, 3), PlanBudget(max_graphs=graphs), mixed_steps=True)
        if least.lengths != (0, 3) or least.decode_sizes == least.capture_sizes:
            break
    assert least.lengths == (0, 3)
    assert any("no sizes for steps in which prompts join" in note for note in least.notes)
    assert least.graph_count <= least.budget.max_graphs


def test_the_runner_that_knows_piecewise_only_gets_them_too() -> None:
    v1 = plan(runner="v1", mixed_steps=True)
    assert v1.graph_mode == "PIECEWISE"
    assert v1.prediction.mixed_step_graph(763, 128) is not None
    assert plan(runner="v1").decode_sizes == plan(runner="v1").capture_sizes


def test_plans_that_fall_back_keep_no_size_that_their_mode_cannot_use() -> None:
    chosen = plan(mixed_steps=True, budget=UNLIMITED)
    assert chosen.decode_sizes != chosen.capture_sizes
    for safer in safer_plans(chosen):
        if safer.plan.graph_mode == "FULL_DECODE_ONLY":
            assert safer.plan.decode_sizes == safer.plan.capture_sizes


@given(
    st.integers(1, 3000),
    st.integers(0, 4000),
    st.floats(0.0, 0.5),
    st.none() | st.integers(1, 16384),
)
def test_sizes_for_prompts_are_few_near_and_allowed(
    widest: int, joining_tok: int, max_cost: float, most: int | None
) -> None:
    sizes = joining_sizes(widest, joining_tok, max_cost, most)
    assert len(sizes) <= MAX_JOINING_SIZES
    limit = min(widest + joining_tok, LAUNCH_BOUND_TOK, most or LAUNCH_BOUND_TOK)
    before = widest
    for size in sizes:
        assert before < size <= limit
        assert padding_cost(before + 1, size) <= max_cost
        before = size
    if len(sizes) < MAX_JOINING_SIZES and max_cost >= JOINING_PADDING:
        assert limit <= widest or sizes[-1] == limit


def test_the_token_limit_of_a_step_bounds_the_sizes() -> None:
    chosen = plan(lengths=(0, 3), max_num_batched_tokens=512)
    assert chosen.coverage == all_pairs(chosen)
    assert max(chosen.capture_sizes) <= 512
    # 128 requests of 4 tokens cannot run in a step of 500: the length is given up.
    limited = plan(lengths=(0, 3), max_num_batched_tokens=500)
    assert limited.lengths == (0,)


def test_runners_and_platforms_without_full_graphs() -> None:
    v1 = plan(runner="v1")
    assert v1.graph_mode == "PIECEWISE"
    assert v1.coverage == all_pairs(v1)
    cpu = plan(method="ngram", platform="cpu", version="0.31.0", runner="v1")
    assert (cpu.graph_mode, cpu.capture_sizes) == ("NONE", ())
    assert cpu.coverage == all_pairs(cpu)
    assert cpu.padding[3, 2] == 9


def test_refusals() -> None:
    with pytest.raises(UnsupportedEngineError):
        choose_plan(8, (0, 1), max_draft_length=1, version="0.31.0", runner="v2", method="mtp")
    with pytest.raises(GraphSettingsError, match="lengths"):
        choose_plan(8, (0, 5), max_draft_length=4, version="0.32.0", runner="v2", method="mtp")
    with pytest.raises(GraphSettingsError, match="candidate_lengths"):
        plan(max_num_seqs=2, lengths=(0, 1, 2))
    with pytest.raises(GraphSettingsError, match="joining_tok"):
        plan(mixed_steps=True, joining_tok=-1)
    with pytest.raises(GraphSettingsError, match="max_graphs"):
        PlanBudget(max_graphs=-1)


def test_boot_ranges_name_every_length_once() -> None:
    chosen = plan(max_num_seqs=16, lengths=(0, 1, 3))
    assert chosen.boot_ranges() == ((1, 1, 3), (2, 2, 1), (3, 16, 0))
    assert plan(max_num_seqs=16, lengths=(2,)).boot_ranges() == ((1, 16, 2),)


def test_safer_plans_from_the_fastest_to_eager() -> None:
    chosen = plan(mixed_steps=True, budget=UNLIMITED)
    safer = safer_plans(chosen)
    kinds = [(s.plan.graph_mode, s.plan.lengths) for s in safer]
    assert kinds == [
        ("FULL_DECODE_ONLY", (0, 1, 2, 3, 4)),
        ("FULL_DECODE_ONLY", (0, 1, 3)),
        ("PIECEWISE", (0, 1, 2, 3, 4)),
        ("NONE", (0, 1, 2, 3, 4)),
    ]
    assert all(s.reason for s in safer)
    for s in safer:
        assert s.plan.prediction.mismatches == ()
        assert s.plan.wanted <= s.plan.coverage
    assert safer_plans(safer[-1].plan) == ()
    assert [s.plan.graph_mode for s in safer_plans(safer[1].plan)] == ["PIECEWISE", "NONE"]


def test_safer_plans_keep_the_budget() -> None:
    chosen = plan(max_num_seqs=512, budget=PlanBudget(max_capture_sizes=150))
    for s in safer_plans(chosen):
        assert s.plan.over_budget() is None


def test_the_padding_cost_is_relative_to_an_empty_step() -> None:
    assert padding_cost(60, 60) == 0.0
    assert padding_cost(60, 90) == pytest.approx(0.1)


def test_no_sizes_for_a_demand_out_of_reach() -> None:
    assert fewest_sizes(Demand(8, {2: [8]}, 0, 15), 0.1) == []
    assert fewest_sizes(Demand(8, {2: []}, 0, 16), 0.1) == []
    assert fewest_sizes(Demand(8, {2: [8]}, 0, 16), 1.0) == [16]


@settings(deadline=None, max_examples=60)
@given(
    st.sets(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(5, 40),
    st.floats(0.0, 0.5),
    st.sampled_from(["eagle3", "dflash", "ngram"]),
    st.booleans(),
)
def test_found_sizes_cover_within_the_padding_asked_for(
    lengths: set[int], max_num_seqs: int, max_cost: float, method: str, mixed: bool
) -> None:
    budget = PlanBudget(max_graphs=10**6, max_capture_sizes=10**6, max_padding_cost=max_cost)
    chosen = plan(max_num_seqs, tuple(sorted(lengths)), budget, method=method, mixed_steps=mixed)
    assert chosen.coverage == all_pairs(chosen)
    assert chosen.prediction.mismatches == ()
    assert chosen.max_padding_cost <= max_cost + 1e-9
    assert chosen.lengths == tuple(sorted(lengths))


@settings(deadline=None, max_examples=25)
@given(st.sets(st.integers(0, 3), min_size=1), st.integers(1, 4), st.floats(0.0, 0.06))
def test_no_list_of_levels_has_fewer_graphs(
    lengths: set[int], max_num_seqs: int, max_cost: float
) -> None:
    """Against all lists of sizes whose levels are sizes themselves, by the full prediction."""
    top = max_num_seqs * (max(lengths) + 1)
    assume(top <= 12)
    batch_sizes = {k + 1: range(1, max_num_seqs + 1) for k in sorted(lengths)}
    found = fewest_sizes(Demand(max_num_seqs, batch_sizes, 0, top), max_cost)

    def graphs(sizes: tuple[int, ...]) -> int | None:
        prediction = predict_graphs(
            GraphSettings(
                "FULL_DECODE_ONLY",
                sizes,
                max_num_seqs,
                tuple(lengths),
                max([1, *lengths]),
                "0.32.0",
                "v2",
                "ngram",
            )
        )
        fits = all(
            s.covered and padding_cost(s.tokens, s.padded_tokens) <= max_cost + 1e-9
            for s in prediction.steps.values()
        )
        closed = all(g.num_tokens in sizes for g in prediction.target_graphs)
        return prediction.graph_count if fits and closed else None

    subsets = (tuple(i + 1 for i in range(top) if mask >> i & 1) for mask in range(1, 2**top))
    counts = [count for sizes in subsets if (count := graphs(sizes)) is not None]
    assert graphs(tuple(found)) == min(counts)
