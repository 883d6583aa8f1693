"""Several benchmarks of one deployment on one boot of its engine.

    python -m bench.campaign SCENARIO [SCENARIO …] --work FOLDER --engine PYTHON \
        --model MODEL [--drafter DRAFTER] --out FOLDER [--limit-s 1500] \
        [--profile-methods '--batch-sizes 8,64 --lengths 0,2,4'] [--controller '--flat 0 …']

The scenarios are of one deployment: what they ask of the engine is the same. What --work does not
hold of its records is measured first (`bench.run --model`). Then come bench.profile_methods and
bench.controller_engine, each with the options given, and the scenarios in their order. Results are
OUT/NAME.json, OUT/profile_methods.json and OUT/controller.json. A benchmark that fails is told of,
and the next one begins. Ends with 0 when all is measured, with 75 when the time limit came first,
with 1 when something failed.
"""

from __future__ import annotations

import argparse
import pathlib
import shlex
import sys
import time
import traceback
from collections.abc import Callable

from bench import controller_engine, profile_methods
from bench.evaluation.engine import bench_engine, bench_session
from bench.evaluation.scenario import Scenario, ScenarioError, load_scenario
from bench.evaluation.workspace_facts import Facts, measure, request_of
from bench.run import GO_ON, compare_scenario
from tabletune.commands.console import TerminalProgress
from tabletune.pipeline.identify import identify_target

SAME = (
    *("target", "drafter", "method", "max_num_seqs", "max_draft_length"),
    *("engine_args", "engine_environment", "speculative"),
)
"""What the scenarios of one campaign have in common, beside their first traffic."""


class NotOneDeploymentError(ValueError):
    """Scenarios that one engine cannot serve.

    Attributes: `names`, `field`.
    """

    def __init__(self, names: tuple[str, str], field: str) -> None:
        self.names, self.field = names, field
        super().__init__(
            f"expected scenarios of one deployment, found that {names[0]} and {names[1]} have "
            f"another {field}; start a campaign for each"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    begun_s = time.monotonic()
    options = _parser().parse_args(arguments)
    try:
        scenarios = [load_scenario(name) for name in options.scenarios]
        check_one_deployment(scenarios)
    except (ScenarioError, NotOneDeploymentError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    first, folder = scenarios[0], options.work / "bench"
    common = _common(first.method, options)
    request = request_of(first, options.engine, options.model, options.drafter)
    target = identify_target(request, options.engine)
    with (
        TerminalProgress() as progress,
        bench_session(
            scenarios,
            request,
            target,
            folder,
            progress,
            switches="--survival" in options.controller,
        ) as session,
    ):
        evidence = measure(request, target, options.work, session)
        facts = Facts(request, target, evidence)
        engine = bench_engine(session, evidence, folder)

        def methods() -> int:
            out = ["--out", str(options.out / "profile_methods.json")]
            words = [*common, *out, *shlex.split(options.profile_methods)]
            given = profile_methods.parser().parse_args(words)
            profile_methods.on_engine(engine.live, request, target, given)
            return 0

        def controller() -> int:
            out = ["--out", str(options.out / "controller.json"), "--work", str(options.work)]
            words = [*common, *out, *shlex.split(options.controller)]
            given = controller_engine.parser().parse_args(words)
            controller_engine.on_engine(
                engine.live, engine.store, evidence, request, given, progress
            )
            return 0

        def compare(scenario: Scenario) -> Callable[[], int]:
            given = argparse.Namespace(**vars(options))
            given.out = options.out / f"{scenario.name}.json"
            until_s = begun_s + options.limit_s
            return lambda: compare_scenario(scenario, facts, engine, given, until_s)

        jobs: list[tuple[str, Callable[[], int]]] = []
        if options.profile_methods:
            jobs.append(("bench.profile_methods", methods))
        if options.controller:
            jobs.append(("bench.controller_engine", controller))
        jobs += [(scenario.name, compare(scenario)) for scenario in scenarios]
        return worst([_done(name, job) for name, job in jobs])


def check_one_deployment(scenarios: list[Scenario]) -> None:
    """See that one engine serves all of them.

    Raises:
        NotOneDeploymentError: they differ in what the engine is booted with.
    """
    first = scenarios[0]
    for other in scenarios[1:]:
        for field in SAME:
            if getattr(first, field) != getattr(other, field):
                raise NotOneDeploymentError((first.name, other.name), field)
        if first.speculative_extra() != other.speculative_extra():
            raise NotOneDeploymentError((first.name, other.name), "first traffic")


def worst(statuses: list[int]) -> int:
    """1 before 75 before 0.

    >>> worst([0, 75, 0])
    75
    """
    return 1 if 1 in statuses else GO_ON if GO_ON in statuses else 0


def _done(name: str, job: Callable[[], int]) -> int:
    try:
        return job()
    except Exception:  # the next benchmark may well go: each boot is dear
        print(f"error: {name} failed:\n{traceback.format_exc()}", file=sys.stderr)
        return 1


def _common(method: str, options: argparse.Namespace) -> list[str]:
    """The options that every benchmark of the deployment has."""
    drafter = ["--drafter", options.drafter] if options.drafter else []
    engine = ["--engine", str(options.engine), "--model", options.model]
    return [*engine, *drafter, "--method", method]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.campaign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafter", default="")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--profile-methods", default="", help="options of bench.profile_methods")
    parser.add_argument("--controller", default="", help="options of bench.controller_engine")
    return parser


if __name__ == "__main__":
    sys.exit(main())
