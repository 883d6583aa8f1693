"""Runs benchmarks one after the other on a host that is lent for minutes, each with a limit.

    python -m bench.chain CHAIN … --engine PYTHON --out FOLDER [--gpus 0] [--cores 0-15] --detach
    python -m bench.chain --wait 150 --out FOLDER

CHAIN is a name in bench/chains or a path: which dummy models are made, and which commands follow
(`Chain` below); several are run in their order. Each step's output is FOLDER/STEP.log, each line
with the seconds since the step began; how it ended is FOLDER/STEP.json. A step that ended well is
not run again, one that failed does not keep the next from running. With --detach the chain goes on
after this command, for hosts that allow a command minutes only; --wait then tells how far it is,
after so many seconds or at its end. Two chains beside each other want a GPU and half of the cores
each.

In a step's words {models[NAME]}, {engine} and {out} stand for what they say. Ends with 0 when every
step ended well, with 75 when --wait came back before the end, with 1 otherwise.
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

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.run import GO_ON

FOLDER = pathlib.Path(__file__).parent / "chains"
REPOSITORY = pathlib.Path(__file__).parents[1]
DONE = "chain.done"
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
    path = pathlib.Path(name)
    if path.suffix != ".json":
        path = FOLDER / f"{name}.json"
    try:
        return Chain.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        known = sorted(file.stem for file in FOLDER.glob("*.json"))
        raise ChainError(path, f"no such file; known are {known}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ChainError(path, f"{where}: {first['msg']}") from error


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


def run_chain(
    chain: Chain,
    engine: pathlib.Path,
    out: pathlib.Path,
    environment: Mapping[str, str],
    python: str = sys.executable,
) -> int:
    """Make the models and run the steps; the exit status."""
    out.mkdir(parents=True, exist_ok=True)
    (out / DONE).unlink(missing_ok=True)
    places = {name: str(out / "models" / name) for name in chain.models}
    steps = [
        Step(
            name=f"model-{name}",
            words=("bench.dummy_models", model, "--out", places[name]),
            limit_s=120,
        )
        for name, model in chain.models.items()
    ]
    statuses: list[int] = []
    for step in (*steps, *chain.steps):
        before = _ended(out, step)
        if before is None or before["status"] != 0:
            words = [w.format(models=places, engine=engine, out=out) for w in step.words]
            before = run_step(step, words, out, {**environment, **step.environment}, python)
        statuses.append(before["status"])
    (out / DONE).write_text("".join(f"{status}\n" for status in statuses))
    return 0 if not any(statuses) else 1


def run_step(
    step: Step, words: Sequence[str], out: pathlib.Path, environment: Mapping[str, str], python: str
) -> dict[str, Any]:
    """Run one command; how it ended."""
    head = COMMAND_LINE if words[0] == "tabletune" else ("-m", words[0])
    begun_s = time.monotonic()
    with (out / f"{step.name}.log").open("w") as log:
        process = subprocess.Popen(
            [python, "-u", *head, *words[1:]],
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
    }
    (out / f"{step.name}.json").write_text(json.dumps(ended, indent=1) + "\n")
    return ended


def _wait(process: subprocess.Popen[str], limit_s: float) -> bool:
    """Whether it ended by itself; it and all that it started have ended then."""
    try:
        process.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ended(out: pathlib.Path, step: Step) -> dict[str, Any] | None:
    """How a step ended that was run before with the same words; None where it was not."""
    try:
        found: dict[str, Any] = json.loads((out / f"{step.name}.json").read_text())
    except FileNotFoundError:
        return None
    return found if found["words"] == list(step.words) else None


def wait(out: pathlib.Path, seconds: float, every_s: float = 1.0) -> int:
    """Wait for a chain's end, at most so long; say how far it is; its exit status."""
    until_s = time.monotonic() + seconds
    while not (out / DONE).exists() and time.monotonic() < until_s:
        time.sleep(every_s)
    logs = sorted(out.glob("*.log"), key=lambda path: path.stat().st_mtime)
    for log in logs:
        ended = log.with_suffix(".json")
        if ended.exists():
            facts = json.loads(ended.read_text())
            cut = ", stopped at its limit" if facts["stopped_at_its_limit"] else ""
            print(f"{log.stem}: status {facts['status']} after {facts['seconds']} s{cut}")
        else:
            print(f"{log.stem}: running")
            print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-TAIL:]))
    if not (out / DONE).exists():
        return GO_ON
    return 1 if any(line != "0" for line in (out / DONE).read_text().split()) else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(words)
    out: pathlib.Path = options.out.resolve()
    if options.wait is not None:
        return wait(out, options.wait)
    if not options.chains or options.engine is None:
        print("expected CHAIN and --engine, or --wait SECONDS", file=sys.stderr)
        return 1
    try:
        chain = joined([load_chain(name) for name in options.chains])
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
    if options.detach:
        out.mkdir(parents=True, exist_ok=True)
        (out / DONE).unlink(missing_ok=True)  # before anybody waits for the new one
        again = [word for word in words if word != "--detach"]
        with (out / "chain.out").open("w") as told:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.chain", *again],
                cwd=pathlib.Path.cwd(),
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        print(f"runs as process {process.pid}; wait with: python -m bench.chain --wait 60 …")
        return 0
    return run_chain(chain, options.engine.absolute(), out, environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.chain", description=(__doc__ or "").split("\n")[0]
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
