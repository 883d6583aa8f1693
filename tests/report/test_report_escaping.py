"""Names come from outside: none of them may become markup, script or mathematics."""

import pathlib
from dataclasses import replace

import pytest
import report_sample
from report_page import ParsedPage

from tabletune.records.verdict import Measured, Ratio
from tabletune.report.markup import Html, escape, tag
from tabletune.report.report_input import ReportInput
from tabletune.report.write import write_report

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;$\\frac{$_^"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> ParsedPage:
    full = report_sample.full_report(model_label=HOSTILE)
    facts = full.fingerprint.model_copy(update={"settings": {HOSTILE: HOSTILE}, "method": HOSTILE})
    assert full.prior is not None
    assert full.verdict is not None
    assert full.qualification is not None
    assert full.profile is not None
    groups = {HOSTILE: report_sample.counts((0.5, 0.3, 0.2, 0.1), 100)}
    extra = Measured(policy=HOSTILE, concurrency=4, windows_tok_s=(100.0, 110.0))
    ratio = Ratio(policy=HOSTILE, concurrency=4, ratio=1.1, low=1.0, high=1.2)
    cells = tuple(
        cell.model_copy(update={"problem": HOSTILE, "status": "rejected", "samples_s": ()})
        if cell.batch_size == 2 else cell
        for cell in full.profile.cells
    )  # fmt: skip
    checks = tuple(
        check.model_copy(update={"name": HOSTILE, "evidence": HOSTILE, "passed": False})
        for check in full.qualification.checks[:2]
    )
    hostile: ReportInput = replace(
        full,
        title=HOSTILE,
        generated_at=HOSTILE,
        engine_args=HOSTILE,
        remarks=(HOSTILE,),
        fingerprint=facts,
        prior=full.prior.model_copy(update={"by_group": groups}),
        profile=full.profile.model_copy(update={"cells": cells}),
        qualification=full.qualification.model_copy(
            update={"checks": checks, "excluded": (HOSTILE,)}
        ),
        verdict=full.verdict.model_copy(
            update={
                "measured": (*full.verdict.measured, extra),
                "ratios": (*full.verdict.ratios, ratio),
                "reasons": (HOSTILE,),
            }
        ),
    )
    files = write_report(hostile, tmp_path_factory.mktemp("hostile"))
    return ParsedPage(files.html.read_text(encoding="utf-8"))


def test_hostile_names_stay_text(page: ParsedPage) -> None:
    assert page.count("script") == 1
    assert page.count("img") == page.count("image") == 0
    assert page.unbalanced == []
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert not any(name.startswith("on") for _, found in page.elements for name in found)


def test_hostile_names_are_shown_as_they_are(page: ParsedPage) -> None:
    for section in ("serve", "validation", "step-time", "survival", "qualification", "provenance"):
        assert HOSTILE in page.sections[section], section


def test_escape_leaves_html_alone_and_escapes_the_rest() -> None:
    assert escape("<b>") == "&lt;b&gt;"
    assert escape(Html("<b>")) == "<b>"
    assert tag("p", "a & b", class_='x"y') == '<p class="x&quot;y">a &amp; b</p>'


def test_a_line_break_in_a_name_cannot_close_the_document(tmp_path: pathlib.Path) -> None:
    full = replace(report_sample.failed_report(), title="</title></head>\n<body onload=x>")
    page = ParsedPage(write_report(full, tmp_path).html.read_text(encoding="utf-8"))
    assert page.count("body") == 1
    assert page.unbalanced == []
