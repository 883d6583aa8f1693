"""The arithmetic of the comparison of profiling methods, by hand-worked cases."""

import pytest

from bench.profile_compare import Measured, by_engine_steps, compare, reference_cells
from tabletune.measure.profile_in_engine import CellSamples


def cells(times_s: dict[tuple[int, int], list[float]]) -> dict[tuple[int, int], CellSamples]:
    return {
        key: CellSamples(samples, [2.0] * len(samples), [100.0] * len(samples))
        for key, samples in times_s.items()
    }


def test_errors_are_signed_and_their_sizes_summarised() -> None:
    reference = Measured("constant", 100.0, cells({(1, 0): [0.1] * 9, (2, 0): [0.2] * 9}))
    method = Measured("constant", 100.0, cells({(1, 0): [0.11, 0.09, 0.2], (2, 0): [0.15] * 3}))
    found = compare([method], reference)
    assert [row["relative_error"] for row in found["cells"]] == pytest.approx([0.1, -0.25])
    assert found["median_error"] == pytest.approx(0.175)
    assert found["largest_error"] == pytest.approx(0.25)
    assert found["cells"][1]["relative_halfwidth"] == 0


def test_every_round_counts() -> None:
    reference = Measured("constant", 100.0, cells({(1, 0): [0.1] * 9}))
    rounds = [Measured("constant", 100.0, cells({(1, 0): [t] * 3})) for t in (0.1, 0.13, 0.06)]
    found = compare(rounds, reference)
    assert [row["round"] for row in found["cells"]] == [0, 1, 2]
    assert found["median_error"] == pytest.approx(0.3)
    assert found["rms_error"] == pytest.approx(0.2887, abs=1e-4)
    assert found["largest_error"] == pytest.approx(0.4)


def test_the_reference_is_brought_to_the_methods_context() -> None:
    context = [100.0 + 10 * i for i in range(30)]
    growing = CellSamples([0.01 + 1e-5 * c for c in context], [1.0] * 30, context)
    reference = Measured("constant", 300.0, {(1, 0): growing})
    method = Measured("constant", 150.0, cells({(1, 0): [0.0115] * 3}))
    assert compare([method], reference)["largest_error"] == pytest.approx(0, abs=1e-4)


def test_halves_of_the_reference_show_its_noise() -> None:
    samples = cells({(1, 0): [0.1] * 5 + [0.12] * 4, (2, 0): [0.2] * 8})
    found = reference_cells(Measured("constant", 100.0, samples), {(1, 0): 5, (2, 0): 4})
    assert [row["second_half_over_first"] for row in found["cells"]] == pytest.approx([1.2, 1.0])
    assert found["median_difference_of_halves"] == pytest.approx(0.1)
    assert found["largest_difference_of_halves"] == pytest.approx(0.2)


def page(generated: int, accepted: int, engine_steps: int) -> str:
    labels = '{engine="0",model_name="m"}'
    counters = {
        "generation_tokens_total": generated,
        "num_requests_running": 0,
        "iteration_tokens_total_count": engine_steps,
        "spec_decode_num_drafts_total": accepted,
        "spec_decode_num_draft_tokens_total": 2 * accepted,
        "spec_decode_num_accepted_tokens_total": accepted,
    }
    return "".join(f"vllm:{name}{labels} {value}\n" for name, value in counters.items())


def test_the_engines_own_steps_replace_the_mean_of_a_requests() -> None:
    # Two requests for 65 tokens each: 64 of the 130 were guesses, so the first tokens aside
    # each took 32 steps on average. The engine ran 40 after the prompts' step, because one of
    # them needed more than the other. Each short call is one step.
    first = [page(0, 0, 0), page(2, 0, 1)]
    first += [page(2, 0, 1), page(132, 64, 42), page(132, 64, 42), page(134, 64, 43)]
    found = by_engine_steps(first, CellSamples([0.1], [3.0], [50.0]), batch_size=2)
    assert found.samples_s == pytest.approx([0.1 * 32 / 40])
