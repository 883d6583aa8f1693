"""All plots of a report: drawn once for PNG and twice, wide and narrow, for the page."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from tabletune.report import (
    figure_capture,
    figure_difference,
    figure_goodput,
    figure_ratios,
    figure_step_time,
    figure_survival,
    figure_table,
    figure_throughput,
)
from tabletune.report.canvas import drawing_style, to_png, to_svg
from tabletune.report.markup import Html, escape, tag
from tabletune.report.report_input import ReportInput
from tabletune.report.theme import LightPalette, Palette, Theme, VariablePalette


@dataclass(frozen=True)
class _Plot:
    """What each figure module offers."""

    name: str
    missing: Callable[[ReportInput], str]
    describe: Callable[[ReportInput], str]
    draw: Callable[[ReportInput, Palette, bool], Figure]


_PLOTS = tuple(
    _Plot(module.NAME, module.missing, module.describe, module.draw)
    for module in (
        figure_table,
        figure_ratios,
        figure_throughput,
        figure_goodput,
        figure_step_time,
        figure_survival,
        figure_difference,
        figure_capture,
    )
)
NAMES = tuple(plot.name for plot in _PLOTS)


@dataclass(frozen=True)
class DrawnPlots:
    """The plots that could be drawn, and in words why others could not, by name.

    `pages` holds the figure element for the page, `pngs` the PNG file.
    """

    pages: dict[str, Html]
    pngs: dict[str, bytes]
    missing: dict[str, str]

    def element(self, name: str) -> Html:
        """The figure, or the sentence that stands for it."""
        if name in self.pages:
            return self.pages[name]
        return tag("p", self.missing[name], class_="missing")


def draw_plots(report: ReportInput) -> DrawnPlots:
    """Draw every plot that this report has the numbers for."""
    theme = Theme(report.max_draft_length)
    light, variables = LightPalette(theme), VariablePalette(theme)
    drawn = DrawnPlots({}, {}, {})
    with drawing_style():
        for plot in _PLOTS:
            reason = plot.missing(report)
            if reason:
                drawn.missing[plot.name] = reason
                continue
            drawn.pngs[plot.name] = to_png(plot.draw(report, light, False), light["paper"])
            words = escape(plot.describe(report))
            variants = [
                tag("div", Html(to_svg(plot.draw(report, variables, narrow), variables,
                                       f"{plot.name}-{kind}", words)), class_=kind)
                for kind, narrow in (("wide", False), ("narrow", True))
            ]  # fmt: skip
            drawn.pages[plot.name] = tag("figure", *variants)
    return drawn
