"""From recorded steps to findings: stalls, slow switches, lengths ignored, acceptance lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.measure.qualify_cells import (
    CellKey,
    CellSteps,
    expected_step_s,
    view_steps,
)
from tabletune.measure.qualify_options import QualifyOptions
from tabletune.measure.steps import StepBatch
from tabletune.records.qualification import FaultKind

#: Steps after a switch that belong to it: choosing, verifying, and one for the pipeline.
SWITCH_STEPS = 3
#: A slow switch must have been seen so often before it fails.
MIN_REPEATS = 4
#: Below so many drafts before or after K=0 nothing can be said about acceptance.
MIN_DRAFTS = 30


@dataclass(frozen=True)
class Finding:
    """One fault with its evidence. `previous_length` is set for faults of a switch."""

    fault: FaultKind
    batch_size: int
    draft_length: int
    evidence: str
    previous_length: int | None = None


def find_stalls(cells: Mapping[CellKey, CellSteps], options: QualifyOptions) -> list[Finding]:
    """Cells whose steps cost far more than those of a cell with more work.

    Work is requests, drafts and scheduled tokens: none of them can grow and the step become
    much cheaper, unless the cheaper one ran as a graph and this one did not. Against smaller
    batches, a step may grow as fast as its tokens, times `top_factor`; that finds stalls
    that reach up to the largest batch.
    """
    if not cells:
        return []
    keys = list(cells)
    sizes = np.array([b for b, _ in keys])
    lengths = np.array([k for _, k in keys])
    medians = np.array([cells[key].median_s for key in keys])
    tokens = np.array([max(cells[key].median_tok, 1.0) for key in keys])
    mixed = options.step_kind == "mixed"
    found = list[Finding]()
    for index, key in enumerate(keys):
        size, length = key
        step_s = cells[key].best_up_to_s(tokens[index]) if mixed else cells[key].best_s
        larger = (sizes >= size) & (lengths >= length)
        larger[index] = False
        if mixed:
            pairs = zip(keys, larger, strict=True)
            above = [cells[k].median_from_s(tokens[index]) if ok else np.inf for k, ok in pairs]
            above_s = np.array(above)
        else:
            above_s = np.where(larger, medians, np.inf)
        smaller = (sizes < size) & (lengths == length)
        scaled_s = medians * np.maximum(1.0, tokens[index] / tokens)
        below_s = np.where(smaller, scaled_s, np.inf)
        for reference_s, factor in (
            (above_s, options.stall_factor),
            (below_s, options.top_factor),
        ):
            best = int(np.argmin(reference_s))
            if step_s > factor * float(reference_s[best]):
                found.append(Finding("stall", size, length, _stall_text(cells, key, keys[best])))
                break
    return sorted(found, key=lambda f: (f.draft_length, f.batch_size))


def _stall_text(cells: Mapping[CellKey, CellSteps], key: CellKey, reference: CellKey) -> str:
    bare = " without a graph" if cells[key].ungraphed and not cells[reference].ungraphed else ""
    return (
        f"a step takes {cells[key].best_s * 1e3:.1f} ms{bare} at batch size {key[0]} and draft "
        f"length {key[1]} ({cells[key].count} steps), but {cells[reference].median_s * 1e3:.1f} ms "
        f"at batch size {reference[0]} and draft length {reference[1]}"
    )


SwitchKey = tuple[int, int, int]


def worst_of_switches(
    batch: StepBatch, cells: Mapping[CellKey, CellSteps], options: QualifyOptions
) -> dict[SwitchKey, list[tuple[float, float]]]:
    """Per (batch size, old, new length): each repeat's slowest step.

    As (ratio to what it should take, seconds above that), from the switch and the
    `SWITCH_STEPS` − 1 steps after it. Switches during which the batch changed do not count.
    """
    view = view_steps(batch)
    expected_s = expected_step_s(batch, cells, options.step_kind == "mixed")
    switched = view.same_batch & (view.in_force != batch.draft_length)
    found = dict[SwitchKey, list[tuple[float, float]]]()
    for i in np.flatnonzero(switched).tolist():
        window = slice(i, i + SWITCH_STEPS)
        should_s, took_s = expected_s[window], batch.interval_s[window]
        if len(should_s) < 2 or not np.all(view.same_batch[window] & np.isfinite(should_s)):
            continue
        at = int(np.argmax(took_s / should_s))
        key = (int(batch.batch_size[i]), int(view.in_force[i]), int(batch.draft_length[i]))
        worst = (float(took_s[at] / should_s[at]), float(took_s[at] - should_s[at]))
        found.setdefault(key, []).append(worst)
    return found


def find_slow_switches(
    rounds: Sequence[StepBatch],
    cells: Mapping[CellKey, CellSteps],
    options: QualifyOptions,
    suspects: bool = False,
) -> list[Finding]:
    """Switches whose worst step, in the median over repeats, is slow in every round.

    `suspects`: also those seen in one round only, or too seldom, which prove nothing yet.
    """
    per_round = [worst_of_switches(batch, cells, options) for batch in rounds]
    found = list[Finding]()
    for key in sorted({key for seen in per_round for key in seen}):
        repeats = [seen[key] for seen in per_round if key in seen]
        count = sum(len(r) for r in repeats)
        if not suspects and (count < MIN_REPEATS or len(repeats) < min(2, len(rounds))):
            continue
        medians = [np.median(np.array(r), axis=0) for r in repeats]
        ratio, extra_s = min(medians, key=lambda m: float(m[0])).tolist()
        if ratio > options.switch_factor and extra_s > options.switch_extra_s:
            size, old, new = key
            text = (
                f"the slowest step of the switch {old} → {new} at batch size {size} takes "
                f"{ratio:.1f} times its cell's median, {extra_s * 1e3:.0f} ms more (median of "
                f"{count} repeats)"
            )
            found.append(Finding("stall", size, new, text, previous_length=old))
    return found


def seen_switches(rounds: Sequence[StepBatch]) -> dict[tuple[int, int], set[int]]:
    """Per (old, new) length, the batch sizes at which the switch was made among decodes."""
    found = dict[tuple[int, int], set[int]]()
    for batch in rounds:
        view = view_steps(batch)
        for i in np.flatnonzero(view.same_batch & (view.in_force != batch.draft_length)).tolist():
            pair = (int(view.in_force[i]), int(batch.draft_length[i]))
            found.setdefault(pair, set()).add(int(batch.batch_size[i]))
    return found


def find_ignored(
    rounds: Sequence[StepBatch], lengths: Sequence[int], options: QualifyOptions
) -> list[Finding]:
    """Lengths that the engine was told but does not run.

    A model drafter must verify exactly b·K drafts, a drafter that may propose nothing at most
    that. More than half of a cell's steps (at least 4) must be wrong.
    """
    seen, right, wrong = set[int](), dict[CellKey, int](), dict[CellKey, list[int]]()
    for batch in rounds:
        view = view_steps(batch)
        seen |= set(batch.draft_length[view.decode_only].tolist())
        settled = view.same_batch.copy()
        settled[1:] &= (view.in_force[:-1] == view.in_force[1:]) & view.same_batch[:-1]
        for i in np.flatnonzero(settled).tolist():
            key = (int(batch.batch_size[i]), int(view.in_force[i]))
            drafted, full = int(batch.drafted_tok[i]), key[0] * key[1]
            if drafted > full or (options.step_kind == "constant" and drafted != full):
                wrong.setdefault(key, []).append(drafted)
            else:
                right[key] = right.get(key, 0) + 1
    found = list[Finding]()
    for length in sorted(set(lengths)):
        bad = sorted(
            key
            for key, drafts in wrong.items()
            if key[1] == length and len(drafts) >= 4 and len(drafts) > right.get(key, 0)
        )
        if length not in seen:
            text = f"draft length {length} was pinned, but no step chose it"
            found.append(Finding("ignored", 1, length, text))
        elif bad:
            size = bad[-1][0]
            text = (
                f"with draft length {length} pinned, steps of {size} requests verified "
                f"{int(np.median(wrong[bad[-1]]))} drafts instead of {size * length} "
                f"(so at {len(bad)} of the batch sizes tried)"
            )
            found.append(Finding("ignored", size, length, text))
    return found


def find_lost_acceptance(batch: StepBatch, lengths: Sequence[int]) -> tuple[list[Finding], str]:
    """Whether first guesses are accepted after K=0 as they were before.

    `batch` holds each length, then 0, then the length again. Lost means fewer than half as
    often, by more than four standard errors.

    Returns:
        Findings for switches 0 → K, and what was seen, in words.
    """
    view = view_steps(batch)
    counts = {k: np.zeros((2, 2)) for k in lengths if k > 0}
    after_zero = False
    for i in range(len(batch)):
        length = int(view.in_force[i])
        if length == 0:
            after_zero = True
        elif i and length != view.in_force[i - 1] and view.in_force[i - 1] != 0:
            after_zero = False
        if view.decode_only[i] and length in counts:
            row = counts[length][int(after_zero)]
            row += (batch.drafted_through[i, 0], batch.accepted_through[i, 0])
    found, words = list[Finding](), list[str]()
    size = int(batch.batch_size.max()) if len(batch) else 0
    for length, ((drafts, accepted), (drafts_after, accepted_after)) in counts.items():
        text = (
            f"draft length {length}: {accepted:.0f} of {drafts:.0f} first guesses accepted "
            f"before length 0, {accepted_after:.0f} of {drafts_after:.0f} after it"
        )
        if min(drafts, drafts_after) < MIN_DRAFTS:
            words.append(f"{text} (too few to tell)")
            continue
        before, after = accepted / drafts, accepted_after / drafts_after
        pooled = (accepted + accepted_after) / (drafts + drafts_after)
        error = np.sqrt(pooled * (1 - pooled) * (1 / drafts + 1 / drafts_after))
        words.append(text)
        if after < 0.5 * before and before - after > 4 * error:
            found.append(Finding("ignored", size, length, text, previous_length=0))
    return found, "; ".join(words)
