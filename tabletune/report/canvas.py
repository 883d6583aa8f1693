"""A figure with a heading, fixed margins in inches, and no global matplotlib state."""

import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from tabletune.report.theme import Palette, VariablePalette

WIDE_IN, NARROW_IN = 9.2, 3.75
PNG_DPI = 180
PNG_MARGIN_IN = 0.2
SMALL, NORMAL, LARGE = 8.0, 9.0, 11.5

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": NORMAL,
    "svg.fonttype": "none",
    "svg.hashsalt": "tabletune",
    "hatch.linewidth": 0.6,
    "axes.unicode_minus": True,
    "path.simplify": True,
}


@contextmanager
def drawing_style() -> Iterator[None]:
    """matplotlib's defaults plus this report's, whatever the reader's own settings are."""
    with matplotlib.style.context(["default", _STYLE]):
        yield


class Canvas:
    """One figure. Heights and margins are in inches; `narrow` is the variant for phones."""

    def __init__(
        self, palette: Palette, narrow: bool, plot_height_in: float, heading: str, subtitle: str
    ) -> None:
        self.palette = palette
        self.narrow = narrow
        self.width_in = NARROW_IN if narrow else WIDE_IN
        heads = textwrap.wrap(heading, 36 if narrow else 90)
        lines = textwrap.wrap(subtitle, 52 if narrow else 125)
        header_in = 0.06 + 0.21 * len(heads) + 0.17 * len(lines) + 0.14
        self.plot_height_in = plot_height_in
        self.height_in = header_in + plot_height_in
        self.figure = Figure(figsize=(self.width_in, self.height_in))
        top = self.height_in - 0.2
        for line in heads:
            self.write(0.0, top, line, size=LARGE, weight="bold", colour="ink")
            top -= 0.21
        for line in lines:
            self.write(0.0, top, line, size=NORMAL, colour="muted")
            top -= 0.17

    def write(
        self,
        x_in: float,
        y_in: float,
        text: str,
        size: float = NORMAL,
        colour: str = "ink",
        weight: str = "normal",
        align: str = "left",
    ) -> None:
        """Put text at inches from the lower left corner; y is the baseline."""
        self.figure.text(
            x_in / self.width_in,
            y_in / self.height_in,
            text,
            fontsize=size,
            color=self.palette[colour],
            fontweight=weight,
            ha=align,
            va="baseline",
            parse_math=False,
        )

    def axes(self, left: float, bottom: float, right: float, height: float) -> Axes:
        """Axes from `left` to `width − right`, `height` high, without frame or ticks' marks."""
        width = self.width_in - left - right
        axes = self.figure.add_axes(
            (
                left / self.width_in,
                bottom / self.height_in,
                width / self.width_in,
                height / self.height_in,
            )
        )
        axes.set_facecolor("none")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(self.palette["muted"])
        axes.spines["bottom"].set_linewidth(0.8)
        axes.tick_params(
            axis="both",
            which="both",
            length=0,
            pad=4,
            labelsize=SMALL,
            labelcolor=self.palette["muted"],
        )
        axes.set_axisbelow(True)
        return axes

    def grid(self, axes: Axes, axis: str = "y") -> None:
        """Hairlines at the ticks of one axis."""
        axes.grid(True, axis=axis, color=self.palette["rule"], linewidth=0.7)  # pyright: ignore[reportArgumentType]

    def axis_label(self, axes: Axes, text: str) -> None:
        """Label of the x axis."""
        axes.set_xlabel(text, fontsize=SMALL, color=self.palette["muted"], labelpad=5)

    def label(
        self,
        axes: Axes,
        x: float,
        y: float,
        text: str,
        colour: str = "ink",
        size: float = SMALL,
        weight: str = "normal",
        ha: str = "left",
        *,
        va: str = "center",
        shift_pt: tuple[float, float] = (0.0, 0.0),
        patch: str = "",
    ) -> None:
        """Text at data coordinates, shifted by points, on a `patch` of a colour or bare."""
        note = axes.annotate(
            text,
            (x, y),
            xytext=shift_pt,
            textcoords="offset points",
            fontsize=size,
            color=self.palette[colour],
            fontweight=weight,
            ha=ha,
            va=va,
            annotation_clip=False,
            bbox={"facecolor": self.palette[patch], "edgecolor": "none", "pad": 1.5}
            if patch
            else None,
        )
        note.set_parse_math(False)


def to_png(figure: Figure, paper: str) -> bytes:
    """The figure as a PNG file on `paper`; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    width, height = figure.get_size_inches()
    frame = Bbox(
        [[-PNG_MARGIN_IN, -PNG_MARGIN_IN], [width + PNG_MARGIN_IN, height + PNG_MARGIN_IN]]
    )
    figure.savefig(
        buffer, format="png", dpi=PNG_DPI, facecolor=paper, bbox_inches=frame,
        metadata={"Software": "tabletune"},
    )  # fmt: skip
    return buffer.getvalue()


def to_svg(figure: Figure, palette: VariablePalette, prefix: str, description: str) -> str:
    """The figure as an inline SVG element that takes colours and font from the page.

    `prefix` makes its ids unique within the page; `description` is escaped HTML.
    """
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<style .*?</style>", "", svg, flags=re.S)  # it would apply to the whole page
    view_box = re.search(r'viewBox="([^"]+)"', svg)
    body = svg[svg.index(">") + 1 :]
    body = palette.to_variables(body)
    body = re.sub(r"font: (?:(bold|normal|\d+) )?([\d.]+px) [^;\"]*", _font, body)
    body = re.sub(r'<g id="(?:figure|axes|patch|text|line2d|matplotlib|xtick|ytick|'
                  r'[A-Za-z]*Collection)[^"]*">', "<g>", body)  # fmt: skip
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r"\n\s*", "\n", body)
    body = re.sub(r'="[^"]*\d\.\d{3,}[^"]*"', _two_decimals, body)
    box = view_box.group(1) if view_box else "0 0 100 100"
    return f'<svg viewBox="{box}" role="img" aria-label="{description}">{body.strip()}'


def _two_decimals(match: re.Match[str]) -> str:
    """An attribute's numbers to a hundredth of a point, which halves the page."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", match.group(0))


def _font(match: re.Match[str]) -> str:
    weight = f"; font-weight: {match.group(1)}" if match.group(1) else ""
    return f"font-size: {match.group(2)}{weight}"
