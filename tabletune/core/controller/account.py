"""The account that holds what exploring may cost."""

from __future__ import annotations


class ExplorationAccount:
    """A bucket of lost seconds that fills at `rate` and holds `burst_s`.

    Within any time w at most burst_s + rate * w is spent. What turns out dearer than thought
    is charged afterwards, and may leave a debt, which has to be filled before anything else.
    """

    def __init__(self, rate: float, burst_s: float) -> None:
        self._rate, self._burst_s = rate, burst_s
        self.balance_s = burst_s
        self.spent_s = 0.0

    def fill(self, busy_s: float) -> None:
        """The engine served for so long."""
        self.balance_s = min(self._burst_s, self.balance_s + self._rate * max(busy_s, 0.0))

    def can_pay(self, cost_s: float) -> bool:
        return 0.0 <= cost_s <= self.balance_s

    def pay(self, cost_s: float) -> None:
        """Charge a cost, also one that was not foreseen."""
        self.balance_s -= cost_s
        self.spent_s += cost_s
