"""Several benchmarks of one deployment on one boot of its engine.

    python -m bench.campaign SCENARIO [SCENARIO …] --work FOLDER --engine PYTHON \
        --model MODEL [--drafter DRAFTER] --out FOLDER [--limit-s 1500] \
        [--profile-methods '--batch-sizes 8,64 --lengths 0,2,4'] \
        [--profile-conditions '--batch-sizes 128'] [--controller '--flat 0 …']

The scenarios are of one deployment: what they ask of the engine is the same. What --work does not
hold of its records is measured first (`bench.run --model`, with --validate). Then come
bench.profile_methods, bench.profile_conditions and bench.controller_engine, each with the options
given and unless their results are there, and the scenarios in their order, which go on where they
were. Results are OUT/NAME.json for each, and OUT/SCENARIO.json. A benchmark that fails is told of,
and the next one begins. Ends with 0 when all is measured, with 75 when the time limit came first,
with 1 when something failed.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from shlex import split
from types import ModuleType

from bench import controller_engine, profile_conditions, profile_methods
from bench.evaluation.engine import (
    BenchEngine,
    bench_engine,
    bench_session,
    further_replicas,
)
from bench.evaluation.scenario import Scenario, ScenarioError, load_scenario
from bench.evaluation.workspace_facts import (
    Facts,
    WorkspaceMismatchError,
    measure,
    request_of,
    same_environment,
)
from bench.run import GO_ON, VALIDATE, booted_with, compare_scenario
from tabletune.commands.console import TerminalProgress
from tabletune.pipeline.identify import identify_target
from tabletune.pipeline.workspace import Workspace

SAME = (
    *("target", "drafter", "method", "max_num_seqs", "max_draft_length"),
    *("engine_args", "engine_environment", "speculative", "gpus", "replicas"),
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
        same_environment(scenarios[0], options.work, measured=True)
    except (ScenarioError, NotOneDeploymentError, WorkspaceMismatchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    words = _common(scenarios[0].method, options)
    controller = None
    profiling = {
        module: module.parser().parse_args([*words, *split(given)])
        for module, given in (
            (profile_methods, options.profile_methods),
            (profile_conditions, options.profile_conditions),
        )
        if given
    }
    if options.controller:
        words += ["--work", str(options.work)]
        controller = controller_engine.parser().parse_args([*words, *split(options.controller)])
    options.out.mkdir(parents=True, exist_ok=True)
    return _Campaign(scenarios, options, begun_s + options.limit_s).run(profiling, controller)


class _Campaign:
    """One deployment's benchmarks, each on the engine that runs, or on a new one if it died."""

    def __init__(
        self, scenarios: list[Scenario], options: argparse.Namespace, until_s: float
    ) -> None:
        self._scenarios, self._options, self._until_s = scenarios, options, until_s
        first = scenarios[0]
        self._request = request_of(first, options.engine, options.model, options.drafter)
        self._target = identify_target(self._request, options.engine)

    def run(
        self,
        profiling: Mapping[ModuleType, argparse.Namespace],
        controller: argparse.Namespace | None,
    ) -> int:
        """All of them; the exit status.

        profiling: benchmarks of profiles, and the options of each.
        """
        folder, switches = self._options.work / "bench", bool(controller and controller.survival)
        statuses: list[int] = []
        with (
            TerminalProgress() as progress,
            bench_session(
                self._scenarios, self._request, self._target, folder, progress, switches
            ) as session,
            further_replicas(
                self._scenarios, self._request, self._target, folder, switches
            ) as further,
        ):
            work, validating = self._options.work, self._options.validate
            evidence = measure(self._request, self._target, work, session, validating)
            facts = Facts(self._request, self._target, evidence, Workspace(work))
            survival, before = booted_with(self._scenarios[0]), None

            def engine() -> BenchEngine:
                nonlocal before, survival
                found = bench_engine(session, evidence, folder, survival, further)
                if before is not None and found.replicas != before.replicas:
                    # It died, and another was booted; of several replicas maybe one only, and
                    # then they may differ where acceptance can be switched at all.
                    apart = len(found.replicas) > 1 and (
                        switches or any(len(scenario.traffic) > 1 for scenario in self._scenarios)
                    )
                    survival = None if apart else booted_with(self._scenarios[0])
                    found.survival = survival
                before = found
                return found

            def profile(module: ModuleType, out: pathlib.Path) -> None:
                given = argparse.Namespace(**vars(profiling[module]) | {"out": out})
                module.on_engine(engine().live, self._request, self._target, given)

            def try_controller(out: pathlib.Path) -> None:
                nonlocal survival
                given = argparse.Namespace(**vars(controller) | {"out": out})
                on = engine()
                survival = None if switches else survival
                controller_engine.on_engine(
                    on.live, on.store, evidence, self._request, given, progress
                )

            for module in profiling:
                name = module.__name__.removeprefix("bench.")
                statuses.append(self._once(name, partial(profile, module)))
            if controller is not None:
                statuses.append(self._once("controller", try_controller))
            for scenario in self._scenarios:
                given = argparse.Namespace(**vars(self._options))
                given.out = self._options.out / f"{scenario.name}.json"

                def compare(
                    scenario: Scenario = scenario, given: argparse.Namespace = given
                ) -> int:
                    nonlocal survival
                    on = engine()
                    try:
                        return compare_scenario(scenario, facts, on, given, self._until_s)
                    finally:
                        survival = on.survival

                statuses.append(_done(scenario.name, compare))
        return worst(statuses)

    def _once(self, name: str, job: Callable[[pathlib.Path], None]) -> int:
        """A benchmark that cannot go on where it was: whole, or anew the next time."""
        out, writing = (self._options.out / f"{name}{end}" for end in (".json", ".writing"))
        if out.exists():
            print(f"{out} is there; remove it to measure it again", file=sys.stderr)
            return 0
        if time.monotonic() > self._until_s:
            return GO_ON

        def whole() -> int:
            job(writing)
            writing.replace(out)
            return 0

        return _done(name, whole)


def check_one_deployment(scenarios: list[Scenario]) -> None:
    """See that one engine serves all of them.

    Raises:
        NotOneDeploymentError: they differ in what the engine is booted with.
    """
    first = scenarios[0]
    for other in scenarios[1:]:
        if other.name in {s.name for s in scenarios if s is not other}:
            raise NotOneDeploymentError((other.name, other.name), "path, but not another name")
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
    """The options that every benchmark of the deployment has; where to is said for each later."""
    drafter = ["--drafter", options.drafter] if options.drafter else []
    engine = ["--engine", str(options.engine), "--model", options.model]
    return [*engine, *drafter, "--method", method, "--out", "-"]


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
    parser.add_argument("--profile-conditions", default="", help="of bench.profile_conditions")
    parser.add_argument("--validate", action="store_true", help=VALIDATE)
    parser.add_argument("--controller", default="", help="options of bench.controller_engine")
    return parser


if __name__ == "__main__":
    sys.exit(main())
