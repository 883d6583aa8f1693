"""Qualify a running engine under one capture plan: for the pipeline and for benchmarks alike."""

from collections.abc import Collection

from tabletune.measure.clock import Clock
from tabletune.measure.engine_errors import EngineDied
from tabletune.measure.progress import Progress
from tabletune.measure.qualify import qualify
from tabletune.measure.qualify_options import QualifyOptions
from tabletune.measure.qualify_result import QualificationResult
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.requests import sample_prompts, step_time_requests
from tabletune.pipeline.session import LiveEngine
from tabletune.records.plan import CapturePlan


def qualify_plan(
    request: RunRequest,
    live: LiveEngine,
    plan: CapturePlan,
    *,
    clock: Clock,
    progress: Progress,
    options: QualifyOptions | None = None,
    covered: Collection[tuple[int, int]] | None = None,
) -> QualificationResult:
    """Try everything that a table under `plan` may make the engine do.

    Args:
        live: a measuring engine that was booted with `plan`; it may die here.
        options: None chooses by the engine's pace.
        covered: the (batch size, draft length) pairs that have a graph; None for all.

    Returns:
        The result, also when the engine crashed, hung or refused the requests.

    Raises:
        PromptFileError: the request's prompts cannot be used.
    """
    requests, _ = step_time_requests(request, sample_prompts(request), live, progress)
    progress.start("qualify")
    return qualify(
        live.api,
        live.model.name,
        requests,
        plan.lengths,
        plan.max_num_seqs,
        clock=clock,
        progress=progress,
        died=lambda: _died(live),
        step_kind="mixed" if request.step_kind == "mixed" else "constant",
        options=options,
        covered=covered,
        check_output=not request.synthetic,
    )


def _died(live: LiveEngine) -> str | None:
    """The log's last lines once the engine is gone.

    After its core was killed, vLLM's server was seen to stay for a minute, answering nothing:
    what it logged tells sooner than its end.
    """
    try:
        live.engine.check("qualifying")
    except EngineDied as death:
        how = "a fatal error" if death.exit_status is None else f"exit status {death.exit_status}"
        return f"{how}; " + " | ".join(live.engine.log_tail(8))
    return None
