"""The batch-size axis that plots share: logarithmic, each whole size one unit wide."""

import math

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator


def edge_before(batch_size: int) -> float:
    """The axis position of the left edge of `batch_size`."""
    return batch_size - 0.5


def powers_up_to(largest: int) -> list[int]:
    """1, 2, 4, … and `largest` itself, without a power crowding it."""
    powers = [2**i for i in range(int(math.log2(largest)) + 1)]
    if powers[-1] != largest:
        if largest / powers[-1] < 1.4 and len(powers) > 1:
            powers.pop()
        powers.append(largest)
    return powers


def set_log_axis(axes: Axes, low: float, high: float, ticks: list[int]) -> None:
    """A base-2 logarithmic x axis with whole numbers as labels."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
