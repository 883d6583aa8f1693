"""Writes a report into a folder: one HTML page and the plots as PNG files."""

import contextlib
import pathlib

from tabletune.durable_file import write_durably
from tabletune.report.report_input import ReportFiles, ReportInput

HTML_NAME = "report.html"


def write_report(report: ReportInput, folder: pathlib.Path) -> ReportFiles:
    """Write `report.html` and one PNG per plot that could be drawn into `folder`.

    The folder is made if need be. Files are replaced as a whole, so a reader never sees half
    a page; the same input gives the same bytes. PNG files of plots that this report does not
    have are removed, so that none is left from an earlier run.

    Raises:
        OSError: the folder or a file cannot be written.
    """
    # Importing matplotlib takes longer than most commands, which write no report.
    from tabletune.report.page import page
    from tabletune.report.plots import draw_plots

    drawn = draw_plots(report)
    text = page(report, drawn)
    folder.mkdir(parents=True, exist_ok=True)
    pngs: list[pathlib.Path] = []
    for name, data in drawn.pngs.items():
        write_durably(folder / f"{name}.png", data)
        pngs.append(folder / f"{name}.png")
    for name in drawn.missing:
        with contextlib.suppress(FileNotFoundError):
            (folder / f"{name}.png").unlink()
    write_durably(folder / HTML_NAME, text.encode("utf-8"))
    return ReportFiles(folder / HTML_NAME, tuple(pngs))
