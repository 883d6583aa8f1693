"""The pipeline's stand-in engine with the benchmark's policies in it.

Started in place of engine_stand_in.py, whose steps and HTTP it keeps. The policies decide
through the very PolicyTable that serves in a real engine.
"""

import json
import os
import pathlib
from typing import Any

import engine_stand_in

from bench.evaluation.policy_specs import policy_of
from bench.evaluation.policy_table import PolicyTable, usable_lengths
from tabletune_vllm.ring import FLOAT_COLUMNS, INT_COLUMNS


class Engine(engine_stand_in.Engine):
    """Asks a policy where one is in force."""

    def __init__(self, max_num_seqs: int, speculative: dict[str, Any] | None) -> None:
        super().__init__(max_num_seqs, speculative)
        self.policy: PolicyTable | None = None
        self.policies: dict[str, PolicyTable] = {}
        self.text = ""

    def _read(self) -> None:
        path = pathlib.Path(os.environ["BENCH_POLICIES"])
        if not path.exists():  # nothing is compared yet: the deployment is measured
            return
        text = path.read_text()
        if text == self.text:
            return
        self.text, file = text, json.loads(text)
        self.policies = {
            name: PolicyTable(
                policy_of(spec),
                usable_lengths(file["envelope"], file["max_num_seqs"], file["longest"]),
            )
            for name, spec in file["policies"].items()
        }

    def swap(self, body: dict[str, Any]) -> None:
        if "policy_report" in body:
            return
        if "policy" in body:
            self._read()
        self.policy = self.policies[body["policy"]] if "policy" in body else None
        if self.policy is None:
            super().swap(body)
        else:
            self.policy.come_in()

    def _length(self, batch_size: int) -> int:
        if self.policy is not None and batch_size:
            return self.policy[batch_size]
        return super()._length(batch_size)

    def _end(self, step: dict[str, Any], after_idle: bool) -> None:
        super()._end(step, after_idle)
        if self.policy is not None:
            row = self.rows[-1]
            facts = [row.get(name, 0) for name in (*FLOAT_COLUMNS, *INT_COLUMNS)]
            self.policy.observe((*facts, *row["drafted_through"], *row["accepted_through"]))


class Handler(engine_stand_in.Handler):
    """Reports what the policies cost."""

    def _answer(self, value: object) -> None:
        if self.path == "/tabletune/table":
            engine: Any = self.engine
            engine._read()
            reports = {name: table.cost.report() for name, table in engine.policies.items()}
            value = {"active": True, "policies": reports}
        super()._answer(value)


if __name__ == "__main__":
    vars(engine_stand_in).update(Engine=Engine, Handler=Handler)
    engine_stand_in.main()
