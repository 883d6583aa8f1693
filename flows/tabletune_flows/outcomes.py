"""How our flows end: named states, so that a list of runs says what happened."""

from collections.abc import Sequence
from typing import Any, Literal

from prefect.client.schemas.objects import State
from prefect.states import Completed

Outcome = Literal[
    "Promoted",
    "Unchanged",
    "Refused",
    "Sent back",
    "Rolled back",
    "Compared",
    "Confirmed",
    "Outdated",
    "Unclear",
    "Upgrade compared",
    "Looked",
    "Problems",
    "Harvested",
    "Pruned",
    "Prune planned",
]


def ended(
    name: Outcome, message: str, reasons: Sequence[str] = (), **facts: Any
) -> State[dict[str, Any]]:
    """A completed state called `name`; `facts` and the reasons are what the flow returns.

    A table that a gate refuses is a result, not a failure of the flow.
    """
    said = f"{message}: {'; '.join(reasons)}" if reasons else message
    data = {"outcome": name, "message": message, "reasons": list(reasons)}
    return Completed(name=name, message=said, data=data | facts)
