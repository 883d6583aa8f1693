"""run, profile and validate: the measuring commands."""

import inspect
import os
import pathlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from tabletune.commands.console import TerminalProgress, print_json
from tabletune.commands.exit_codes import ExitCode
from tabletune.commands.options import (
    DEFAULT_OUT,
    Channel,
    EngineRoot,
    Json,
    Out,
    StoreUrl,
    Who,
    engine_root,
    json_object,
    numbers,
)
from tabletune.commands.results import print_result, result_json
from tabletune.commands.who import user_name
from tabletune.measure.clock import SystemClock
from tabletune.measure.environments import EngineEnvironments
from tabletune.pipeline.identify import find_inputs, identify_target
from tabletune.pipeline.request import RequestError, RunRequest
from tabletune.pipeline.run import RunSteps, run
from tabletune.pipeline.workspace import Workspace
from tabletune.records.step_profile import ProfileMethod
from tabletune.records.verdict import Margins
from tabletune.store.opening import open_store

Model = Annotated[str | None, typer.Option(help="The target model: a folder or a hub id.")]
Drafter = Annotated[str | None, typer.Option(help="The drafter's weights: a folder or a hub id.")]
Method = Annotated[
    str | None,
    typer.Option(help="vLLM's speculative method: eagle3, draft_model, ngram, … "),
]
Engine = Annotated[
    str | None,
    typer.Option(help="An engine environment's name, or a path to its python."),
]
EngineArg = Annotated[
    list[str] | None,
    typer.Option("--engine-arg", help="Passed to vLLM as it is; repeat it: --engine-arg=--dtype …"),
]
#: Options without which there is no new request, and what they may hold.
NAMING_EXAMPLES = {
    "model": "--model takes a folder or a hub id",
    "method": "--method is such as eagle3 or ngram",
    "engine": "--engine takes a name from `tabletune engine list`",
}
NAMING = frozenset(NAMING_EXAMPLES)
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is still valid.")]


#: What only promoting asks for, and what only validating does, by parameter.
OF_PROMOTION = ("promote", "by")
OF_VALIDATION = ("concurrency", "margin")


def tuning_command(
    base: RunSteps, summary: str, without: Collection[str] = ()
) -> Callable[..., None]:
    """A command that takes the steps of `base`, with all options of a run but those `without`.

    Without --model, --method or --engine it repeats what was last asked for in this folder,
    with the options that are given in place of the former ones.
    """

    def command(
        context: typer.Context,
        model: Model = None,
        method: Method = None,
        drafter: Drafter = None,
        engine: Engine = None,
        max_draft_length: Annotated[int, typer.Option(help="The longest draft length.")] = 4,
        max_num_seqs: Annotated[int, typer.Option(help="The engine's largest batch size.")] = 128,
        lengths: Annotated[str, typer.Option(help="Only these draft lengths, such as 0,1,3.")] = "",
        max_tpot_ms: Annotated[
            float | None, typer.Option(help="Highest mean time per output token, in ms.")
        ] = None,
        engine_arg: EngineArg = None,
        speculative: Annotated[
            str, typer.Option(help="More keys of vLLM's speculative config, as a JSON object.")
        ] = "",
        prompts: Annotated[
            pathlib.Path | None,
            typer.Option(help="Sample prompts: JSONL, or a log of OpenAI-style requests."),
        ] = None,
        prompt_count: Annotated[int, typer.Option(help="How many sample prompts are used.")] = 160,
        context_tok: Annotated[int, typer.Option(help="Prompt length of the profile.")] = 128,
        profile_method: Annotated[
            ProfileMethod,
            typer.Option(help="in_engine: step times by the plugin; client: by requests alone."),
        ] = "in_engine",
        concurrency: Annotated[
            str, typer.Option(help="Concurrencies of the validation: 1,8,32.")
        ] = "",
        margin: Annotated[
            float, typer.Option(help="How far below the best fixed length is still passed.")
        ] = Margins().best_fixed,
        channel: Channel = "live",
        out: Out = DEFAULT_OUT,
        store: StoreUrl = None,
        root: EngineRoot = None,
        by: Who = None,
        allow_unknown_version: Annotated[
            bool, typer.Option("--allow-unknown-version", help="Try an engine version never tried.")
        ] = False,
        fresh: Fresh = False,
        revalidate: Annotated[
            bool, typer.Option("--revalidate", help="Validate again although a verdict holds.")
        ] = False,
        promote: Annotated[
            bool,
            typer.Option("--promote/--no-promote", help="Move the channel's pointer if it passes."),
        ] = True,
        as_json: Json = False,
    ) -> None:
        steps = replace(
            base,
            promote=base.promote and promote,
            fresh=fresh,
            revalidate=base.revalidate or revalidate,
        )
        options: dict[str, tuple[str, Any]] = {
            "model": ("model", _anchored(model)),
            "method": ("method", method),
            "engine": ("engine", _anchored(engine) if engine and os.sep in engine else engine),
            "drafter": ("drafter", _anchored(drafter)),
            "max_draft_length": ("max_draft_length", max_draft_length),
            "max_num_seqs": ("max_num_seqs", max_num_seqs),
            "lengths": ("lengths", numbers("--lengths", lengths)),
            "max_tpot_ms": ("max_tpot_ms", max_tpot_ms),
            "engine_arg": ("engine_args", tuple(engine_arg or ())),
            "speculative": ("speculative_extra", json_object("--speculative", speculative)),
            "prompts": ("prompts", None if prompts is None else str(prompts.absolute())),
            "prompt_count": ("prompt_count", prompt_count),
            "context_tok": ("context_tok", context_tok),
            "profile_method": ("profile_method", profile_method),
            "concurrency": ("concurrencies", numbers("--concurrency", concurrency)),
            "channel": ("channel", channel),
            "allow_unknown_version": ("allow_unknown_version", allow_unknown_version),
            "margin": ("margins", _margins(margin)),
        }
        request = _request(options, _given(context), out)
        run_request(request, out, store, root, by, steps, as_json)

    command.__doc__ = summary
    # Typer offers what the signature names; what it leaves out keeps its default.
    offered = inspect.signature(command)
    parameters = [p for p in offered.parameters.values() if p.name not in without]
    command.__signature__ = offered.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


tune = tuning_command(
    RunSteps(), "Measure, build, validate and promote the draft-length table of one deployment."
)
profile = tuning_command(
    RunSteps(validate=False, promote=False),
    "Measure only: qualify, count acceptance and profile; nothing is validated or promoted.",
    without=(*OF_PROMOTION, *OF_VALIDATION, "revalidate"),
)
validate = tuning_command(
    RunSteps(promote=False, revalidate=True),
    "Measure what is missing and validate the table by throughput; nothing is promoted.",
    without=(*OF_PROMOTION, "revalidate"),  # it always validates
)


def _margins(margin: float) -> Margins:
    if not 0 <= margin < 1:
        advice = "0.03 lets a table be 3 % slower"
        raise RequestError("--margin", "a share from 0 up to 1", margin, advice)
    return Margins(best_fixed=margin, incumbent=margin)


def _anchored(name: str | None) -> str | None:
    """A path that exists, made absolute, so that the request holds in every working folder."""
    path = pathlib.Path(name or "").expanduser()
    return str(path.absolute()) if name and path.exists() else name


def _given(context: typer.Context) -> set[str]:
    """The options that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _request(
    options: Mapping[str, tuple[str, Any]], given: set[str], out: pathlib.Path
) -> RunRequest:
    """A new request where model, method and engine are given; else the folder's last one,
    changed where an option is given."""
    if given >= NAMING:
        return RunRequest(**dict(options.values()))
    path = out / "request.json"
    if path.is_file():
        changed = dict(option for name, option in options.items() if name in given)
        return replace(RunRequest.load(path), **changed)
    if not given & NAMING:
        advice = "start with `tabletune run --model … --method … --engine …`"
        raise RequestError("--out", "the folder of an earlier run", str(out), advice)
    missing = [name for name in NAMING_EXAMPLES if name not in given]
    option = ", ".join(f"--{name}" for name in missing)
    there = ", ".join(f"--{name}" for name in NAMING_EXAMPLES if name in given)
    advice = "; ".join(NAMING_EXAMPLES[name] for name in missing)
    expected = f"a value beside {there} where no earlier run is repeated"
    raise RequestError(option, expected, None, advice)


def run_request(
    request: RunRequest,
    out: pathlib.Path,
    store_url: str | None,
    root: pathlib.Path | None,
    by: str | None,
    steps: RunSteps,
    as_json: bool,
) -> None:
    """Run `request` in the folder `out` and print how it ended.

    Raises:
        typer.Exit: the verdict failed.
    """
    workspace = Workspace(out)
    with workspace.locked(), TerminalProgress() as progress:
        progress.start("identify the engine, the device and the models")
        inputs = find_inputs(request)
        python = EngineEnvironments(engine_root(root)).resolve(request.engine).python
        target = identify_target(request, python, inputs)
        store = open_store(store_url or str(workspace.store_root))
        result = run(
            request, target, workspace, store, SystemClock(), progress, user_name(by), steps
        )
    facts: dict[str, Any] = result_json(result)
    if as_json:
        print_json(facts)
    else:
        print_result(result)
    if result.verdict is not None and not result.verdict.passed:
        raise typer.Exit(ExitCode.VERDICT_FAILED)
