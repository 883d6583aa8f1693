"""Stage: the profile, resumed where an earlier run or a dead engine left it."""

from collections.abc import Callable

import numpy as np

from tabletune.core.grid import graph_boundaries, initial_grid, refine
from tabletune.core.surface import StepTimeSurface
from tabletune.measure.engine_errors import EngineDied
from tabletune.measure.profile_run import Estimates, ProfilePlan, ProfileState, run_profile
from tabletune.pipeline.profilers import profiler_of
from tabletune.pipeline.requests import sample_prompts, step_time_requests
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import ENGINE_TROUBLE
from tabletune.records.evidence import padded_tokens
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile

#: Boots of one profile: an engine that dies is replaced, and finished cells are kept.
BOOTS = 3
#: Batch sizes added to the grid: beside the tallest stairs, and where curves cross.
BOUNDARY_POINTS = 6
REFINE_POINTS = 4
PARTIAL = "profile-partial"


def stage_profile(
    run: RunContext, plan: CapturePlan, qualification: Qualification, tokens: np.ndarray
) -> Profile:
    """Step times of every cell in the envelope.

    Args:
        tokens: expected tokens E(K), float64[K_max + 1]: where goodput curves cross, the grid
            gets more points.

    Raises:
        EngineDied: the engine died `BOOTS` times; what was measured is kept for the next run.
    """
    if not run.fresh:
        kept = run.workspace.load(run.identity, Profile)
        if kept is not None and _same(kept, run, plan) and run.may_use(kept.measured_at):
            run.progress.say(f"profile of {kept.measured_at} reused ({len(kept.cells)} cells)")
            return kept
    state = _resumed(run, plan)
    begun_s = run.clock.now_s()
    for boot in range(1, BOOTS + 1):
        try:
            profile = _measure(run, plan, qualification, tokens, state, begun_s)
        except (EngineDied, *ENGINE_TROUBLE) as error:
            live = run.session.measuring_if_up()
            death = error if live is None else live.death("profiling", run.clock)
            if death is None:
                raise
            if boot == BOOTS:
                raise death from error
            run.progress.say(f"the engine died while profiling; cells are kept ({death})")
            run.session.stop_measuring()
        else:
            run.workspace.save(run.identity, profile)
            run.workspace.discard(run.identity, PARTIAL)
            return profile
    raise AssertionError("unreachable: the loop returns or raises")


def go_on_later(run: RunContext, plan: CapturePlan, profile: Profile) -> None:
    """A profile with gaps from which no table, or none that passes, was built is unfinished.

    The next run measures what is unusable again, and what the time did not suffice for; it
    would find the same otherwise, for as long as the profile is valid. Without such cells the
    fault is not the profile's, and it stays.
    """
    unusable = any(cell.status != "measured" for cell in profile.cells)
    measured = {cell.batch_size for cell in profile.cells}
    if unusable or not measured.issuperset(initial_grid(plan.max_num_seqs)):
        run.workspace.save(run.identity, profile, PARTIAL)
        run.workspace.discard(run.identity, Profile.KIND)


def _measure(
    run: RunContext,
    plan: CapturePlan,
    qualification: Qualification,
    tokens: np.ndarray,
    state: ProfileState,
    begun_s: float,
) -> Profile:
    live = run.session.measuring(plan)
    requests, prompt_tok = step_time_requests(
        run.request, sample_prompts(run.request), live, run.progress
    )
    profiler = profiler_of(run.request, live, requests, prompt_tok, run.clock, run.progress)
    fingerprint = run.target.fingerprint
    padded = padded_tokens(plan, fingerprint.engine, fingerprint.device, fingerprint.method)
    envelope = qualification.envelope
    grid = set(initial_grid(plan.max_num_seqs))
    if padded is not None:
        grid |= set(graph_boundaries(padded, plan.lengths, plan.max_num_seqs, BOUNDARY_POINTS))

    def lengths_at(batch_size: int) -> tuple[int, ...]:
        return tuple(k for k in plan.lengths if envelope.contains(batch_size, k))

    def more_points(estimates: Estimates) -> list[int]:
        surface = StepTimeSurface.from_cells(_sound(estimates), padded)
        return refine(surface, tokens, grid, padded, REFINE_POINTS)

    def profile(problems: dict[tuple[int, int], str]) -> Profile:
        return Profile(
            fingerprint=run.identity,
            plan=plan.content_hash,
            method=run.request.profile_method,
            step_kind=profiler.sample_kind,
            prompt_tok=max(1, round(prompt_tok)),
            context_tok=max(1, round(profiler.reference_tok)),
            cells=state.records(problems),
            wall_time_s=run.clock.now_s() - begun_s,
            measured_at=run.clock.utc(),
        )

    problems = run_profile(
        profiler.measurer,
        ProfilePlan(
            grid=tuple(sorted(grid)),
            lengths=lengths_at,
            refine=more_points,
            reference_tok=profiler.reference_tok,
            limits=profiler.limits,
            budget_s=run.request.profile_budget_s,
        ),
        state,
        profiler.sample_kind,
        run.clock,
        run.progress,
        lambda _: _keep(run, profile),
    )
    for (batch_size, length), problem in sorted(problems.items()):
        run.progress.say(f"cell b={batch_size} K={length} is not used: {problem}")
    return profile(problems)


def _keep(run: RunContext, profile: Callable[[dict[tuple[int, int], str]], Profile]) -> None:
    run.workspace.save(run.identity, profile({}), PARTIAL)


def _resumed(run: RunContext, plan: CapturePlan) -> ProfileState:
    """Cells of an unfinished profile under the same plan, by the same method."""
    partial = None if run.fresh else run.workspace.load(run.identity, Profile, PARTIAL)
    if partial is None or not _same(partial, run, plan) or not run.may_use(partial.measured_at):
        return ProfileState()
    run.progress.say(f"going on from {len(partial.cells)} cells of an unfinished profile")
    return ProfileState.from_records(c for c in partial.cells if c.samples_s)


def _same(kept: Profile, run: RunContext, plan: CapturePlan) -> bool:
    return kept.plan == plan.content_hash and kept.method == run.request.profile_method


def _sound(estimates: Estimates) -> Estimates:
    return {key: e for key, e in estimates.items() if e.step_time_s > 0}
