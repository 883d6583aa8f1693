"""A person's answer, asked for on the flow run's page."""

from prefect.exceptions import FlowPauseTimeout
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from pydantic import Field


class Approval(RunInput):
    """Whether the table may be promoted, by whom and why."""

    approve: bool = Field(default=False, description="Yes puts the table in force.")
    who: str = Field(default="", description="Your name, for the record.")
    reason: str = Field(default="", description="Why, for the record.")


def asked(description: str, timeout_s: int, poll_s: int = 5) -> Approval:
    """Wait for an answer; no answer in time is a no."""
    form = Approval.with_initial_data(description=description)
    try:
        answer = pause_flow_run(wait_for_input=form, timeout=timeout_s, poll_interval=poll_s)
    except FlowPauseTimeout:
        return Approval(who="nobody", reason=f"nobody answered within {timeout_s} s")
    return answer or Approval(who="nobody", reason="resumed without an answer")
