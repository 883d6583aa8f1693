"""The `tabletune` command that measures a scenario's deployment before the comparison."""

from __future__ import annotations

import argparse
import json
import shlex

from bench.evaluation.scenario import Scenario


def profile_command(scenario: Scenario, options: argparse.Namespace) -> str:
    """For a shell. options: `model`, `drafter`, `engine`, `work` where they are known."""
    variables = [f"{name}={value}" for name, value in scenario.engine_environment.items()]
    words = ["env", *variables] if variables else []
    words += ["tabletune", "profile", "--model", options.model or "MODEL"]
    if scenario.drafter is not None:
        words += ["--drafter", options.drafter or "DRAFTER"]
    words += ["--method", scenario.method, "--engine", str(options.engine or "PYTHON")]
    words += ["--max-num-seqs", str(scenario.max_num_seqs)]
    words += ["--max-draft-length", str(scenario.max_draft_length)]
    words += [f"--engine-arg={argument}" for argument in scenario.engine_args]
    extra = scenario.speculative_extra()
    if extra:
        words += ["--speculative", json.dumps(extra)]
    return shlex.join([*words, "--out", str(options.work or "FOLDER")])
