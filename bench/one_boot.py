"""An engine with the plugin, booted for one benchmark that names it on its command line."""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

from tabletune.commands.console import TerminalProgress
from tabletune.commands.options import numbers
from tabletune.pipeline.identify import Target, identify_target
from tabletune.pipeline.plans import choose_plans
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import EngineSession, LiveEngine


def add_engine_options(parser: argparse.ArgumentParser, method: str) -> None:
    """What names the engine and its models; `method`: the drafter's where none is given."""
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--drafter")
    parser.add_argument("--method", default=method)
    parser.add_argument("--speculative", default="{}")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("engine_args", nargs="*")


#: Measures on an engine that runs, with the options of a command line.
OnEngine = Callable[[LiveEngine, RunRequest, Target, argparse.Namespace], None]


def on_one_boot(options: argparse.Namespace, measure: OnEngine) -> None:
    """Boot it under the first plan for the options' batch sizes and lengths, and measure.

    Raises:
        EngineError: it does not start.
    """
    lengths = numbers("--lengths", options.lengths)
    request = RunRequest(
        model=options.model,
        method=options.method,
        engine=str(options.engine),
        drafter=options.drafter,
        max_draft_length=max(lengths),
        max_num_seqs=max(numbers("--batch-sizes", options.batch_sizes)),
        lengths=lengths,
        engine_args=tuple(options.engine_args),
        speculative_extra=json.loads(options.speculative),
    )
    target = identify_target(request, options.engine)
    fingerprint = target.fingerprint
    plan = choose_plans(request, fingerprint.device, fingerprint.engine, request.all_lengths)[0]
    with (
        tempfile.TemporaryDirectory() as logs,
        EngineSession(
            request, target.python, target.platform, pathlib.Path(logs), TerminalProgress()
        ) as session,
    ):
        measure(session.measuring(plan), request, target, options)


def target_facts(target: Target, model: str) -> dict[str, Any]:
    """The machine, engine, model and settings that were measured, as plain values."""
    fingerprint = target.fingerprint
    return {
        "machine": fingerprint.device.model_dump(mode="json"),
        "engine": fingerprint.engine.model_dump(mode="json"),
        "model": fingerprint.model.model_dump(mode="json") | {"label": pathlib.Path(model).name},
        "settings": dict(fingerprint.settings),
    }
