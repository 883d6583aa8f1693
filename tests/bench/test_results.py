"""docs/results.md from whatever result files there are."""

import json
import pathlib
import shutil
from typing import Any

import pytest

from bench import results
from bench.evaluation.arms import AS_BUILT
from bench.evaluation.claims import adaptive_share, claims, worst
from bench.evaluation.result_set import ResultSet, read_results

REPOSITORY = pathlib.Path(__file__).parents[2]


def built(folder: pathlib.Path) -> str:
    out = folder / "page" / "results.md"
    results.build(folder, out, folder / "page" / "images")
    return out.read_text()


def share(value: float) -> list[float]:
    return [value, value - 0.01, value + 0.01]


def engine_file(target: str = "qwen3-4b", **shares: float) -> dict[str, Any]:
    """What bench.run writes, in short: two loads; the second is worse by 1 % for everyone."""

    def policies(less: float) -> dict[str, Any]:
        names = {"tuned": "tuned table", "built": AS_BUILT, "turbospec": "TurboSpec-style"}
        return {
            names[name]: {"of_best_fixed": share(value - less)} for name, value in shares.items()
        }

    loads = [
        {"load": "closed 8", "best_fixed": "fixed 3", "policies": policies(0)},
        {"load": "closed 64", "best_fixed": "fixed 2", "policies": policies(0.01)},
    ]
    scenario = {"name": f"{target}_x", "what": "a trial", "target": target, "method": "eagle3"}
    source = {"name": "mid", "survival": [0.5], "source": "chosen"}
    return {
        "scenario": scenario | {"traffic": [source], "gpus": 1},
        "loads": loads,
        "loads_planned": 3,
        "machine": {"gpus": [{"name": "H200"}], "vllm": "0.32.0", "torch_version": "2.13.0"},
        "synthetic": "dummy weights, synthetic acceptance",
        "policy_cost": {"TurboSpec-style": {"choose_us": 21.4, "observe_us": 30.2}},
        "measured": "2026-11-30",
    }


def scene(name: str, **values: list[float]) -> dict[str, Any]:
    base = {"controller_over_tuned": share(0.99), "stale_over_tuned": share(0.8)}
    return {"scene": name, **base, **values, "share_of_tuned_by_second": [0.8, 0.9, 1.0]}


def test_an_empty_folder_says_not_run_everywhere(tmp_path: pathlib.Path) -> None:
    text = built(tmp_path)
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(claims(ResultSet())) == 9
    assert all("not run" in row for row in rows)
    assert not (tmp_path / "page" / "images").exists()


def test_claims_quote_the_worst_load(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a.json", engine_file(tuned=0.99, turbospec=0.93))
    write(tmp_path / "b.json", engine_file("qwen3-30b-a3b", tuned=0.97))
    found = claims(read_results(tmp_path))
    assert found[0].engine == (
        "qwen3-4b_x: 98.0 % (97.0 to 99.0) at closed 64; "
        "qwen3-30b-a3b_x: 96.0 % (95.0 to 97.0) at closed 64"
    )
    assert found[1].engine == (
        "tuned table 2.0 % (closed 64); TurboSpec-style 8.0 % (closed 64); "
        "vLLM's adaptive verification not run"
    )
    assert found[2].engine == "tuned table 4.0 % (closed 64)"
    of_all = "not reached in 1 of 2: 96.0 % (qwen3-30b-a3b_x, closed 64) at 4 of 6 loads"
    assert found[0].stands == of_all
    assert found[1].stands == "reached at 2 of 3 loads"
    assert found[2].stands == "not reached: 4.0 % (closed 64) at 2 of 3 loads"
    assert worst(engine_file(tuned=0.99), "Nightjar-style") is None
    text = built(tmp_path)
    assert "Only 2 of 3 loads were run." in text
    assert "H200, vLLM 0.32.0, torch 2.13.0; synthetic: dummy weights" in text
    assert "TurboSpec-style 21 + 30 µs" in text
    assert (tmp_path / "page" / "images" / "a.png").stat().st_size > 5000


def test_a_rival_that_loses_less_is_named(tmp_path: pathlib.Path) -> None:
    def stands() -> str:
        return claims(read_results(tmp_path))[1].stands

    write(tmp_path / "a.json", engine_file(tuned=0.999, turbospec=0.9999))
    assert stands().startswith("not reached; as little or less: TurboSpec-style 1.0 %")
    write(tmp_path / "b.json", engine_file("qwen3-8b", tuned=0.999, turbospec=0.97))
    assert stands() == "reached at 4 of 6 loads", "by the largest loss of each anywhere"
    write(tmp_path / "c.json", engine_file("qwen3-8b", tuned=0.99, built=0.9, turbospec=0.97))
    assert stands().startswith("not reached: 11.0 % (closed 64); as little or less: TurboSpec")
    for name in "abc":
        write(tmp_path / f"{name}.json", engine_file(tuned=0.99))
    assert stands().startswith("not run"), "there is no rival"


def test_a_whole_retune_is_judged_with_a_warm_cache_alone(tmp_path: pathlib.Path) -> None:
    engine = {"engine": {"distribution": "vllm", "version": "0.32.0"}}
    run = {"stages_s": {"profile": 40.0, "validate": 60.0}, "machine": engine}
    write(tmp_path / "a.json", {**run, "target": "qwen3-4b", "compile_cache": "cold"})
    write(tmp_path / "b.json", {**run, "target": "qwen3-32b", "compile_cache": "warm"})
    assert claims(read_results(tmp_path))[8].stands == "not run"
    write(tmp_path / "c.json", {**run, "target": "qwen3-4b", "compile_cache": "warm"})
    assert claims(read_results(tmp_path))[8].stands == "reached"


def test_the_controllers_scenes(tmp_path: pathlib.Path) -> None:
    calm = {"decoding_only": {"loss_recovered": share(0.97)}}
    scenes = [
        scene("promoted: draft length 4 everywhere"),
        scene("survival becomes 0.9,0.8", loss_recovered=share(0.5), **calm),  # type: ignore[arg-type]
        scene("survival becomes 0.5,0.2"),
        scene("step times wrong by up to 40%", loss_recovered=share(0.92)),
        scene(
            "step times wrong by up to 40%",
            loss_recovered=share(-0.4),
            stale_over_tuned=share(0.99),
        ),
    ]
    content = {"scenes": scenes, "machine": {"gpus": []}, "concurrency": 64}
    write(tmp_path / "c.json", content)
    mistuned, switched, misprofiled = claims(read_results(tmp_path))[3:6]
    assert (
        mistuned.engine
        == "promoted: draft length 4 everywhere, 64 requests: 99.0 % (98.0 to 100.0)"
    )
    assert mistuned.stands == "reached"
    assert switched.stands == (
        "not reached in 2 of 2: 50.0 % (survival becomes 0.9,0.8, 64 requests); "
        "97.0 % (survival becomes 0.9,0.8, 64 requests, without prompts); "
        "1 of 2 scenes had no clear loss to recover"
    )
    assert misprofiled.stands == "reached; 1 of 2 scenes had no clear loss to recover"
    assert switched.engine == (
        "survival becomes 0.9,0.8, 64 requests: 50.0 % (49.0 to 51.0), "
        "without prompts 97.0 % (96.0 to 98.0); "
        "survival becomes 0.5,0.2, 64 requests: stale 80.0 % (79.0 to 81.0), "
        "controller 99.0 % (98.0 to 100.0) of the tuned table"
    )
    assert misprofiled.engine == (
        "step times wrong by up to 40%, 64 requests: 92.0 % (91.0 to 93.0); "
        "step times wrong by up to 40%, 64 requests: stale 99.0 % (98.0 to 100.0), "
        "controller 99.0 % (98.0 to 100.0) of the tuned table"
    ), "where the stale table lost nothing there is nothing to recover"
    assert "![repair by second](images/c.png)" in built(tmp_path)


def test_adaptive_verification_is_linked_by_no_drafting(tmp_path: pathlib.Path) -> None:
    plain, theirs = engine_file(tuned=0.99), engine_file(tuned=0.99)
    for load in plain["loads"]:
        load["policies"]["fixed 0"] = {"of_best_fixed": share(0.5)}
    for load in theirs["loads"]:
        scores = {"fixed 0": 1000.0, "fixed 2": 1700.0, "fixed 4": 1800.0}
        load["policies"] = {
            name: {"of_best_fixed": share(1), "score_tok_s": score}
            for name, score in scores.items()
        }
    theirs["scenario"]["speculative"] = {"enable_adaptive_verification": True}
    assert adaptive_share("closed 8", plain, theirs) == pytest.approx(0.9)
    assert adaptive_share("closed 9", plain, theirs) is None
    write(tmp_path / "plain.json", plain)
    write(tmp_path / "theirs.json", theirs)
    found = claims(read_results(tmp_path))
    assert found[0].engine.count("closed 64") == 1, "its boot is no drafter setting"
    assert "adaptive verification 10.0 % (closed 64, another boot)" in found[1].engine


def test_what_a_capture_plan_is_worth(tmp_path: pathlib.Path) -> None:
    def setting(rate: float) -> dict[str, Any]:
        steps = {"steps": 90, "ungraphed_steps": 0}
        load = {"tok_s": [rate, rate + 20], "step_ms": {"p50": 4.0, "p100": 10.0}, **steps}
        off = {"tok_s": [500.0], "step_ms": {}, **steps, "ungraphed_steps": 9}
        return {
            "graph_mode": "FULL_DECODE_ONLY",
            "capture_sizes": [1, 2],
            "boot_s": 99.6,
            "left_for_kv_cache_bytes": 3 * 2**30,
            "loads": [{"concurrency": 50, "table": load, "no drafts": off}],
        }

    failed = {"failed": "no memory\nlog|more", "loads": []}
    file = {
        "what": "one table under several capture settings",
        "machine": {"gpus": [{"name": "H200"}], "vllm": "0.32.0", "torch_version": "2.13.0"},
        "synthetic": "nothing",
        "measured": "2026-11-30",
        "table": [[1, 128, 2]],
        "settings": {
            "vllm": setting(900.0),
            "planned": failed,
        },
    }
    (tmp_path / "worth.json").write_text(json.dumps(file))
    text = built(tmp_path)
    assert "| closed 50 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| vllm |"))
    assert "100 s | 2 | 3.0 GiB | 910 (900 to 920), without drafts 500, slowest step 2.5 ×" in row
    assert "no drafts: 9 of 90 steps without a graph" in row
    assert "table: 0 of" not in row
    assert "| failed: no memory |" in text
    assert "Throughput of one table under each of these settings: not run" not in text


def test_a_broken_file_is_named_and_the_rest_is_built(tmp_path: pathlib.Path) -> None:
    (tmp_path / "half.json").write_text('{"loads": [')
    write(tmp_path / "a.json", engine_file(tuned=0.99))
    text = built(tmp_path)
    assert "Files that could not be read: half.json." in text
    assert "98.0 %" in text


def test_the_repositorys_own_files(tmp_path: pathlib.Path) -> None:
    for path in (REPOSITORY / "bench" / "results").glob("*.json"):
        shutil.copy(path, tmp_path)
    found = claims(read_results(tmp_path))
    assert "vllm 0.32.0, compile cache partly warm: 31 s" in found[7].engine
    text = built(tmp_path)
    assert "two replicas" in text.partition("## Not run")[2]
    assert "FULL_AND_PIECEWISE" in text


def test_the_page_in_docs_is_made_from_these_files(tmp_path: pathlib.Path) -> None:
    page = REPOSITORY / "docs" / "results.md"
    if not page.exists():
        pytest.fail("run python -m bench.results")
    source, out = REPOSITORY / "bench" / "results", tmp_path / "docs" / "results.md"
    results.build(source, out, tmp_path / "docs" / "images" / "results")
    assert out.read_text() == page.read_text(), "run python -m bench.results"


def write(path: pathlib.Path, content: object) -> None:
    path.write_text(json.dumps(content))
