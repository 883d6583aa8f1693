"""Reports written once for all tests of this folder."""

import pathlib

import pytest
import report_sample
from report_page import ParsedPage

from tabletune.report.report_input import ReportFiles, ReportInput
from tabletune.report.write import write_report


@pytest.fixture(scope="session")
def full() -> ReportInput:
    return report_sample.full_report()


@pytest.fixture(scope="session")
def full_files(full: ReportInput, tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return write_report(full, tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="session")
def full_page(full_files: ReportFiles) -> ParsedPage:
    return ParsedPage(full_files.html.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def cpu_page(tmp_path_factory: pytest.TempPathFactory) -> ParsedPage:
    folder: pathlib.Path = tmp_path_factory.mktemp("cpu")
    files = write_report(report_sample.cpu_report(), folder)
    return ParsedPage(files.html.read_text(encoding="utf-8"))
