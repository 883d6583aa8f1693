"""Coverage and padding of the capture plan over batch size and draft length."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from tabletune.report.batch_axis import edge_before, powers_up_to, set_log_axis
from tabletune.report.canvas import SMALL, Canvas
from tabletune.report.report_input import FloatArray, ReportInput
from tabletune.report.theme import Palette

NAME = "capture"
#: Upper bound of the padding share, colour, words.
CLASSES = (
    (0.0, "h0", "none"),
    (0.05, "h3", "to 5%"),
    (0.10, "h6", "to 10%"),
    (0.25, "h9", "to 25%"),
    (float("inf"), "h13", "above 25%"),
)


def missing(report: ReportInput) -> str:
    """Why there is nothing to draw; empty when there is."""
    plan = report.plan
    if plan is None:
        return "No capture plan was made."
    on_cpu = report.fingerprint.device.platform == "cpu"
    if on_cpu or plan.graph_mode == "NONE" or not plan.capture_sizes:
        return (
            "This engine runs without CUDA graphs, so nothing is captured or padded: every batch "
            "size runs with every draft length as it is."
        )
    if report.padded_tok is None:
        return "Coverage and padding of this plan were not predicted."
    return ""


def padding_share(report: ReportInput) -> FloatArray | None:
    """Padded over scheduled tokens minus 1, float64[max_num_seqs, K + 1]; NaN without graph."""
    if report.padded_tok is None:
        return None
    rows, columns = report.padded_tok.shape
    scheduled = np.arange(1, rows + 1)[:, None] * np.arange(1, columns + 1)[None, :]
    return report.padded_tok / scheduled - 1


def describe(report: ReportInput) -> str:
    """The figure in a sentence, for readers who cannot see it."""
    return (
        "For each draft length of the plan and each batch size: whether a captured graph fits "
        "the step and by how much it is padded; the table's choice is outlined."
    )


def draw(report: ReportInput, palette: Palette, narrow: bool) -> Figure:
    """One lane per draft length; the table's choice outlined."""
    share = padding_share(report)
    assert share is not None  # `missing` was asked first
    assert report.plan is not None
    lengths = [k for k in report.plan.lengths if k < share.shape[1]]
    lane_in = 0.34
    key_in = 0.62 if narrow else 0.36
    canvas = Canvas(
        palette, narrow, lane_in * len(lengths) + 0.58 + key_in, "Captured graphs and padding",
        "tokens added by padding, as a share of the tokens scheduled; outlined: the table's choice",
    )  # fmt: skip
    axes = canvas.axes(0.55, 0.5, 0.12, lane_in * len(lengths))
    last = share.shape[0]
    set_log_axis(axes, edge_before(1), last + 0.5, powers_up_to(last))
    axes.set_ylim(len(lengths) - 0.5, -0.5)
    axes.set_yticks(range(len(lengths)), [f"K = {k}" for k in lengths])
    axes.spines["bottom"].set_visible(False)
    canvas.axis_label(axes, "batch size (requests per engine step)")
    _lanes(canvas, axes, share, lengths)
    _outline(canvas, axes, report, lengths)
    _key(canvas, bool(np.isnan(share[:, lengths]).any()), 0.5 + lane_in * len(lengths) + 0.1)
    return canvas.figure


def _class(value: float) -> int:
    if np.isnan(value):
        return -1
    return next(i for i, (bound, _, _) in enumerate(CLASSES) if value <= bound + 1e-9)


def _lanes(canvas: Canvas, axes: Axes, share: FloatArray, lengths: list[int]) -> None:
    boxes: dict[int, list[Path]] = {}
    for lane, length in enumerate(lengths):
        kinds = [_class(value) for value in share[:, length]]
        start = 0
        for i in range(1, len(kinds) + 1):
            if i == len(kinds) or kinds[i] != kinds[start]:
                left, right = edge_before(start + 1), i + 0.5
                corners = [(left, lane - 0.42), (right, lane - 0.42), (right, lane + 0.42),
                           (left, lane + 0.42), (left, lane - 0.42)]  # fmt: skip
                boxes.setdefault(kinds[start], []).append(Path(corners, closed=True))
                start = i
    # One path per class: thousands of rectangles would make the page large.
    for kind, rectangles in sorted(boxes.items()):
        patch = PathPatch(Path.make_compound_path(*rectangles), linewidth=0.15)
        if kind < 0:
            fail = canvas.palette["fail"]
            patch.set(facecolor="none", edgecolor=fail, linewidth=0, hatch="/////")
        else:
            patch.set_color(canvas.palette[CLASSES[kind][1]])
        axes.add_patch(patch)


def _outline(canvas: Canvas, axes: Axes, report: ReportInput, lengths: list[int]) -> None:
    for part in report.table.ranges if report.table else ():
        if part.draft_length in lengths:
            left, right = edge_before(part.first), part.last + 0.5
            axes.add_patch(
                Rectangle((left, lengths.index(part.draft_length) - 0.42), right - left, 0.84,
                          facecolor="none", edgecolor=canvas.palette["ink"], linewidth=1.8,
                          clip_on=False, zorder=5)
            )  # fmt: skip


def _key(canvas: Canvas, holes: bool, bottom_in: float) -> None:
    """Swatches with words, in the order of the scale."""
    entries = [(colour, words) for _, colour, words in CLASSES]
    if holes:
        entries.append(("fail", "no graph fits"))
    x, y = 0.55, bottom_in + (0.28 if canvas.narrow else 0.02)
    canvas.write(0.0, y, "padding", SMALL, "muted")
    for colour, words in entries:
        step = 0.28 + 0.072 * len(words)
        if x + step > canvas.width_in:
            x, y = 0.55, y - 0.24
        hole = words.startswith("no graph")
        canvas.figure.add_artist(
            Rectangle(
                (x / canvas.width_in, (y - 0.02) / canvas.height_in), 0.14 / canvas.width_in,
                0.14 / canvas.height_in, transform=canvas.figure.transFigure,
                facecolor="none" if hole else canvas.palette[colour],
                edgecolor=canvas.palette["fail" if hole else "rule"], linewidth=0 if hole else 0.5,
                hatch="/////" if hole else None,
            )
        )  # fmt: skip
        canvas.write(x + 0.19, y, words, SMALL, "muted")
        x += step + 0.1
