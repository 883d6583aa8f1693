"""Runs benchmarks one after the other on a host that is lent for minutes, each with a limit.

    python -m bench.chain CHAIN … --engine PYTHON --out FOLDER [--gpus 0] [--cores 0-15] --detach
    python -m bench.chain --wait 150 --out FOLDER

CHAIN is a name in bench/chains or a path: which dummy models are made, and which commands follow
(`Chain` below); several are run in their order. What a step says is FOLDER/steps/STEP.log, each
line with the seconds since the step began; how it ended is FOLDER/steps/STEP.json. A step that
ended well is not run again by the same command, one that failed does not keep the next from
running. With --detach the chain goes on after this command, for hosts that allow a command minutes
only; --wait then tells how far it is, after so many seconds or at its end. Two chains beside each
other want a FOLDER, a GPU and half of the cores each.

In a step's words {models[NAME]}, {engine} and {out} stand for what they say. Ends with 0 when every
step ended well, with 75 when some would go on if started again (a benchmark's own time limit came,
or --wait came back before the end), with 1 when one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bench.campaign import worst
from bench.named_file import load_named
from bench.run import GO_ON
from tabletune.durable_file import write_durably
from tabletune.maintain.processes import start_ticks
from tabletune.measure.supervise import descendants

FOLDER = pathlib.Path(__file__).parent / "chains"
REPOSITORY = pathlib.Path(__file__).parents[1]
DONE, TOLD, PROCESS, STEPS = "chain.done", "chain.out", "chain.pid", "steps"
#: A step that is over its limit is asked to end, and after so long is ended.
ENDS_S = 40.0
TAIL = 6
COMMAND_LINE = ("-c", "from tabletune.cli import main; raise SystemExit(main())")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Step(_Strict):
    """One command.

    words: a module of bench and its options, or `tabletune` and its options.
    limit_s: after so long it is stopped.
    environment: further variables.
    """

    name: str = Field(pattern=r"^[a-z0-9_.-]+$")
    words: tuple[str, ...] = Field(min_length=1)
    limit_s: float = Field(gt=0)
    environment: dict[str, str] = Field(default_factory=dict)


class Chain(_Strict):
    """What is run, in order. models: folder name by name of bench/dummy_models.py."""

    what: str
    models: dict[str, str] = Field(default_factory=dict)
    steps: tuple[Step, ...] = Field(min_length=1)


class ChainError(ValueError):
    """A chain that cannot be run. Attributes: `path`, `found`."""

    def __init__(self, path: pathlib.Path, found: str) -> None:
        self.path, self.found = path, found
        super().__init__(f"{path}: expected a chain of benchmarks (bench/chain.py), found {found}")


def load_chain(name: str) -> Chain:
    """A chain by its name in bench/chains, or by a path.

    Raises:
        ChainError: there is none, or it cannot be used.
    """
    return load_named(name, FOLDER, Chain, ChainError)


def joined(chains: Sequence[Chain]) -> Chain:
    """One chain of all steps, in order.

    Raises:
        ValueError: two of them share a step's name, or mean another model by the same name.
    """
    models: dict[str, str] = {}
    steps: dict[str, Step] = {}
    for chain in chains:
        for name, model in chain.models.items():
            if models.setdefault(name, model) != model:
                raise ValueError(f"expected one model named {name}, found {models[name]}, {model}")
        for step in chain.steps:
            if step.name in steps:
                raise ValueError(f"expected names of steps to differ, found {step.name} twice")
            steps[step.name] = step
    what = "; ".join(chain.what for chain in chains)
    return Chain(what=what, models=models, steps=tuple(steps.values()))


def cores_of(text: str) -> set[int]:
    """Processor cores as `taskset` writes them.

    >>> sorted(cores_of("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def commands(chain: Chain, engine: pathlib.Path, out: pathlib.Path) -> list[Step]:
    """The steps, that make the models first, with every word as it is run.

    Raises:
        ValueError: a word names what there is not.
    """
    places = {name: str(out / "models" / name) for name in chain.models}
    made = [
        Step(
            name=f"model-{name}",
            words=("bench.dummy_models", model, "--out", places[name]),
            limit_s=120,
        )
        for name, model in chain.models.items()
    ]
    found: list[Step] = []
    for step in (*made, *chain.steps):
        try:
            words = [w.format(models=places, engine=engine, out=out) for w in step.words]
        except (KeyError, IndexError) as error:
            raise ValueError(f"step {step.name}: expected known places, found {error}") from error
        found.append(step.model_copy(update={"words": tuple(words)}))
    return found


def run_chain(
    steps: Sequence[Step],
    out: pathlib.Path,
    environment: Mapping[str, str],
    python: str = sys.executable,
) -> int:
    """Run what did not end well before; the exit status. That it ended is written down however it
    does."""
    (out / STEPS).mkdir(parents=True, exist_ok=True)
    (out / DONE).unlink(missing_ok=True)
    status = 1
    try:
        statuses: list[int] = []
        for step in steps:
            ended = _ended(out, step)
            if ended is None or ended["status"] != 0:
                ended = run_step(step, out, {**environment, **step.environment}, python)
            statuses.append(ended["status"])
        status = worst([one if one in (0, GO_ON) else 1 for one in statuses])
    finally:
        write_durably(out / DONE, f"{status}\n".encode())
    return status


def run_step(
    step: Step, out: pathlib.Path, environment: Mapping[str, str], python: str
) -> dict[str, Any]:
    """Run one command; how it ended."""
    head = COMMAND_LINE if step.words[0] == "tabletune" else ("-m", step.words[0])
    begun_s = time.monotonic()
    record, log_path = out / STEPS / f"{step.name}.json", out / STEPS / f"{step.name}.log"
    record.unlink(missing_ok=True)
    with log_path.open("a") as log:
        process = subprocess.Popen(
            [python, "-u", *head, *step.words[1:]],
            cwd=REPOSITORY,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def keep() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                log.write(f"{time.monotonic() - begun_s:8.1f} {line}")
                log.flush()

        reader = threading.Thread(target=keep, daemon=True)
        reader.start()
        stopped = not _wait(process, step.limit_s)
        reader.join(ENDS_S)
    ended = {
        "status": process.returncode,
        "stopped_at_its_limit": stopped,
        "seconds": round(time.monotonic() - begun_s, 1),
        "words": list(step.words),
        "environment": step.environment,
    }
    write_durably(record, (json.dumps(ended, indent=1) + "\n").encode())
    return ended


def _wait(process: subprocess.Popen[str], limit_s: float) -> bool:
    """Whether it ended by itself. It has ended then, and so have the engines that it started, which
    would hold the next step's memory: they have sessions, and so process groups, of their own."""
    try:
        process.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
        _end([*started, *descendants(process.pid)])
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end(pids: Sequence[int]) -> None:
    """Wait for the end of processes, and after a while end them."""
    until_s = time.monotonic() + ENDS_S
    while time.monotonic() < until_s and any(start_ticks(pid) is not None for pid in pids):
        time.sleep(0.2)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _ended(out: pathlib.Path, step: Step) -> dict[str, Any] | None:
    """How a step ended that was run before with the same command; None where it was not."""
    found = _record(out / STEPS / f"{step.name}.json")
    same = ("words", list(step.words)), ("environment", step.environment)
    return found if found and all(found[key] == value for key, value in same) else None


def _record(path: pathlib.Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


def wait(out: pathlib.Path, seconds: float, every_s: float = 1.0) -> int:
    """Wait for a chain's end, at most so long; say how far it is; its exit status."""
    until_s = time.monotonic() + seconds
    while (gone := _gone(out)) is None and time.monotonic() < until_s:
        time.sleep(every_s)
    logs = sorted((out / STEPS).glob("*.log"), key=lambda path: path.stat().st_mtime)
    for log in logs:
        ended = _record(log.with_suffix(".json"))
        if ended is None:
            print(f"{log.stem}: running")
        else:
            cut = ", stopped at its limit" if ended["stopped_at_its_limit"] else ""
            print(f"{log.stem}: status {ended['status']} after {ended['seconds']} s{cut}")
        if ended is None or ended["status"] != 0:
            print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-TAIL:]))
    with contextlib.suppress(FileNotFoundError):
        print((out / TOLD).read_text(errors="replace"), end="")
    return GO_ON if gone is None else gone


def _gone(out: pathlib.Path) -> int | None:
    """The exit status of a chain that has ended, however it did; None while it runs."""
    if (out / DONE).exists():
        return int((out / DONE).read_text())
    process = out / PROCESS
    gone = process.exists() and start_ticks(int(process.read_text())) is None
    if gone and not (out / DONE).exists():
        print("expected the chain to run or to have said how it ended, found its process gone")
        return 1
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    options = _parser().parse_args(arguments)
    out: pathlib.Path = options.out.resolve()
    if options.wait is not None:
        return wait(out, options.wait)
    if not options.chains or options.engine is None:
        print("expected CHAIN and --engine, or --wait SECONDS", file=sys.stderr)
        return 1
    engine = options.engine.absolute()
    try:
        steps = commands(joined([load_chain(name) for name in options.chains]), engine, out)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    # A shell that starts this in the background has it ignore SIGINT, and so would its steps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.cores:
        os.sched_setaffinity(0, cores_of(options.cores))
    environment = dict(os.environ)
    if options.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = options.gpus
    if not options.detach:
        return run_chain(steps, out, environment)
    out.mkdir(parents=True, exist_ok=True)
    for old in (DONE, PROCESS):  # before anybody waits for the new one
        (out / old).unlink(missing_ok=True)
    again = [*options.chains, "--engine", str(engine), "--out", str(out)]
    with (out / TOLD).open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.chain", *again],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (out / PROCESS).write_text(str(process.pid))
    print(f"runs as process {process.pid}; wait with: python -m bench.chain --wait 60 …")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.chain",
        description=(__doc__ or "").split("\n")[0],
        allow_abbrev=False,
    )
    parser.add_argument("chains", nargs="*", metavar="CHAIN")
    parser.add_argument("--engine", type=pathlib.Path, help="an engine environment's python")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--gpus", default="", help="which, by number")
    parser.add_argument("--cores", default="", help="which, as for taskset")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--wait", type=float, help="seconds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
