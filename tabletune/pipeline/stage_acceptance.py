"""Stage: the acceptance prior on sample prompts."""

from tabletune.measure.acceptance import measure_acceptance
from tabletune.pipeline.requests import natural_renderer, sample_prompts
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import ENGINE_TROUBLE
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.plan import CapturePlan

#: Open requests while acceptance is counted; counting needs no particular batch size.
CONCURRENCY = 16
#: Output tokens of each prompt.
OUTPUT_TOK = 64


def stage_acceptance(run: RunContext, plan: CapturePlan) -> AcceptancePrior:
    """The prior at the longest length of the plan.

    Raises:
        AcceptanceError: nothing was drafted.
        EngineError: the engine did not start, or died.
    """
    if not run.fresh:
        kept = run.workspace.load(run.identity, AcceptancePrior)
        # A harvest is chosen elsewhere: here it would be used although it is too old.
        sampled = kept is not None and not kept.from_live_traffic
        same = kept is not None and sampled and kept.draft_length == max(plan.lengths)
        if kept and same and run.may_use(kept.measured_at):
            run.progress.say(f"acceptance of {kept.measured_at} reused")
            return kept
    live = run.session.measuring(plan)
    try:
        prior = measure_acceptance(
            live.api,
            live.model.name,
            sample_prompts(run.request),
            max(plan.lengths),
            min(CONCURRENCY, plan.max_num_seqs),
            render=natural_renderer(live, run.progress, OUTPUT_TOK),
            fingerprint=run.identity,
            progress=run.progress,
            clock=run.clock,
            synthetic=run.request.synthetic,
        )
    except ENGINE_TROUBLE as error:
        death = live.death("measuring acceptance", run.clock)
        if death is not None:
            raise death from error
        raise
    run.workspace.save(run.identity, prior)
    return prior
