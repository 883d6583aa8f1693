"""How our flows end: named states, so that a list of runs says what happened."""

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
]


def ended(name: Outcome, message: str, **facts: Any) -> State[dict[str, Any]]:
    """A completed state called `name`; `facts` is what the flow returns.

    A table that a gate refuses is a result, not a failure of the flow.
    """
    return Completed(name=name, message=message, data={"outcome": name, "message": message} | facts)
