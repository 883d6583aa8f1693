"""The profiler of a run's method: inside the engine, or from outside (the paper's)."""

from collections.abc import Sequence
from dataclasses import dataclass

from tabletune.core.plausibility import PlausibilityLimits
from tabletune.measure.clock import Clock
from tabletune.measure.load import LoadRequest
from tabletune.measure.profile_client import LONG_TOK, ClientProfiler
from tabletune.measure.profile_in_engine import BatchProfiler, ProfileOptions, StepKind
from tabletune.measure.profile_run import BatchMeasurer
from tabletune.measure.progress import Progress
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import LiveEngine

#: Step times are stated at the context of a request that has generated this many tokens.
REFERENCE_OUTPUT_TOK = 256

#: Model drafters do the same work every step; n-gram steps vary with what the text repeats,
#: so that their mean needs more steps and cannot be known as closely.
OPTIONS = {
    "constant": ProfileOptions(step_kind="constant", relative_halfwidth=0.02),
    "mixed": ProfileOptions(
        step_kind="mixed", relative_halfwidth=0.06, min_samples=24, max_samples=48
    ),
}
LIMITS = {
    "constant": PlausibilityLimits(max_relative_halfwidth=0.05, tolerance=0.10),
    "mixed": PlausibilityLimits(max_relative_halfwidth=0.15, tolerance=0.30),
}
#: Three quotients give wide intervals even where they agree within a few per cent.
CLIENT_LIMITS = PlausibilityLimits(max_relative_halfwidth=0.15, tolerance=0.30)


@dataclass(frozen=True)
class Profiler:
    """What measures a run's cells, and how its samples are read.

    Attributes:
        measurer: measures the cells of one batch size.
        sample_kind: see records/step_profile.py. A quotient over many steps is a mean already,
            so the client method's samples are ``constant`` with any drafter: their median.
        reference_tok: context length at which step times are stated. The client method's is
            the mean of its own requests, since three quotients show no growth with context.
        limits: what makes a cell unusable.
    """

    measurer: BatchMeasurer
    sample_kind: StepKind
    reference_tok: float
    limits: PlausibilityLimits


def profiler_of(
    request: RunRequest,
    live: LiveEngine,
    requests: Sequence[LoadRequest],
    prompt_tok: float,
    clock: Clock,
    progress: Progress,
) -> Profiler:
    """The profiler that `request.profile_method` names, on an engine with the plugin.

    prompt_tok: mean length of the requests' prompts in tokens.
    """
    api, model = live.api, live.model.name
    if request.profile_method == "client":
        client = ClientProfiler(api, model, requests, prompt_tok, api.pin, clock=clock)
        return Profiler(client, "constant", prompt_tok + LONG_TOK / 2, CLIENT_LIMITS)
    kind = "mixed" if request.step_kind == "mixed" else "constant"
    reference_tok = prompt_tok + min(REFERENCE_OUTPUT_TOK, requests[0].max_tokens / 2)
    in_engine = BatchProfiler(
        api, model, requests, prompt_tok, reference_tok, OPTIONS[kind], clock, progress
    )
    return Profiler(in_engine, kind, reference_tok, LIMITS[kind])
