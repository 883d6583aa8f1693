"""A run as an experiment tracker shows it: parameters, metrics by batch size, tables, files."""

import json
import pathlib
from collections.abc import Iterator

import numpy as np

from tabletune.core.step_time import estimate_step_time
from tabletune.core.survival import survival
from tabletune.pipeline.build import Build, Evidence
from tabletune.pipeline.staged_run import StagedRun
from tabletune.records.evidence import expected_tokens_of, survival_counts
from tabletune.records.table import Table
from tabletune.records.tracking_entry import (
    Metric,
    TrackedRun,
    TrackedTable,
    TrackedVersion,
    TrackingEntry,
)
from tabletune.records.verdict import Verdict
from tabletune.records.vllm_format import to_vllm

#: A tracker takes many points badly; beyond this, batch sizes are thinned out evenly.
MOST_BATCH_SIZES = 96
#: Limits of MLflow for a parameter's value; the whole is among the documents.
MOST_PARAM_CHARS = 500


def experiment_name(deployment: str) -> str:
    """The experiment, and the registered model, of a deployment."""
    return f"tabletune.{deployment}"


def tracking_entry(
    deployment: str, key: str, run: StagedRun, report: pathlib.Path | None
) -> TrackingEntry:
    """Everything worth tracking of a run that was built, validated or not."""
    evidence, build, verdict = run.evidence, run.build_made, run.verdict
    stages = [_qualify(evidence), _profile(evidence)]
    if verdict is not None:
        stages.append(_validate(verdict))
    version = build.version
    name = experiment_name(deployment)
    return TrackingEntry(
        key=key,
        experiment=name,
        run=_whole(deployment, run, report),
        stages=tuple(stages),
        version=TrackedVersion(
            model=name,
            table_version=version.content_hash,
            tags={
                "table_version": version.content_hash,
                "schema": f"{version.KIND}/{version.FORMAT_VERSION}",
                "fingerprint": version.fingerprint,
                "engine": _engine(evidence),
                "passed": "unknown" if verdict is None else str(verdict.passed).lower(),
            },
        ),
        made_at=run.clock.utc(),
    )


def _whole(deployment: str, run: StagedRun, report: pathlib.Path | None) -> TrackedRun:
    evidence, build = run.evidence, run.build_made
    version, fingerprint = build.version, evidence.fingerprint
    params = {
        "deployment": deployment,
        "model": fingerprint.model.label,
        "drafter": "" if fingerprint.drafter is None else fingerprint.drafter.label,
        "method": fingerprint.method,
        "engine": _engine(evidence),
        "device": fingerprint.device.name,
        "fingerprint": fingerprint.identity[:16],
        "max_num_seqs": str(version.table.max_num_seqs),
        "ranges": _ranges_text(version.table),
    } | {f"range_{r.first}_{r.last}": str(r.draft_length) for r in version.table.ranges}
    metrics = [Metric(name=f"boot_{k}_s", value=v) for k, v in run.boot_times_s.items()]
    metrics += _candidate_metrics(build)
    return TrackedRun(
        name=f"{version.content_hash[:12]} {_engine(evidence)}",
        params={k: v[:MOST_PARAM_CHARS] for k, v in params.items()},
        metrics=tuple(metrics),
        tags={
            "tabletune.table_version": version.content_hash,
            "tabletune.fingerprint": fingerprint.identity,
            "tabletune.channel": run.request.channel,
            "tabletune.incumbent": "" if run.incumbent is None else run.incumbent.content_hash,
        },
        tables={"ranges.json": _ranges(version.table)},
        documents={
            "table/table.json": json.loads(version.to_json()),
            "table/vllm.json": to_vllm(version.table),
            "fingerprint.json": json.loads(fingerprint.to_json()),
        },
        files=_files(report),
    )


def _candidate_metrics(build: Build) -> Iterator[Metric]:
    """The candidate's draft length and predicted goodput, and every length's, by batch size."""
    grid = build.predicted_goodput_tok_s
    for batch_size in _thinned(len(grid)):
        length = build.version.table.draft_length(batch_size)
        yield Metric(name="draft_length", value=length, step=batch_size)
        for column, value in enumerate(grid[batch_size - 1]):
            if np.isfinite(value):
                yield Metric(name=f"predicted_tok_s/K{column}", value=float(value), step=batch_size)
                if column == length:
                    chosen = float(value)
                    yield Metric(name="predicted_tok_s/table", value=chosen, step=batch_size)


def _qualify(evidence: Evidence) -> TrackedRun:
    record = evidence.qualification
    rows = [(c.name, c.batch_size, c.draft_length, c.passed, c.evidence) for c in record.checks]
    return TrackedRun(
        name="qualify",
        params={
            "plan": evidence.plan.content_hash[:12],
            "graph_mode": evidence.plan.graph_mode,
            "lengths": ",".join(map(str, evidence.plan.lengths)),
        },
        metrics=(
            Metric(name="wall_time_s", value=record.wall_time_s),
            Metric(name="checks", value=len(record.checks)),
            Metric(name="checks_failed", value=sum(not c.passed for c in record.checks)),
            Metric(name="graphs", value=evidence.plan.graph_count),
        ),
        tables={
            "checks.json": TrackedTable(
                columns=("check", "batch size", "draft length", "passed", "evidence"),
                rows=tuple(rows),
            )
        },
    )


def _profile(evidence: Evidence) -> TrackedRun:
    record, prior = evidence.profile, evidence.prior
    metrics = [
        Metric(name="wall_time_s", value=record.wall_time_s),
        Metric(name="acceptance_wall_time_s", value=prior.wall_time_s),
        Metric(name="cells", value=len(record.cells)),
    ]
    for (batch_size, length), samples in record.samples_at_context().items():
        if len(samples) >= 2:
            estimate = estimate_step_time(samples, kind=record.step_kind)
            name = f"step_time_s/K{length}"
            metrics.append(Metric(name=name, value=float(estimate.step_time_s), step=batch_size))
    for position, share in enumerate(survival(survival_counts(prior.counts))):
        metrics.append(Metric(name="survival", value=float(share), step=position))
    for length, tokens in enumerate(expected_tokens_of(prior)):
        metrics.append(Metric(name="expected_tokens", value=float(tokens), step=length))
    return TrackedRun(
        name="profile",
        params={
            "profile_method": record.method,
            "context_tok": str(record.context_tok),
            "prompts": prior.prompts_hash[:16],
            "prompt_count": str(prior.prompt_count),
        },
        metrics=tuple(metrics),
    )


def _validate(verdict: Verdict) -> TrackedRun:
    metrics = [
        Metric(name="passed", value=float(verdict.passed)),
        Metric(name="wall_time_s", value=verdict.wall_time_s),
    ]
    for measured in verdict.measured:
        if measured.windows_tok_s:
            mean = sum(measured.windows_tok_s) / len(measured.windows_tok_s)
            name = f"measured_tok_s/{measured.policy}"
            metrics.append(Metric(name=name, value=mean, step=measured.concurrency))
    for ratio in verdict.ratios:
        name = f"ratio/{ratio.policy}"
        metrics.append(Metric(name=name, value=ratio.ratio, step=ratio.concurrency))
        metrics.append(Metric(name=f"{name}/low", value=ratio.low, step=ratio.concurrency))
    return TrackedRun(
        name="validate",
        params={name: str(value) for name, value in verdict.margins.model_dump().items()},
        metrics=tuple(metrics),
        tags={"tabletune.reasons": "; ".join(verdict.reasons)[:5000]},
        tables={"ratios.json": verdict_table(verdict)},
    )


def verdict_table(verdict: Verdict) -> TrackedTable:
    """The verdict's ratios as a table."""
    return TrackedTable(
        columns=("policy", "concurrency", "ratio", "low", "high"),
        rows=tuple(
            (r.policy, r.concurrency, round(r.ratio, 4), round(r.low, 4), round(r.high, 4))
            for r in verdict.ratios
        ),
    )


def _ranges(table: Table) -> TrackedTable:
    return TrackedTable(
        columns=("first", "last", "draft length", "predicted tok/s"),
        rows=tuple(
            (r.first, r.last, r.draft_length, r.predicted_goodput_tok_s) for r in table.ranges
        ),
    )


def _ranges_text(table: Table) -> str:
    return " ".join(f"{r.first}-{r.last}:{r.draft_length}" for r in table.ranges)


def _engine(evidence: Evidence) -> str:
    engine = evidence.fingerprint.engine
    return f"{engine.distribution} {engine.version}"


def _thinned(count: int) -> list[int]:
    """Batch sizes 1 … count, at most `MOST_BATCH_SIZES` of them, both ends included."""
    points = np.linspace(1, count, min(count, MOST_BATCH_SIZES))
    return sorted({round(point) for point in points})


def _files(report: pathlib.Path | None) -> dict[str, str]:
    """The report and its plots, by their names in the tracker."""
    if report is None:
        return {}
    plots = sorted(report.parent.rglob("*.png"))
    return {"report/report.html": str(report)} | {f"report/{p.name}": str(p) for p in plots}
