"""Policies that decide per step in the engine, for benchmarks only.

They work on the TableTune plugin and name nothing of vLLM's. With BENCH_POLICIES naming a file
({"max_num_seqs", "longest", "envelope", "policies": {name: spec}}) two more bodies are understood
by POST /tabletune/table:

    {"policy": NAME}          that policy decides from the next step on
    {"policy_report": true}   what deciding has cost so far, per policy

Any other table or pin takes it out again. While a policy is in force the controller pauses, as
with every table set by hand. The file may come after the boot, and change: it is looked at when a
policy is chosen. Until it changes a policy keeps its state.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from bench.evaluation.policy_specs import policy_of
from bench.evaluation.policy_table import PolicyTable, usable_lengths
from tabletune_vllm.errors import RequestError
from tabletune_vllm.lookup import Plan
from tabletune_vllm.runtime import Runtime

_MARK = "_bench_policies"


def install(path: pathlib.Path) -> None:
    """Let every runtime that is made from now on know the policies of the file; once."""
    if hasattr(Runtime, _MARK):
        return
    setattr(Runtime, _MARK, True)
    make, swap, compose = Runtime.__init__, Runtime.swap_table, Runtime._compose

    @functools.wraps(make)
    def make_with_policies(self: Runtime, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        setattr(self, _MARK, Policies(self, path))

    @functools.wraps(swap)
    def swap_or_choose(self: Runtime, body: dict[str, object]) -> dict[str, object]:
        policies: Policies = getattr(self, _MARK)
        if "policy_report" in body:
            return {"policies": policies.report()}
        if "policy" in body:
            return policies.choose(str(body["policy"]))
        return swap(self, body)

    @functools.wraps(compose)
    def compose_or_ask(self: Runtime) -> None:
        hand = self._hand_table
        if isinstance(hand, HandPolicy) and self.active and self._pin is None:
            self.lookup.plan = Plan(hand.asked)
        else:
            compose(self)

    Runtime.__init__ = make_with_policies
    Runtime.swap_table = swap_or_choose
    Runtime._compose = compose_or_ask


class HandPolicy(tuple[int, ...]):
    """A policy as the runtime's table set by hand: a status reads the boot table from it, the
    scheduler is answered by `asked`."""

    asked: PolicyTable

    @classmethod
    def of(cls, boot: Sequence[int], asked: PolicyTable) -> HandPolicy:
        self = cls(boot)
        self.asked = asked
        return self


class Policies:
    """The policies of one runtime, and the ring's records on their way to the one in force."""

    def __init__(self, runtime: Runtime, path: pathlib.Path) -> None:
        self._runtime, self._path = runtime, path
        self._text = ""
        self._tables: dict[str, HandPolicy] = {}
        self._read()
        # A policy sees each step before it chooses for the next.
        runtime.observer.most_pending = 0
        ring = runtime.observer.ring
        append = ring.append

        def append_and_show(*values: float) -> None:
            append(*values)
            table = runtime.lookup.plan.table
            if isinstance(table, PolicyTable):
                table.observe(values)

        ring.append = append_and_show  # type: ignore[method-assign]

    def _read(self) -> None:
        text = self._path.read_text() if self._path.exists() else ""
        if text == self._text:
            return
        file: dict[str, Any] = json.loads(text)
        usable = usable_lengths(file["envelope"], file["max_num_seqs"], file["longest"])
        self._tables = {
            name: HandPolicy.of(self._runtime.boot, PolicyTable(policy_of(spec), usable))
            for name, spec in file["policies"].items()
        }
        self._text = text

    def choose(self, name: str) -> dict[str, object]:
        """Put a policy in force as a table set by hand.

        Raises:
            RequestError: no such policy.
        """
        self._read()
        if name not in self._tables:
            raise RequestError(f"a policy of {sorted(self._tables)}", repr(name), "name one")
        runtime, table = self._runtime, self._tables[name]
        table.asked.come_in()
        runtime.observer.disturbed = True
        with runtime._lock:
            runtime._hand_table = table
            runtime._pin = runtime._schedule = None
            runtime._compose()
        return {"policy": name, "active": runtime.active}

    def report(self) -> dict[str, object]:
        """What each policy's decisions cost, and what it chose."""
        self._read()
        return {name: table.asked.cost.report() for name, table in self._tables.items()}
