"""The files: whole, valid, not blank, the same for the same input."""

import pathlib

import matplotlib
import matplotlib.image
import numpy as np
import pytest
import report_sample

from tabletune.report.plots import NAMES
from tabletune.report.report_input import ReportFiles, ReportInput, ReportInputError
from tabletune.report.write import write_report


def test_all_plots_are_valid_png_files_and_not_blank(full_files: ReportFiles) -> None:
    assert [path.stem for path in full_files.pngs] == list(NAMES)
    for path in full_files.pngs:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        pixels = matplotlib.image.imread(path)
        assert pixels.shape[1] > 1200
        inked = np.mean(np.abs(pixels[..., :3] - pixels[0, 0, :3]).max(axis=2) > 0.1)
        assert 0.005 < inked < 0.9, path.name


def test_the_same_input_gives_the_same_bytes(
    full: ReportInput, full_files: ReportFiles, tmp_path: pathlib.Path
) -> None:
    again = write_report(full, tmp_path)
    for first, second in zip(
        (full_files.html, *full_files.pngs), (again.html, *again.pngs), strict=True
    ):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_reader_s_matplotlib_settings_do_not_matter_and_are_left_alone(
    full: ReportInput, full_files: ReportFiles, tmp_path: pathlib.Path
) -> None:
    with matplotlib.rc_context({"font.size": 31, "axes.grid": True, "lines.linewidth": 9}):
        again = write_report(full, tmp_path)
        assert matplotlib.rcParams["font.size"] == 31
    assert again.html.read_bytes() == full_files.html.read_bytes()
    assert again.pngs[3].read_bytes() == full_files.pngs[3].read_bytes()


def test_plots_of_an_earlier_run_do_not_stay(tmp_path: pathlib.Path) -> None:
    write_report(report_sample.cpu_report(), tmp_path)
    assert (tmp_path / "goodput.png").exists()
    write_report(report_sample.failed_report(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html"]


def test_the_folder_is_made(tmp_path: pathlib.Path) -> None:
    files = write_report(report_sample.failed_report(), tmp_path / "a" / "b")
    assert files.html == tmp_path / "a" / "b" / "report.html"


def test_a_folder_that_is_a_file_is_an_os_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError, match="taken"):
        write_report(report_sample.failed_report(), tmp_path / "taken")


def test_arrays_must_fit_together() -> None:
    facts = report_sample.fingerprint()
    with pytest.raises(ReportInputError, match="one row for each of 2 batch sizes") as caught:
        ReportInput(title="", generated_at="", fingerprint=facts, batch_sizes=(1, 2),
                    predicted_goodput_tok_s=np.ones((3, 2)))  # fmt: skip
    assert (caught.value.field, caught.value.found) == ("predicted_goodput_tok_s", (3, 2))
    with pytest.raises(ReportInputError, match="rising batch sizes"):
        ReportInput(title="", generated_at="", fingerprint=facts, batch_sizes=(2, 1),
                    predicted_goodput_tok_s=np.ones((2, 2)))  # fmt: skip
    with pytest.raises(ReportInputError, match="max_num_seqs"):
        ReportInput(title="", generated_at="", fingerprint=facts, padded_tok=np.ones(3))
