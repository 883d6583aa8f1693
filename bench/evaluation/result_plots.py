"""The plots of docs/results.md."""

from __future__ import annotations

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from bench.evaluation.claims import best_share
from bench.evaluation.result_set import File

DPI = 110


def plot_shares(file: File, path: pathlib.Path) -> None:
    """Policies by loads, each field a share of the best fixed length."""
    loads = [load["load"] for load in file["loads"]]
    policies = list(dict.fromkeys(name for load in file["loads"] for name in load["policies"]))
    grid = np.full((len(policies), len(loads)), np.nan)
    for column, load in enumerate(file["loads"]):
        for row, policy in enumerate(policies):
            if policy in load["policies"]:
                grid[row, column] = best_share(load, policy)[0]
    size = (2.8 + 1.25 * len(loads), 1.6 + 0.32 * len(policies))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    axes.imshow(np.clip(grid, 0.8, 1.02), cmap="RdYlGn", vmin=0.8, vmax=1.02, aspect="auto")
    axes.set_xticks(range(len(loads)), loads, rotation=20, ha="right")
    axes.set_yticks(range(len(policies)), policies)
    for (row, column), share in np.ndenumerate(grid):
        text = "" if np.isnan(share) else f"{100 * share:.1f}"
        ink = "white" if share < 0.84 else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)
    kind = "simulation" if file.get("simulated") else "engine"
    axes.set_title(f"{file['scenario']['name']} ({kind}): % of the best fixed length", fontsize=9)
    _save(figure, path)


def plot_repair(file: File, path: pathlib.Path) -> None:
    """Share of tuned throughput by second after each change, one line a scene."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for scene in file["scenes"]:
        shares = scene["share_of_tuned_by_second"]
        axes.plot(np.arange(1, len(shares) + 1), shares, marker=".", label=scene["scene"])
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("seconds after the change")
    axes.set_ylabel("throughput over the tuned table's")
    axes.legend(fontsize=7)
    _save(figure, path)


def plot_sensitivity(file: File, path: pathlib.Path) -> None:
    """Worst loss by the error in survival and in what drafting costs."""
    figure, both = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    titles = {"survival": "conditional acceptance", "drafting_time": "time added by drafting"}
    for axes, (key, title) in zip(both, titles.items(), strict=True):
        for kind in file["survivals"]:
            rows: list[dict[str, Any]] = file[kind][key]["rows"]
            errors = [100 * row["error"] for row in rows]
            axes.plot(errors, [100 * row["worst"] for row in rows], label=kind)
        for limit in (1, 3, 5):
            axes.axhline(limit, color="grey", linewidth=0.5)
        axes.set_ylim(0, 15)
        axes.set_xlabel(f"error of {title} as believed, %")
    both[0].set_ylabel("loss at the worst batch size, %")
    both[0].legend(fontsize=7)
    _save(figure, path)


def _save(figure: Any, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)
