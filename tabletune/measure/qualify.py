"""Qualify an engine: does it run every length, batch size and switch without fault?

The engine is sacrificed: it may crash or hang here, and its pins are changed. Driving is
separate from judging (qualify_findings.py), which is pure.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence

from tabletune.measure.api import EngineApiError
from tabletune.measure.clock import Clock
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Progress
from tabletune.measure.qualify_cells import (
    CellKey,
    cell_statistics,
    collect_cells,
    slowest_steps,
)
from tabletune.measure.qualify_drive import (
    Driver,
    EngineFault,
    OpenLoad,
    QualifyApi,
    closed_loops,
)
from tabletune.measure.qualify_envelope import build_envelope
from tabletune.measure.qualify_findings import (
    Finding,
    find_ignored,
    find_lost_acceptance,
    find_slow_switches,
    find_stalls,
    seen_switches,
)
from tabletune.measure.qualify_options import QualifyOptions, StepKind
from tabletune.measure.qualify_output import RunPrompts, check_greedy_output, http_prompts
from tabletune.measure.qualify_phases import Drives
from tabletune.measure.qualify_result import (
    QualificationResult,
    check_of,
    checks_of_cells,
    checks_of_switches,
)
from tabletune.measure.steps import StepBatch
from tabletune.records.plan import Envelope
from tabletune.records.qualification import Check


def qualify(
    api: QualifyApi,
    model: str,
    requests: Sequence[LoadRequest],
    lengths: Sequence[int],
    max_num_seqs: int,
    *,
    clock: Clock,
    progress: Progress,
    died: Callable[[], str | None],
    step_kind: StepKind = "constant",
    options: QualifyOptions | None = None,
    covered: Collection[CellKey] | None = None,
    check_output: bool = True,
    open_load: OpenLoad | None = None,
    run_prompts: RunPrompts | None = None,
) -> QualificationResult:
    """Try everything that a table may make the engine do; 60 to 90 s with the default options.

    Args:
        requests: should generate some hundreds of tokens each (`ignore_eos`), so that few
            prefills disturb the steps.
        lengths: the draft lengths that the engine's boot table names.
        max_num_seqs: the engine's largest batch.
        died: the engine's last log lines once it has died, None while it lives.
        step_kind: ``mixed`` for n-gram and suffix drafters, see QualifyOptions.
        options: None chooses by the engine's pace (QualifyOptions.for_step_time).
        covered: the (batch size, length) pairs that the capture plan covers; None for all.
        check_output: False for engines with synthetic acceptance, whose output is arbitrary.
        open_load, run_prompts: for tests.

    Returns:
        The result, also when the engine crashed, hung or refused the requests.
    """
    start_s = clock.now_s()
    lengths = tuple(sorted(set(lengths)))
    hang_s = options.hang_s if options else QualifyOptions.hang_s
    rounds, checks = list[StepBatch](), list[Check]()
    findings, excluded, envelope = list[Finding](), tuple[str, ...](), Envelope(allowed={})
    opening = open_load or closed_loops(api.address, model)
    driver = Driver(api, opening, clock, died, hang_s)
    drives = Drives(driver, requests, lengths, max_num_seqs, progress)
    try:
        driver.begin()
        if options is None:
            options = QualifyOptions.for_step_time(
                drives.probe(), max_num_seqs, lengths, step_kind, check_output
            )
            driver.hang_s = options.hang_s
        found = _drive_all(drives, options, rounds, checks)
        if options.check_output:
            run = run_prompts or http_prompts(driver, model)
            found += check_greedy_output(drives, options, run, checks)
    except EngineFault as fault:
        last = driver.take(read=False)
        rounds += [last] if last is not None else []
        size, old, new = driver.last
        previous = old if old not in (new, -1) else None
        finding = Finding(fault.fault, max(size, 1), max(new, 0), fault.evidence, previous)
        checks.append(check_of(driver.doing, [finding], 0, 0, ""))
        excluded = (f"the whole setting: {fault}",)
        found = None
    finally:
        with contextlib.suppress(EngineApiError):
            if died() is None:
                api.pin(None)
    cells = collect_cells(rounds)
    statistics = cell_statistics(cells)
    if found is not None and options is not None:
        findings = found
        seen = seen_switches(rounds)
        checks += checks_of_cells(findings, statistics, options.walk_batch_sizes, lengths)
        checks += checks_of_switches(findings, seen, lengths, options.walk_batch_sizes)
        envelope, excluded = build_envelope(
            findings, list(cells), seen, lengths, max_num_seqs, covered
        )
    mixed = (options.step_kind if options else step_kind) == "mixed"
    return QualificationResult(
        checks=tuple(checks),
        envelope=envelope,
        excluded=excluded,
        cells=statistics,
        slowest=slowest_steps(rounds, cells, by_tokens=mixed),
        max_num_seqs=max_num_seqs,
        wall_time_s=clock.now_s() - start_s,
    )


def _drive_all(
    drives: Drives, options: QualifyOptions, rounds: list[StepBatch], checks: list[Check]
) -> list[Finding]:
    """All drives and rechecks; `rounds` and `checks` grow as they go."""
    lengths, size = drives.lengths, max(1, drives.max_num_seqs // 2)
    drives.walk_all_switches(options)
    lost = _check_resume(drives, options, checks)
    joined = drives.join_decodes(options)
    if joined is not None:
        checks.append(_check_of_joins(joined, size))
    drives.shrink(options)
    _take_round(drives.driver, rounds)
    for _ in range(options.rechecks):
        suspects = _suspects(rounds, lengths, options)
        if not any(suspects):
            break
        drives.recheck(*suspects, options.recheck_steps)
        _take_round(drives.driver, rounds)
    cells = collect_cells(rounds)
    swept = sorted({b for b, _ in cells})
    if swept:
        text = f"{len(swept)} batch sizes from {swept[-1]} to {swept[0]}, lengths changing"
        checks.append(check_of("a shrinking batch", [], swept[-1], lengths[-1], text))
    stalls = find_stalls(cells, options) + find_slow_switches(rounds, cells, options)
    return stalls + find_ignored(rounds, lengths, options) + lost


def _check_resume(drives: Drives, options: QualifyOptions, checks: list[Check]) -> list[Finding]:
    """Length 0 and back; driven again before it fails."""
    size = max(1, drives.max_num_seqs // 2)
    batch = drives.resume_after_zero(options)
    if batch is None:
        return []
    lost, text = find_lost_acceptance(batch, drives.lengths)
    if lost:
        again = drives.resume_after_zero(options)
        lost, text = find_lost_acceptance(again, drives.lengths) if again else (lost, text)
    name = "acceptance after length 0"
    checks.append(check_of(name, lost, size, drives.lengths[-1], text))
    return lost


def _take_round(driver: Driver, rounds: list[StepBatch]) -> None:
    batch = driver.take()
    if batch is not None:
        rounds.append(batch)


def _suspects(
    rounds: Sequence[StepBatch], lengths: Sequence[int], options: QualifyOptions
) -> tuple[list[CellKey], list[tuple[int, int, int]]]:
    """Cells and switches to drive again: they look slow, or were not seen yet."""
    cells, seen = collect_cells(rounds), seen_switches(rounds)
    # A batch that the engine never ran will not fit the next time either.
    reached = {int(b) for batch in rounds for b in batch.batch_size}
    wanted = [(b, k) for b in options.sweep_batch_sizes if b in reached for k in lengths]
    again = {key for key in wanted if key not in cells}
    again |= {(f.batch_size, f.draft_length) for f in find_stalls(cells, options)}
    slow = find_slow_switches(rounds, cells, options, suspects=True)
    switches = {(f.batch_size, f.previous_length or 0, f.draft_length) for f in slow}
    for old in lengths:
        for new in lengths:
            if old != new:
                unseen = set(options.walk_batch_sizes) & reached - seen.get((old, new), set())
                switches |= {(b, old, new) for b in unseen}
    return sorted(again), sorted(switches)


def _check_of_joins(batch: StepBatch, size: int) -> Check:
    joined = (batch.prefill_requests > 0) & (batch.prefill_requests < batch.batch_size)
    name, length = f"prefills joining {size} decodes", int(batch.draft_length.max(initial=0))
    if joined.any():
        lengths = sorted(set(batch.draft_length[joined].tolist()))
        text = f"{int(joined.sum())} steps with draft lengths {', '.join(map(str, lengths))}"
        return check_of(name, [], size, length, text)
    text = "no step with both prefills and decodes was seen"
    return Check(name=name, batch_size=size, draft_length=length, passed=False, evidence=text)
