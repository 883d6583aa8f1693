"""All commands, and how each ends: its message, its exit status, its error as JSON."""

import contextlib
import signal
import sys
from typing import Annotated, NoReturn, cast

import typer
from click import ClickException
from pydantic import ValidationError

from tabletune import __version__
from tabletune.commands import (
    control,
    demo,
    doctor,
    engines,
    flows,
    keys,
    prune,
    replay,
    tables,
    top,
    tune,
)
from tabletune.commands.console import terminal
from tabletune.commands.endings import (
    Terminated,
    discard_output,
    ending_signals,
    output_fails,
    print_error,
    write_any_text,
)
from tabletune.commands.exit_codes import ExitCode
from tabletune.core.capture import GraphSettingsError, UnsupportedEngineError
from tabletune.core.errors import CoreError
from tabletune.identity.artifact import ArtifactError
from tabletune.maintain.deployments import DeploymentsError
from tabletune.measure.acceptance import AcceptanceError
from tabletune.measure.api import EngineApiError
from tabletune.measure.engine_errors import EngineError
from tabletune.measure.engine_install import BadRequirement
from tabletune.measure.installed_engine import EnvironmentProblem
from tabletune.measure.materialise import MaterialiseError
from tabletune.measure.metrics import MetricsError
from tabletune.measure.plugin_source import BadPluginSource
from tabletune.measure.probe import ProbeError
from tabletune.measure.profile_client import ClientProfileError
from tabletune.measure.profile_in_engine import LoadStoppedError
from tabletune.measure.prompts import PromptFileError
from tabletune.measure.qualify_fallback import NothingQualified
from tabletune.measure.uvtool import UvFailed, UvMissing
from tabletune.measure.windows import LengthNotFollowedError, LoadEndedError
from tabletune.pipeline.identify import Unsupported
from tabletune.pipeline.request import RequestError
from tabletune.pipeline.workspace import WorkspaceError
from tabletune.records.base import RecordError
from tabletune.store.errors import StoreError

#: Every error that is explained by its own message, and its exit status.
EXPLAINED: tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...] = (
    (
        (
            RequestError,
            PromptFileError,
            BadRequirement,
            BadPluginSource,
            ArtifactError,
            DeploymentsError,
        ),
        ExitCode.USAGE,
    ),
    ((Unsupported, UnsupportedEngineError, GraphSettingsError), ExitCode.UNSUPPORTED),
    (
        (
            EngineError,
            EnvironmentProblem,
            MaterialiseError,
            ProbeError,
            EngineApiError,
            UvFailed,
            UvMissing,
        ),
        ExitCode.ENGINE,
    ),
    (
        (
            NothingQualified,
            AcceptanceError,
            LoadStoppedError,
            ClientProfileError,
            LoadEndedError,
            LengthNotFollowedError,
            MetricsError,
            CoreError,
        ),
        ExitCode.MEASUREMENT,
    ),
    ((StoreError, WorkspaceError), ExitCode.STORE),
    ((RecordError, ValidationError), ExitCode.RECORD),
)

#: Wrong usage. Newer releases of typer raise errors of their own copy of click instead.
USAGE_ERRORS = (ClickException, getattr(typer, "TyperException", ClickException))

app = typer.Typer(
    name="tabletune",
    help="Measured, validated and promoted draft-length tables for vLLM's speculative decoding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("run")(tune.tune)
app.command("profile")(tune.profile)
app.command("build")(tables.build)
app.command("validate")(tune.validate)
app.command("promote")(tables.promote_version)
app.command("rollback")(tables.roll_back)
app.command("control")(control.control)
app.command("prune")(prune.prune)
app.command("show")(tables.show)
app.command("diff")(tables.diff)
app.command("replay")(replay.replay_log)
app.command("top")(top.top)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.add_typer(engines.app, name="engine")
app.add_typer(keys.app, name="key")
app.add_typer(flows.app, name="flows")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tabletune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def run_command(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; explained errors end with their message and exit status.

    With --json an error is also the one JSON object on standard output.
    """
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    write_any_text()
    try:
        with ending_signals():
            code = app(arguments, standalone_mode=False)
            if code == ExitCode.INTERRUPTED:  # typer's way to tell of a KeyboardInterrupt
                raise Terminated(signal.SIGINT)
            sys.stdout.flush()
    except BrokenPipeError:  # as typer does when it sees this itself
        discard_output()
        sys.exit(ExitCode.UNEXPECTED)
    except BaseException as error:
        status = _tell(error)
        if as_json and status is not None:
            print_error(error, status)
        elif as_json and isinstance(error, Exception):
            print_error(error, ExitCode.UNEXPECTED)
        if status is None:
            raise
        sys.exit(status)
    sys.exit(code or ExitCode.OK)


def _tell(error: BaseException) -> int | None:
    """Say what ended a command on standard error; its exit status, None for the unexpected."""
    if isinstance(error, USAGE_ERRORS):
        shown = cast(ClickException, error)  # typer's own copy has the same methods
        with _perhaps_full():
            shown.show()
        return shown.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort | Terminated):
        with _perhaps_full():
            text = "interrupted: engines are stopped, what was measured is kept"
            terminal(errors=True).print(text)
        return error.exit_status if isinstance(error, Terminated) else int(ExitCode.INTERRUPTED)
    for kinds, status in EXPLAINED:
        if isinstance(error, kinds):
            _say_error(str(error))
            return status
    if output_fails(error):
        advice = "what was done is kept: send the output elsewhere and ask again"
        _say_error(f"the result cannot be written ({error}); {advice}")
        discard_output()
        return ExitCode.UNEXPECTED
    return None


def _say_error(text: str) -> None:
    console = terminal(errors=True)
    with _perhaps_full():
        console.print("[bold red]error:[/] ", end="")
        console.print(text, markup=False, soft_wrap=True)


def _perhaps_full() -> contextlib.AbstractContextManager[None]:
    """Standard error may be full, too: then the exit status tells."""
    return contextlib.suppress(OSError)
