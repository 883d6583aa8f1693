"""Evidence for a table, from the step times recorded on an H200."""

import json
import pathlib

from tabletune.pipeline.build import Evidence
from tabletune.pipeline.plans import choose_plans
from tabletune.pipeline.request import RunRequest
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint, ModelFacts
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Cell, Profile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
RECORDED = GOLDEN / "h200_vllm0.32.0_qwen3-4b_eagle3_step_times.json"
MAX_NUM_SEQS = 96
NOW = "2026-01-02T03:04:05+00:00"


def h200_request(**values: object) -> RunRequest:
    """The deployment that the recorded step times belong to."""
    facts = {
        "model": "qwen3-4b",
        "drafter": "eagle3-head",
        "method": "eagle3",
        "engine": "vllm-0.32.0",
        "max_num_seqs": MAX_NUM_SEQS,
    }
    return RunRequest(**(facts | values))  # type: ignore[arg-type]


def h200_fingerprint() -> Fingerprint:
    model = ModelFacts(
        label="qwen3-4b", content="sha256:ab", architecture="Qwen3", vocabulary_size=9
    )
    return Fingerprint(
        device=DeviceFacts(
            platform="cuda",
            name="NVIDIA H200",
            count=1,
            capability="9.0",
            memory_bytes=141 * 2**30,
            driver="580.159.04",
        ),
        engine=EngineFacts(
            distribution="vllm", version="0.32.0", runner="V2", torch="2.13.0", python="3.12.3"
        ),
        model=model,
        method="eagle3",
        drafter=model.model_copy(update={"label": "eagle3-head"}),
        settings={"max_num_seqs": str(MAX_NUM_SEQS)},
    )


def h200_plan(request: RunRequest) -> CapturePlan:
    fingerprint = h200_fingerprint()
    return choose_plans(request, fingerprint.device, fingerprint.engine, request.all_lengths)[0]


def recorded_cells() -> tuple[Cell, ...]:
    """The recorded cells up to `MAX_NUM_SEQS`."""
    recorded = json.loads(RECORDED.read_text())
    return tuple(
        Cell(
            batch_size=entry["batch_size"],
            draft_length=entry["draft_length"],
            samples_s=tuple(entry["step_times_s"]),
            scheduled_tok=float(entry["batch_size"] * (entry["draft_length"] + 1)),
            context_tok=200.0,
        )
        for entry in recorded["raw"]
        if entry["batch_size"] <= MAX_NUM_SEQS
    )


def h200_evidence(request: RunRequest, forbidden: tuple[tuple[int, int], ...] = ()) -> Evidence:
    """Everything that a table is built from."""
    fingerprint, plan = h200_fingerprint(), h200_plan(request)
    everywhere = ((1, MAX_NUM_SEQS),)
    qualification = Qualification(
        fingerprint=fingerprint.identity,
        plan=plan.content_hash,
        checks=(),
        attempts=(),
        envelope=Envelope(
            allowed={str(k): everywhere for k in plan.lengths}, forbidden_transitions=forbidden
        ),
        wall_time_s=1.0,
        qualified_at=NOW,
    )
    profile = Profile(
        fingerprint=fingerprint.identity,
        plan=plan.content_hash,
        method="in_engine",
        step_kind="constant",
        prompt_tok=128,
        context_tok=384,
        cells=recorded_cells(),
        wall_time_s=1.0,
        measured_at=NOW,
    )
    prior = AcceptancePrior(
        fingerprint=fingerprint.identity,
        draft_length=4,
        source="synthetic",
        prompt_count=160,
        prompts_hash="ab",
        counts=PositionCounts(
            drafted_through=(10_000,) * 4,
            accepted_through=(7_200, 5_000, 3_400, 2_300),
            request_steps=10_000,
        ),
        wall_time_s=1.0,
        measured_at=NOW,
    )
    return Evidence(fingerprint, plan, qualification, profile, prior)
