"""The page: sections in order, self-contained, and every number where it belongs."""

import pathlib
from dataclasses import replace

import numpy as np
import pytest
import report_sample
from report_page import ParsedPage

from tabletune.records.step_profile import Cell
from tabletune.records.table import table_from_dense
from tabletune.records.verdict import Measured, Ratio
from tabletune.report.report_input import ReportFiles, ReportInput
from tabletune.report.write import write_report

SECTIONS = ["table", "serve", "validation", "goodput", "step-time", "survival", "difference",
            "capture", "qualification", "provenance"]  # fmt: skip


def page_of(report: ReportInput, folder: pathlib.Path) -> ParsedPage:
    return ParsedPage(write_report(report, folder).html.read_text(encoding="utf-8"))


def test_sections_come_in_order_and_are_linked(full_page: ParsedPage) -> None:
    assert list(full_page.sections) == SECTIONS
    links = [a["href"] for tag, a in full_page.elements if tag == "a"]
    assert links == [f"#{name}" for name in SECTIONS]


def test_tags_are_balanced_and_ids_unique(full_page: ParsedPage, cpu_page: ParsedPage) -> None:
    for page in (full_page, cpu_page):
        assert page.unbalanced == []
        assert len(page.ids) == len(set(page.ids))


def test_nothing_is_loaded_from_elsewhere(full_page: ParsedPage, cpu_page: ParsedPage) -> None:
    for page in (full_page, cpu_page):
        assert "http://" not in page.source
        assert "https://" not in page.source
        assert page.count("link") == page.count("img") == page.count("iframe") == 0
        ids = set(page.ids)
        assert page.references
        assert all(ref.startswith("#") and ref[1:] in ids for ref in page.references)


def test_the_policy_allows_exactly_the_page_s_own_script(full_page: ParsedPage) -> None:
    policies = [a["content"] for tag, a in full_page.elements
                if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none';")
    assert "script-src 'sha256-" in policies[0]
    assert full_page.count("script") == 1


def test_the_page_is_small(full_files: ReportFiles) -> None:
    assert full_files.html.stat().st_size < 1_000_000


def test_every_placeholder_colour_became_a_variable(full_page: ParsedPage) -> None:
    svg = full_page.source[full_page.source.index("<svg") :]
    assert "#00fe" not in svg
    assert "var(--k4)" in svg
    assert "var(--ink)" in svg


def test_each_plot_has_a_wide_and_a_narrow_variant(
    full_page: ParsedPage, full_files: ReportFiles
) -> None:
    drawn = [a for tag, a in full_page.elements if tag == "svg"]
    assert len(drawn) == 2 * len(full_files.pngs)
    assert all(a["role"] == "img" and a["aria-label"] for a in drawn)


def test_headline_names_what_was_tuned_and_the_verdict(full_page: ParsedPage) -> None:
    assert "Qwen3-4B shape with EAGLE-3 drafter (eagle3) on 1 × NVIDIA H200" in full_page.text
    assert "Passed" in full_page.text
    assert "97% were required" in full_page.text


def test_table_rows_have_predictions(full: ReportInput, full_page: ParsedPage) -> None:
    assert full.table is not None
    for part in full.table.ranges:
        assert f"{part.first}–{part.last}" in full_page.sections["table"]
    assert full.table.ranges[0].predicted_goodput_tok_s is not None
    assert "6,840" in full_page.sections["table"]


def test_serve_flags_are_shown_exactly(full: ReportInput, full_page: ParsedPage) -> None:
    assert full.engine_args in full_page.sections["serve"]


def test_step_times_name_the_cell_that_is_not_used(full_page: ParsedPage) -> None:
    text = full_page.sections["step-time"]
    assert "11% faster than K = 0" in text
    assert "13.9" in text  # b = 128, K = 4, ms


def test_synthetic_acceptance_and_dummy_weights_are_named(full_page: ParsedPage) -> None:
    assert "dummy weights" in full_page.text
    assert "Acceptance is synthetic" in full_page.text
    assert "synthetic" in full_page.sections["provenance"]


def test_proposal_rate_is_named_where_below_one(
    full_page: ParsedPage, cpu_page: ParsedPage
) -> None:
    assert "34% of the request-steps" in cpu_page.sections["survival"]
    assert "Proposal rate" in cpu_page.sections["survival"]
    assert "Proposal rate" not in full_page.sections["survival"]


def test_an_engine_without_graphs_says_so(cpu_page: ParsedPage) -> None:
    assert "without CUDA graphs" in cpu_page.sections["capture"]


def test_a_processor_has_cores_not_devices(cpu_page: ParsedPage) -> None:
    assert "on 2 cores of AMD EPYC 7763" in cpu_page.text


def test_qualification_gives_evidence(full_page: ParsedPage) -> None:
    text = full_page.sections["qualification"]
    assert "illegal memory access" in text
    assert "median step 21.8 ms" in text
    assert "crashes at batch sizes from 32" in text


def test_sizes_for_joining_prompts_are_told(tmp_path: pathlib.Path) -> None:
    report = report_sample.full_report()
    assert report.plan is not None
    widest = report.plan.max_num_seqs * (report.plan.max_draft_length + 1)
    sizes = (*report.plan.capture_sizes, widest + 100, 1400)
    changes = {"graph_mode": "FULL_AND_PIECEWISE", "capture_sizes": sizes}
    plan = report.plan.model_copy(update=changes)
    page = page_of(replace(report, plan=plan), tmp_path)
    text = page.sections["capture"]
    assert f"The widest decode step has {widest:,} tokens." in text
    assert f"The sizes above it, {widest + 100:,} and 1,400, are for steps in which" in text
    without = page_of(report, tmp_path).sections["capture"]
    assert "widest decode step" not in without


def test_a_failed_verdict_says_why(tmp_path: pathlib.Path) -> None:
    page = page_of(report_sample.holes_report(), tmp_path)
    assert "must not be promoted: at concurrency 64 it reaches 90" in page.text
    assert "For trying it out only" in page.sections["serve"]
    assert "falls short" in page.sections["validation"]
    assert "the table's choice has no graph" in page.sections["capture"]


def test_records_of_another_fingerprint_are_pointed_out(
    full: ReportInput, tmp_path: pathlib.Path
) -> None:
    assert full.profile is not None
    other = full.profile.model_copy(update={"fingerprint": "ff" * 32})
    page = page_of(replace(full, profile=other), tmp_path)
    assert "The profile was made under another fingerprint (ffffffffffff)" in page.text


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("plan", "padded_tok"), "No capture plan was made."),
        (("padded_tok",), "Coverage and padding of this plan were not predicted."),
        (("qualification", "incumbent"), "This engine was not qualified"),
        (("profile",), "No step times were measured."),
        (("prior", "predicted_goodput_tok_s"), "No goodput could be predicted"),
        (("version",), "No table came out of this run"),
        (("verdict",), "The table has not been validated"),
    ],
)
def test_what_is_missing_is_said(
    full: ReportInput, parts: tuple[str, ...], said: str, tmp_path: pathlib.Path
) -> None:
    page = page_of(replace(full, **dict.fromkeys(parts)), tmp_path)
    assert list(page.sections) == SECTIONS
    assert all(len(text.strip()) > 30 for text in page.sections.values())
    assert said in page.text
    assert "None" not in page.text
    assert "nan" not in page.text.lower().split()


def test_a_run_without_table_is_a_clear_report(tmp_path: pathlib.Path) -> None:
    files = write_report(report_sample.failed_report(), tmp_path)
    page = ParsedPage(files.html.read_text(encoding="utf-8"))
    assert files.pngs == ()
    assert "ended without a table" in page.text
    assert "the engine died in boot" in page.sections["qualification"]
    assert "No step times were measured." in page.sections["step-time"]


def test_the_smallest_report_can_be_drawn(full: ReportInput, tmp_path: pathlib.Path) -> None:
    """One batch size, one length, one concurrency, one window: no axis may collapse."""
    assert full.version is not None
    assert full.profile is not None
    assert full.verdict is not None
    table = table_from_dense([0, 1], 1)
    cell = full.profile.cells[0].model_copy(update={"samples_s": (0.004,)})
    tiny = replace(
        full,
        plan=None,
        version=full.version.model_copy(update={"table": table}),
        incumbent=table_from_dense([0, 0], 1),
        profile=full.profile.model_copy(update={"cells": (cell,)}),
        verdict=full.verdict.model_copy(
            update={
                "measured": (Measured(policy="candidate", concurrency=1, windows_tok_s=(9.0,)),),
                "ratios": (Ratio(policy="fixed-0", concurrency=1, ratio=9.0, low=0.0, high=40.0),),
            }
        ),
        batch_sizes=(1,),
        predicted_goodput_tok_s=np.array([[np.nan, 250.0]]),
        padded_tok=None,
    )
    files = write_report(tiny, tmp_path)
    page = ParsedPage(files.html.read_text(encoding="utf-8"))
    assert [path.stem for path in files.pngs] == [
        "table", "ratios", "throughput", "goodput", "step_time", "survival", "difference",
    ]  # fmt: skip
    assert "uncertain" in page.sections["step-time"]


def test_a_large_report_stays_below_two_megabytes(
    full: ReportInput, tmp_path: pathlib.Path
) -> None:
    largest, longest = 512, 8
    sizes = range(1, largest + 1)
    rng = np.random.default_rng(5)
    assert full.profile is not None
    assert full.plan is not None
    cells = tuple(
        Cell(batch_size=b, draft_length=k, samples_s=(0.004 + 1e-5 * b * (k + 1),) * 8,
             scheduled_tok=float(b), context_tok=1.0)
        for b in range(1, largest + 1, 12) for k in range(longest + 1)
    )  # fmt: skip
    big = replace(
        full,
        profile=full.profile.model_copy(update={"cells": cells}),
        plan=full.plan.model_copy(update={"lengths": tuple(range(longest + 1))}),
        batch_sizes=tuple(sizes),
        predicted_goodput_tok_s=rng.uniform(100, 30_000, (largest, longest + 1)),
        padded_tok=np.array([[b * (k + 1) * rng.choice([1.0, 1.07, 1.4, np.nan])
                              for k in range(longest + 1)] for b in sizes]),
    )  # fmt: skip
    files = write_report(big, tmp_path)
    assert files.html.stat().st_size < 2_000_000
