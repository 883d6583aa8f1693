"""From the runs of controller_sim to figures, and the targets that they are held against."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

Row = dict[str, Any]
Index = Mapping[tuple[str, str, int, str], Row]
RESAMPLES = 2000


def _spread(values: Iterable[float]) -> dict[str, float]:
    """Mean, least, tenth percentile and largest."""
    kept = np.array(list(values))
    return {
        "mean": round(float(kept.mean()), 4),
        "least": round(float(kept.min()), 4),
        "p10": round(float(np.percentile(kept, 10)), 4),
        "largest": round(float(kept.max()), 4),
        "runs": int(kept.size),
    }


def _windows(row: Row) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = row["windows"]
    return found


def pairs(index: Index, group: str, policy: str) -> list[tuple[Row, Row]]:
    """(run under the policy, run under the tuned table) of the same requests."""
    return [
        (row, index[group, load, seed, "tuned"])
        for (of_group, load, seed, name), row in index.items()
        if of_group == group and name == policy and (group, load, seed, "tuned") in index
    ]


def shares(index: Index, group: str, policy: str) -> dict[str, Any]:
    """Throughput against the tuned table: expected (see `score`), and measured in tokens.

    Open loops put out what arrives, so that only closed loops are measured in tokens.
    """
    expected: dict[str, list[float]] = {}
    measured: list[float] = []
    for row, tuned in pairs(index, group, policy):
        for name, window in _windows(row).items():
            expected.setdefault(row["load"], []).append(window["share"])
            if row["load"].startswith("closed"):
                measured.append(window["tok_s"] / _windows(tuned)[name]["tok_s"])
    every = [v for values in expected.values() for v in values]
    return {
        "expected": _spread(every),
        "expected_by_load": {load: _spread(values) for load, values in expected.items()},
        "measured": _spread(measured) if measured else None,
    }


def against_stale(index: Index, group: str) -> dict[str, Any]:
    """The shares of the stale table and of the controller."""
    return {policy: shares(index, group, policy) for policy in ("stale", "controller")}


def recovered(index: Index, group: str, least_loss: float = -np.inf) -> dict[str, Any]:
    """Share of the stale table's loss that the controller recovers, over all windows together,
    by expected throughput and by tokens, with a 95 % bootstrap interval over seeds.

    least_loss: windows where the stale table loses less are left out.
    """
    by_seed: dict[int, list[tuple[float, float, float, float]]] = {}
    for row, tuned in pairs(index, group, "controller"):
        stale = index[group, row["load"], row["seed"], "stale"]
        for name, window in _windows(row).items():
            lost = 1 - _windows(stale)[name]["share"]
            if lost < least_loss:
                continue
            tok_s = [_windows(r)[name]["tok_s"] for r in (stale, row, tuned)]
            closed = row["load"].startswith("closed")
            by_seed.setdefault(row["seed"], []).append(
                (
                    lost,
                    window["share"] - 1 + lost,
                    (tok_s[2] - tok_s[0]) / tok_s[2] if closed else 0.0,
                    (tok_s[1] - tok_s[0]) / tok_s[2] if closed else 0.0,
                )
            )
    if not by_seed:
        return {"windows": 0}
    sums = np.array([np.sum(rows, axis=0) for _, rows in sorted(by_seed.items())])
    count = sum(len(rows) for rows in by_seed.values())

    def interval(lost: int, won: int) -> list[float]:
        rng = np.random.default_rng(0)
        picks = rng.integers(0, len(sums), (RESAMPLES, len(sums)))
        again = sums[picks].sum(axis=1)
        whole = sums.sum(axis=0)
        low, high = np.percentile(again[:, won] / again[:, lost], [2.5, 97.5])
        return [round(float(v), 4) for v in (whole[won] / whole[lost], low, high)]

    return {
        "windows": count,
        "mean_loss_of_the_stale_table": round(float(sums[:, 0].sum()) / count, 4),
        "recovered_expected": interval(0, 1),
        "recovered_measured": interval(2, 3),
    }


def controller_costs(index: Index, group: str) -> dict[str, Any]:
    """Swaps, probes and their cost over a group's runs of the controller."""
    rows = [row for (of, _, _, name), row in index.items() if (of, name) == (group, "controller")]
    swaps = [len(row["swaps_at_s"]) for row in rows]
    probing = [part for row in rows for part in row["probing"].values()]
    return {
        "swaps": _spread(swaps),
        "steps_that_probe": _spread(part[0] for part in probing),
        "throughput_lost_by_probes": _spread(part[1] for part in probing),
    }


def ranking(index: Index, groups: Iterable[str]) -> dict[str, Any]:
    """Every policy's expected share of the tuned table: mean and least over loads and kinds."""
    names = dict.fromkeys(n for (g, _, _, n) in index if g in set(groups))
    return {
        name: _spread(
            window["share"]
            for (g, _, _, n), row in index.items()
            if g in set(groups) and n == name
            for window in _windows(row).values()
        )
        for name in names
    }


def speed(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Simulated seconds per second of processor time at 128 open requests: middle and best run.
    Neighbours on a shared machine slow a run down, and nothing makes it faster."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["load"] == "closed 128" and row["policy"] in ("tuned", "controller"):
            found.setdefault(row["policy"], []).append(row["simulated_s"] / row["cpu_s"])
    return {
        name: {"median": round(float(np.median(v)), 1), "best": round(max(v), 1)}
        for name, v in found.items()
    }


def targets(index: Index, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """What is to be reached, what was, and whether it holds. Shares count as expected."""
    steady = shares(index, "steady", "controller")["expected"]
    swaps = max(
        sum(at_s > 20 for at_s in row["swaps_at_s"])
        for (group, _, _, name), row in index.items()
        if (group, name) == ("steady", "controller")
    )
    probes = controller_costs(index, "steady")["throughput_lost_by_probes"]
    mistuned = shares(index, "mistuned", "controller")
    switch, wrong = recovered(index, "switch"), recovered(index, "mis-profiled")
    fast = speed(rows)["controller"]["best"]
    lines: list[tuple[str, Any, float, Callable[[Any, float], bool]]] = [
        ("mistuned: least share of the tuned table after 20 s", mistuned["expected"]["least"],
         0.98, _at_least),
        ("switch: loss recovered after 20 s", switch["recovered_expected"][0], 0.98, _at_least),
        ("mis-profiled: loss recovered after 20 s", wrong["recovered_expected"][0], 0.9, _at_least),
        ("steady: largest regret", round(1 - steady["least"], 4), 0.01, _at_most),
        ("steady: most swaps in ten minutes", swaps, 1, _at_most),
        ("steady: most throughput lost by probes", probes["largest"], 0.01, _at_most),
        ("simulated seconds per second at 128 requests, best run", fast, 200, _at_least),
    ]  # fmt: skip
    return [
        {"target": name, "found": found, "wanted": wanted, "holds": bool(test(found, wanted))}
        for name, found, wanted, test in lines
    ]


def _at_least(found: float, wanted: float) -> bool:
    return found >= wanted


def _at_most(found: float, wanted: float) -> bool:
    return found <= wanted


def figures(rows: list[Row], index: Index) -> dict[str, Any]:
    """All of it."""
    return {
        "targets": targets(index, rows),
        "steady": shares(index, "steady", "controller") | controller_costs(index, "steady"),
        "mistuned": {
            **against_stale(index, "mistuned"),
            **controller_costs(index, "mistuned"),
        },
        "switch": {
            **against_stale(index, "switch"),
            "recovered": recovered(index, "switch"),
            "recovered_where_the_loss_is_at_least_3_percent": recovered(index, "switch", 0.03),
            **controller_costs(index, "switch"),
        },
        "mis-profiled": {
            **against_stale(index, "mis-profiled"),
            "recovered": recovered(index, "mis-profiled"),
            **controller_costs(index, "mis-profiled"),
        },
        "mis-profiled blocks": {
            **against_stale(index, "mis-profiled blocks"),
            "recovered": recovered(index, "mis-profiled blocks"),
        },
        "useless drafter": {
            **against_stale(index, "useless drafter"),
            "recovered": recovered(index, "useless drafter"),
            **controller_costs(index, "useless drafter"),
        },
        "unquiet host": {
            **against_stale(index, "unquiet host"),
            **controller_costs(index, "unquiet host"),
        },
        "policies_on_steady_traffic": ranking(index, ("code", "chat", "math")),
        "policies_through_switches": ranking(index, ("switch",)),
        "simulated_seconds_per_second_at_128": speed(rows),
    }
