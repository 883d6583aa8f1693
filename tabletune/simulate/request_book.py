"""All requests of a simulation, one list per fact."""

from __future__ import annotations

from math import nan

import numpy as np

from tabletune.simulate.result import RequestLog


class RequestBook:
    """Lists indexed by request number, in order of arrival. `given`: output tokens so far,
    up to date for requests that are not decoding."""

    def __init__(self) -> None:
        self.arrival_s: list[float] = []
        self.scheduled_s: list[float] = []
        self.first_token_s: list[float] = []
        self.finish_s: list[float] = []
        self.prompt: list[int] = []
        self.output: list[int] = []
        self.given: list[int] = []
        self.kind: list[int] = []
        self.preempted: list[int] = []

    def add(self, arrival_s: float, prompt: int, output: int, kind: int) -> int:
        """The number of the new request."""
        self.arrival_s.append(arrival_s)
        self.scheduled_s.append(nan)
        self.first_token_s.append(nan)
        self.finish_s.append(nan)
        self.prompt.append(prompt)
        self.output.append(output)
        self.given.append(0)
        self.kind.append(kind)
        self.preempted.append(0)
        return len(self.prompt) - 1

    def log(self, given: list[int]) -> RequestLog:
        """As columns; given: output tokens of each request up to now."""
        return RequestLog(
            np.array(self.arrival_s, dtype=np.float64),
            np.array(self.scheduled_s, dtype=np.float64),
            np.array(self.first_token_s, dtype=np.float64),
            np.array(self.finish_s, dtype=np.float64),
            *(
                np.array(column, dtype=np.int64)
                for column in (self.prompt, self.output, given, self.kind, self.preempted)
            ),
        )
