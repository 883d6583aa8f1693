"""The claims of the evaluation: the paper's figure, what is to be reached, what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.evaluation.arms import AS_BUILT
from bench.evaluation.result_set import File, ResultSet
from bench.evaluation.standing import NOT_RUN, REACHED, Found, at_least, at_most, within_s

ONE_LENGTH = 0.995
"""Share of its steps that a policy ran one length, to be that length."""
LOST = 0.97
"""Share of the tuned table's throughput above which a stale table lost nothing to speak of."""
RIVALS = (
    *("TurboSpec-style", "Nightjar-style", "SGLang-style, one slot", "SGLang-style, slots"),
    *("TensorRT-LLM-style", "documented table"),
)


@dataclass(frozen=True)
class Claim:
    """One row.

    Attributes:
        stands: whether the means found on an engine reach it, of whatever was run.
        engine, simulated: what was found, in words, or `NOT_RUN`.
    """

    claim: str
    paper: str
    to_reach: str
    stands: str
    engine: str
    simulated: str = ""


def percent(share: float) -> str:
    """A share as text.

    >>> percent(0.9734)
    '97.3 %'
    """
    return f"{100 * share:.1f} %"


def with_interval(values: Sequence[float]) -> str:
    """[mean, low, high] as text."""
    middle, low, high = values
    return f"{percent(middle)} ({100 * low:.1f} to {100 * high:.1f})"


def worst(file: File, policy: str) -> tuple[str, list[float]] | None:
    """(load, [mean, low, high]) where a policy's share is least; None where it did not run."""
    rows = [
        (load["load"], best_share(load, policy))
        for load in file["loads"]
        if policy in load["policies"]
    ]
    return min(rows, key=lambda row: row[1][0], default=None)


def best_share(load: File, policy: str) -> list[float]:
    """A policy's share of the best fixed length at a load, by the figure with the least noise.

    A policy that ran one length there is that fixed length, so the windows of all who ran it
    count; otherwise its own windows, at equal shares of prompts where that is known.
    """
    figures = load["policies"][policy]
    single = [k for k, share in figures.get("lengths", {}).items() if share >= ONE_LENGTH]
    pooled = load.get("by_length", {})
    if single and single[0] in pooled:
        return list(pooled[single[0]]["of_best"])
    return list(figures.get("at_equal_prompts", figures["of_best_fixed"]))


def claims(results: ResultSet) -> list[Claim]:
    """Every claim of the evaluation, in order."""
    newest = {n: f for n, f in results.engine.items() if "superseded" not in f}
    gpu = {n: f for n, f in newest.items() if _on_gpu(f) and not is_adaptive(f)}
    adaptive = [f for f in newest.values() if is_adaptive(f)]
    eagle = [f for f in gpu.values() if f["scenario"]["method"] == "eagle3" and not _of_experts(f)]
    experts = [f for f in gpu.values() if _of_experts(f)]
    steady_sim = [f for f in results.simulated.values() if not _switches(f)]
    eagle_sim = [f for f in steady_sim if not _of_experts(f)]
    experts_sim = [f for f in steady_sim if _of_experts(f)]
    return [
        Claim(
            "tuned table against the best fixed length, worst load",
            "≥ 94 % in four of five drafter settings, ≥ 88 % in the fifth",
            "≥ 97 % in all",
            at_least([(f"{name}, {load}", s[0]) for name, load, s in _worst_of(gpu.values())], 0.97)
            + _loads_run(list(gpu.values())),
            _worst_shares(gpu.values()),
            _worst_shares(results.simulated.values()),
        ),
        Claim(
            "worst-case loss with EAGLE-3: tuned table, and the rivals",
            "3.3 %; TurboSpec-style 9.3 %, Nightjar-style 11.8 %",
            "≤ 2 %, below every rival",
            _least_loss(eagle) + _loads_run(eagle),
            _joined(_losses(eagle), _adaptive_losses(eagle, adaptive)),
            _losses(eagle_sim),
        ),
        Claim(
            "mixture of experts: worst loss; the documented table",
            "2.9 %; 17.5 %",
            "≤ 2 %",
            at_most([(load, 1 - s[0]) for _, load, s in _worst_of(experts)], 0.02)
            + _loads_run(experts),
            _losses(experts),
            _losses(experts_sim),
        ),
        Claim(
            "controller from mistuned tables, share of tuned throughput",
            "96 to 103 %",
            "≥ 98 % from every start",
            _scenes_stand(results, "promoted: draft length", "controller_over_tuned", 0.98),
            _scenes(results, "promoted: draft length", "controller_over_tuned"),
            _target(results, "mistuned: least share"),
        ),
        Claim(
            "after a switch of workload: share of the stale table's loss recovered",
            "96 % within a minute",
            "≥ 98 % within 20 s",
            _scenes_stand(results, "survival becomes", "loss_recovered", 0.98),
            _scenes(results, "survival becomes", "loss_recovered"),
            _target(results, "switch: loss recovered"),
        ),
        Claim(
            "mis-profiled step times: share of the gap recovered",
            "not corrected, 10 % left",
            "≥ 90 %",
            _scenes_stand(results, "step times wrong", "loss_recovered", 0.9),
            _scenes(results, "step times wrong", "loss_recovered"),
            _target(results, "mis-profiled: loss recovered"),
        ),
        Claim(
            "two replicas, 32B, high load: tuned against fixed 3 / documented table",
            "+20 to 32 % / +7 to 25 %",
            "report; not below",
            NOT_RUN,
            NOT_RUN,
            NOT_RUN,
        ),
        Claim(
            "profile after boot",
            "8 min (H100)",
            "≤ 60 s",
            within_s(_profiles(results), 60),
            _times(_profiles(results)),
        ),
        Claim(
            "whole retune, warm compile cache",
            "not given",
            "≤ 6 min for 4B",
            within_s(_whole_runs(results, as_claimed=True), 360),
            _times(_whole_runs(results)),
        ),
    ]


def _on_gpu(file: File) -> bool:
    return file["scenario"].get("gpus", 1) > 0


def _of_experts(file: File) -> bool:
    return "a3b" in file["scenario"]["target"]


def _switches(file: File) -> bool:
    return len(file["scenario"]["traffic"]) > 1


def _loads_run(files: Sequence[File]) -> str:
    """How many of the loads were run, where not all."""
    done = sum(len(file["loads"]) for file in files)
    planned = sum(file["loads_planned"] for file in files)
    return f" at {done} of {planned} loads" if 0 < done < planned else ""


def _worst_of(files: Iterable[File]) -> list[tuple[str, str, list[float]]]:
    """(what, load, [mean, low, high]) of each tuned table at its worst load."""
    parts: list[tuple[str, str, list[float]]] = []
    for file in files:
        name = file["scenario"]["name"]
        for policy, note in (("tuned table", ""), (AS_BUILT, ", as built")):
            found = worst(file, policy)
            if found is not None:
                parts.append((name + note, *found))
    return parts


def _worst_shares(files: Iterable[File]) -> str:
    parts = [f"{what}: {with_interval(share)} at {load}" for what, load, share in _worst_of(files)]
    return "; ".join(parts) or NOT_RUN


def _least_loss(files: Sequence[File]) -> str:
    """Whether the tuned table's largest loss, as built too, is 2 % at most, and less than any
    rival's."""
    losses = _largest_losses(files)
    ours = [losses[policy] for policy in ("tuned table", AS_BUILT) if policy in losses]
    rivals = {policy: losses[policy] for policy in RIVALS if policy in losses}
    if not ours or not rivals:
        return NOT_RUN
    load, loss = max(ours, key=lambda found: found[1])
    less = [f"{policy} {percent(lost)}" for policy, (_, lost) in rivals.items() if lost <= loss]
    stands = at_most([(load, loss)], 0.02)
    if less:
        stands = "not reached" if stands == REACHED else stands
        stands += f"; as little or less: {', '.join(less)}"
    return stands


def _losses(files: Sequence[File]) -> str:
    found = _largest_losses(files)
    parts = [f"{policy} {percent(loss)} ({load})" for policy, (load, loss) in found.items()]
    return "; ".join(parts) or NOT_RUN


def _largest_losses(files: Sequence[File]) -> dict[str, Found]:
    """Each policy's largest loss over all loads of all files, and the load."""
    losses: dict[str, Found] = {}
    for policy in ("tuned table", AS_BUILT, "controller", *RIVALS):
        found = [row for file in files if (row := worst(file, policy)) is not None]
        if found:
            load, share = min(found, key=lambda row: row[1][0])
            losses[policy] = (load, max(0.0, 1 - share[0]))
    return losses


def is_adaptive(file: File) -> bool:
    """Whether vLLM's own adaptive verification was on in that boot."""
    return bool(file["scenario"].get("speculative", {}).get("enable_adaptive_verification"))


def adaptive_share(load: str, plain: File, adaptive: File) -> float | None:
    """Adaptive verification's share of the best fixed length, across two boots.

    In its boot drafting the longest length is what it trims; K = 0 drafts and verifies nothing
    in either boot and links them. None where one of them did not run that load.
    """
    ours = next((one for one in plain["loads"] if one["load"] == load), None)
    theirs = next((one for one in adaptive["loads"] if one["load"] == load), None)
    if ours is None or theirs is None:
        return None
    fixed = [name for name in theirs["policies"] if name.startswith("fixed ")]
    longest = max(fixed, key=lambda name: int(name.split()[1]))
    scores = {name: theirs["policies"][name]["score_tok_s"] for name in ("fixed 0", longest)}
    return float(
        scores[longest] / scores["fixed 0"] * ours["policies"]["fixed 0"]["of_best_fixed"][0]
    )


def _adaptive_losses(plain: Sequence[File], adaptive: Sequence[File]) -> str:
    found = [
        (share, load["load"])
        for theirs in adaptive
        for ours in plain
        if ours["scenario"]["target"] == theirs["scenario"]["target"]
        for load in theirs["loads"]
        if (share := adaptive_share(load["load"], ours, theirs)) is not None
    ]
    if not found:
        return f"vLLM's adaptive verification {NOT_RUN}"
    share, load = min(found)
    return f"vLLM's adaptive verification {percent(max(0.0, 1 - share))} ({load}, another boot)"


def _joined(first: str, second: str) -> str:
    return first if first == NOT_RUN else f"{first}; {second}"


def _scenes(results: ResultSet, begins: str, key: str) -> str:
    """Each engine's scenes of a kind: all steps, then steps without prompts."""
    found = _scenes_of(results, begins)
    return "; ".join(f"{where}: {scene_text(scene, key)}" for where, scene in found) or NOT_RUN


def _scenes_of(results: ResultSet, begins: str) -> list[tuple[str, File]]:
    return [
        (f"{scene['scene']}, {file['concurrency']} requests", scene)
        for file in results.controller.values()
        for scene in file["scenes"]
        if begins in scene["scene"]
    ]


def _scenes_stand(results: ResultSet, begins: str, key: str, least: float) -> str:
    """Whether the figures of this kind reach it; how many scenes have none, for want of a loss."""
    found: list[Found] = []
    scenes = _scenes_of(results, begins)
    without = 0
    for where, scene in scenes:
        told = _told(scene, key)
        without += not told
        found += [(f"{where}, {note}".rstrip(" ,"), share[0]) for note, share in told]
    stands = at_least(found, least)
    if without:
        stands += f"; {without} of {len(scenes)} scenes had no clear loss to recover"
    return stands


def scene_text(scene: File, key: str) -> str:
    """A scene's figure over all steps and over steps without prompts. Where the stale table
    lost too little to speak of what was recovered, that, and the controller's share."""
    parts = [f"{note}{with_interval(share)}" for note, share in _told(scene, key)]
    if not parts:
        stale, ours = scene["stale_over_tuned"], scene["controller_over_tuned"]
        parts = [
            f"stale {with_interval(stale)}, controller {with_interval(ours)} of the tuned table"
        ]
    return ", ".join(parts)


def _told(scene: File, key: str) -> list[tuple[str, list[float]]]:
    calm: File = scene.get("decoding_only") or {}
    return [
        (note, part[key])
        for part, note in ((scene, ""), (calm, "without prompts "))
        if part.get(key) and (key != "loss_recovered" or _lost(part.get("stale_over_tuned", [])))
    ]


def _lost(stale: Sequence[float]) -> bool:
    """Whether a stale table's share says a loss: a mean that is worth it, all of it below 1. What
    was recovered of a loss that may be none is no figure. Without a share it is believed."""
    return not stale or (stale[0] < LOST and stale[2] < 1)


def _target(results: ResultSet, begins: str) -> str:
    targets = [] if results.sim_controller is None else results.sim_controller["targets"]
    found = [row["found"] for row in targets if row["target"].startswith(begins)]
    return percent(found[0]) if found else NOT_RUN


def _times(found: Sequence[Found]) -> str:
    return "; ".join(f"{where}: {seconds:.0f} s" for where, seconds in found) or NOT_RUN


def _profiles(results: ResultSet) -> list[Found]:
    return [
        (_engine_of(file), file["stages_s"]["profile"])
        for file in results.retune.values()
        if "profile" in file["stages_s"]
    ]


def _whole_runs(results: ResultSet, as_claimed: bool = False) -> list[Found]:
    """Each run and the sum of its stages; `as_claimed`: of those only that had a validation, for a
    4B shape, with a warm compile cache."""
    found: list[Found] = []
    for file in results.retune.values():
        stages = {k: v for k, v in file["stages_s"].items() if not k.startswith("of it")}
        whole = any("validat" in name for name in stages)
        warm = file.get("target") == "qwen3-4b" and file.get("compile_cache") == "warm"
        if (whole and warm) or not as_claimed:
            missing = "" if whole else ", without the validation"
            found.append((f"{_engine_of(file)}{missing}", sum(stages.values())))
    return found


def _engine_of(file: File) -> str:
    engine = file["machine"]["engine"]
    deployment = f", {file['deployment']}" if "deployment" in file else ""
    return f"{engine['distribution']} {engine['version']}{deployment}"
