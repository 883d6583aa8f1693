"""What to start: one engine, as a value; and how that becomes a command and environment."""

import dataclasses
import enum
import os
import pathlib
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tabletune.measure.engine_errors import PortTaken

HOST: Final = "127.0.0.1"
#: The plugin's entry point name, in vllm.general_plugins and vllm.endpoint_plugins alike.
PLUGIN_NAME: Final = "tabletune"


class PluginMode(enum.Enum):
    """What the engine does with the tabletune plugin."""

    #: Not loaded: the engine as it comes.
    OFF = "off"
    #: Loaded, records steps and lets draft lengths and tables be set over HTTP.
    MEASURE = "measure"
    #: Loaded; what it does is said by the TABLETUNE_* variables that the caller adds.
    SERVE = "serve"


@dataclasses.dataclass(frozen=True)
class EngineLaunch:
    """One engine to start. The same value can be started again and again.

    python: the engine environment's Python. model: a folder or a hub id.
    arguments: further arguments of vLLM's API server, as typed.
    environment: added to (and winning over) what the engine inherits.
    port: on the loopback interface; None picks a free one at each start.
    keep_pythonpath: hand an inherited PYTHONPATH on (some GPU hosts need it).
    command: instead of vLLM's API server, for tests; `{port}` is replaced.
    """

    python: pathlib.Path
    model: str
    log_path: pathlib.Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    port: int | None = None
    plugin: PluginMode = PluginMode.MEASURE
    keep_pythonpath: bool = True
    command: tuple[str, ...] | None = None

    def command_line(self, port: int) -> list[str]:
        """The engine's command, serving on this port of the loopback interface."""
        if self.command is not None:
            return [part.replace("{port}", str(port)) for part in self.command]
        return [
            str(self.python),
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--host",
            HOST,
            "--port",
            str(port),
            "--model",
            self.model,
            *self.arguments,
        ]

    def full_environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """All variables of the engine's process.

        Inherited TABLETUNE_* variables are dropped: only this launch says what the
        plugin does. `VLLM_PLUGINS=""` names no plugin; unset would load every one.
        """
        environment = {
            key: value for key, value in inherited.items() if not key.startswith("TABLETUNE_")
        }
        if not self.keep_pythonpath:
            environment.pop("PYTHONPATH", None)
        environment |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        environment["VLLM_PLUGINS"] = "" if self.plugin is PluginMode.OFF else PLUGIN_NAME
        if self.plugin is PluginMode.MEASURE:
            environment["TABLETUNE_MEASURE"] = "1"
        if os.path.isdir(self.model):
            environment["HF_HUB_OFFLINE"] = "1"
        environment |= self.environment
        return environment


def free_port() -> int:
    """A port of the loopback interface that nobody uses at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def check_port(port: int) -> int:
    """The port, if it can be used.

    Raises:
        PortTaken: another program listens there, or the port is not allowed.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the server will: a connection still closing does not hinder it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        raise PortTaken(port, str(error)) from error
    return port
