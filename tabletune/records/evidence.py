"""From records to core objects: what a table is judged by, in the pipeline and in the plugin."""

from __future__ import annotations

from tabletune.core import capture
from tabletune.core.capture_settings import Runner
from tabletune.core.controller.promoted import Promoted
from tabletune.core.counts import SurvivalCounts
from tabletune.core.goodput import expected_tokens
from tabletune.core.long_run import at_long_run
from tabletune.core.scatter import smooth_cells
from tabletune.core.step_time import estimate_step_time
from tabletune.core.surface import PaddedTokens, StepTimeSurface
from tabletune.core.survival import proposal_rate, survival
from tabletune.core.words import FloatArray
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion

__all__ = [
    "PaddedTokens",
    "expected_tokens_of",
    "graph_settings",
    "padded_tokens",
    "promoted_of",
    "runner_of",
    "surface_and_scatter",
    "surface_of",
    "survival_counts",
]


#: A drafter that proposes a last guess at least so often always fills its drafts: what is missing
#: are requests' first steps.
FILLED = 0.95


def survival_counts(counts: PositionCounts) -> SurvivalCounts:
    """The record's counts for the core."""
    return SurvivalCounts(
        list(counts.drafted_through), list(counts.accepted_through), counts.request_steps
    )


def surface_of(
    profile: Profile, padded: PaddedTokens | None, prior: AcceptancePrior | None = None
) -> StepTimeSurface:
    """The step-time surface of the profile's usable cells, without their scatter."""
    return surface_and_scatter(profile, padded, prior)[0]


def surface_and_scatter(
    profile: Profile, padded: PaddedTokens | None, prior: AcceptancePrior | None = None
) -> tuple[StepTimeSurface, float]:
    """The surface, and how far its cells scattered beside their intervals (core/scatter.py).

    prior: where the drafter often proposes less than it may, step times are brought to the
        tokens that it proposes in the long run (core/long_run.py); None: as measured.
    """
    used = {
        (cell.batch_size, cell.draft_length): cell
        for cell in profile.cells
        if cell.status == "measured" and len(cell.samples_s) >= 2
    }
    samples = profile.samples_at_context()
    cells = {at: estimate_step_time(samples[at], kind=profile.step_kind) for at in used}
    if prior is not None:
        rate = proposal_rate(survival_counts(prior.counts))
        if rate[-1] < FILLED:
            tokens = {at: cell.scheduled_tok for at, cell in used.items()}
            cells = at_long_run(cells, tokens, rate)
    in_graphs = {at: c for at, c in cells.items() if padded is None or padded(*at)}
    smooth, scatter = smooth_cells(in_graphs)
    return StepTimeSurface.from_cells(smooth, padded), scatter


def expected_tokens_of(prior: AcceptancePrior) -> FloatArray:
    """E(K) for K = 0 … K_max as float64[K_max + 1]."""
    counts = survival_counts(prior.counts)
    return expected_tokens(survival(counts), proposal_rate(counts))


def padded_tokens(
    plan: CapturePlan, engine: EngineFacts, device: DeviceFacts, method: str
) -> PaddedTokens | None:
    """(b, K) → tokens that the step is padded to; None for an engine without graphs."""
    if device.platform == "cpu" or plan.graph_mode == "NONE":
        return None
    prediction = capture.predict_graphs(graph_settings(plan, plan.lengths, engine, device, method))
    return prediction.padded_tokens


def graph_settings(
    plan: CapturePlan,
    lengths: tuple[int, ...],
    engine: EngineFacts,
    device: DeviceFacts,
    method: str,
) -> capture.GraphSettings:
    """What decides the graphs of an engine under `plan` whose table names `lengths`."""
    return capture.GraphSettings(
        graph_mode=plan.graph_mode,
        capture_sizes=plan.capture_sizes,
        max_num_seqs=plan.max_num_seqs,
        lengths=lengths,
        max_draft_length=plan.max_draft_length,
        version=engine.version,
        runner=runner_of(engine),
        method=method,
        platform="cpu" if device.platform == "cpu" else "gpu",
    )


def runner_of(engine: EngineFacts) -> Runner:
    """The model runner as the capture planner names it."""
    return "v1" if engine.runner == "V1" else "v2"


def promoted_of(
    version: TableVersion,
    fingerprint: Fingerprint,
    profile: Profile,
    prior: AcceptancePrior,
    max_num_seqs: int | None = None,
    max_tpot_s: float | None = None,
) -> Promoted:
    """A table version with its evidence, as the controller takes it.

    max_num_seqs: of the engine, where it is below the table's. max_tpot_s: a limit of the
    engine's own, in place of the version's.

    Raises:
        CoreError: the table, the envelope and max_num_seqs do not fit together.
    """
    size = min(max_num_seqs or version.table.max_num_seqs, version.table.max_num_seqs)
    padded = padded_tokens(version.plan, fingerprint.engine, fingerprint.device, fingerprint.method)
    return Promoted(
        lengths=tuple(version.table.dense()[1 : size + 1]),
        usable=version.envelope.lengths,
        surface=surface_of(profile, padded, prior),
        prior=survival_counts(prior.counts),
        envelope=version.envelope.contains,
        max_num_seqs=size,
        max_draft_length=version.table.max_draft_length,
        forbidden_transitions=version.envelope.forbidden_transitions,
        version=version.content_hash,
        max_tpot_s=version.max_tpot_s if max_tpot_s is None else max_tpot_s,
    )
