"""A real local stack on loopback, without Docker: Prefect, MLflow and SeaweedFS as S3.

    python infra/local_stack.py            # starts it, prints the URLs, Ctrl-C stops all of it
    . .tabletune/stack/env                 # in another shell: what clients need

Standard library only. Credentials are made at the first start and kept in the state folder,
which only its owner can read. Nothing here sends telemetry. For many users use
infra/compose/compose.yaml, which has Postgres behind both servers.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"
BUCKET = "tabletune"
#: The first start makes databases; on a busy machine that takes a minute.
START_S = 240.0
STOP_S = 15.0
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "VLLM_NO_USAGE_STATS": "1",
}


class StackError(RuntimeError):
    """The stack cannot run; the message says which part and why."""


@dataclass(frozen=True)
class Ports:
    """Where the servers listen. S3 also uses the next five and each of these + 10000."""

    prefect: int = 4200
    mlflow: int = 5000
    s3: int = 8333


@dataclass
class Service:
    """One server: how it is started and how it is known to be up."""

    name: str
    command: list[str]
    environment: dict[str, str]
    health: str
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)


class LocalStack:
    """The three servers. Use as a context manager, or `start` and `stop`.

    Args:
        state: the folder of databases, objects, logs and credentials; made when missing.
        parts: which servers to run.
    """

    def __init__(
        self,
        state: pathlib.Path,
        ports: Ports | None = None,
        parts: tuple[str, ...] = ("s3", "mlflow", "prefect"),
    ) -> None:
        self.state, self.ports = state.absolute(), ports or Ports()
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        self.credentials = _credentials(self.state / "credentials.json")
        makers = {"s3": self._s3, "mlflow": self._mlflow, "prefect": self._prefect}
        self._parts = parts
        self.services = {name: makers[name]() for name in parts}

    def __enter__(self) -> "LocalStack":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start every server and wait until all answer.

        Raises:
            StackError: one does not; the others are stopped again.
        """
        try:
            for name in self._parts:
                self.launch(name)
            for name in self._parts:
                self.wait_until_up(name)
        except BaseException:
            self.stop()
            raise
        self._write_environment()

    def launch(self, name: str) -> None:
        """Start one server, which must not be running; `wait_until_up` comes after."""
        service = self.services[name]
        port = getattr(self.ports, name)
        if not _is_free(port):
            raise StackError(f"port {port} for {name} is in use; choose another with --{name}-port")
        with self.log(name).open("ab") as log:
            service.process = subprocess.Popen(
                service.command,
                env=service.environment,
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    def wait_until_up(self, name: str) -> None:
        """Return once the server answers.

        Raises:
            StackError: it ended, or did not answer in time.
        """
        service, end_s = self.services[name], time.monotonic() + START_S
        while time.monotonic() < end_s:
            if service.process is None or service.process.poll() is not None:
                raise StackError(f"{name} ended; {self._tail(name)}")
            if _answers(service.health):
                return
            time.sleep(0.2)
        raise StackError(f"{name} did not answer within {START_S:.0f} s; {self._tail(name)}")

    def kill(self, name: str) -> None:
        """End one server at once, as the kernel would without memory."""
        process = self.services[name].process
        if process is not None:
            _signal_group(process, signal.SIGKILL)
            process.wait(30)

    def stop(self) -> None:
        """Stop every server; those that do not go are killed."""
        running = [s.process for s in reversed(list(self.services.values())) if s.process]
        for process in running:
            _signal_group(process, signal.SIGTERM)
        end_s = time.monotonic() + STOP_S
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end_s - time.monotonic()))
            _signal_group(process, signal.SIGKILL)  # also what the server left behind
            process.wait(30)

    def dead(self) -> str | None:
        """The name of a server that ended by itself, None while all run."""
        for name, service in self.services.items():
            if service.process is not None and service.process.poll() is not None:
                return name
        return None

    def log(self, name: str) -> pathlib.Path:
        """The server's log."""
        return self.state / f"{name}.log"

    @property
    def urls(self) -> dict[str, str]:
        """Where people look."""
        pages = {
            "prefect": f"http://{HOST}:{self.ports.prefect}",
            "mlflow": f"http://{HOST}:{self.ports.mlflow}",
            "s3": f"http://{HOST}:{self.ports.s3}",
        }
        return {name: pages[name] for name in self._parts}

    def client_environment(self) -> dict[str, str]:
        """The variables that flows, workers and engines need."""
        made: dict[str, str] = dict(QUIET)
        if "prefect" in self._parts:
            made |= {
                "PREFECT_API_URL": f"{self.urls['prefect']}/api",
                "PREFECT_API_AUTH_STRING": f"tabletune:{self.credentials['prefect']}",
                "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
            }
        if "mlflow" in self._parts:
            made |= {
                "MLFLOW_TRACKING_URI": self.urls["mlflow"],
                "MLFLOW_TRACKING_USERNAME": "tabletune",
                "MLFLOW_TRACKING_PASSWORD": self.credentials["mlflow"],
            }
        if "s3" in self._parts:
            made |= self._aws() | {"TT_STORE": f"s3://{BUCKET}/{{name}}?endpoint={self.urls['s3']}"}
        return made

    def _aws(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "tabletune",
            "AWS_SECRET_ACCESS_KEY": self.credentials["s3"],
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def _folder(self, name: str) -> pathlib.Path:
        folder = self.state / name
        folder.mkdir(exist_ok=True)
        return folder

    def _base(self, name: str) -> dict[str, str]:
        passed = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
        kept = {key: os.environ[key] for key in passed if key in os.environ}
        return kept | QUIET | {"HOME": str(self._folder(name))}

    def _s3(self) -> Service:
        beside = pathlib.Path(sys.executable).parent / "weed"
        program = str(beside) if beside.is_file() else shutil.which("weed")
        if program is None:
            raise StackError("SeaweedFS is not installed: `make setup` installs it where it exists")
        port = self.ports.s3
        names = ("s3", "master", "volume", "filer", "admin")
        command = [program, "mini", f"-dir={self._folder('s3')}", f"-ip={HOST}"]
        command += [f"-ip.bind={HOST}", f"-bucket={BUCKET}", "-master.telemetry=false"]
        command += ["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += [f"-{part}.port={port + i}" for i, part in enumerate(names)]
        # Without these variables anyone could write.
        return Service("s3", command, self._base("s3") | self._aws(), f"http://{HOST}:{port}/")

    def _mlflow(self) -> Service:
        folder = self._folder("mlflow")
        settings = folder / "auth.ini"
        settings.write_text(
            "[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
            f"database_uri = sqlite:///{folder / 'users.db'}\nadmin_username = tabletune\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
            # Every call is checked against a slow hash otherwise.
            "auth_cache_ttl_seconds = 60\n"
        )
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", HOST]
        command += ["--port", str(self.ports.mlflow), "--app-name", "basic-auth"]
        command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
        environment = self._base("mlflow") | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_AUTH_CONFIG_PATH": str(settings),
            "MLFLOW_AUTH_ADMIN_PASSWORD": self.credentials["mlflow"],
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self.credentials["mlflow_secret"],
        }
        if "s3" in self._parts:
            command += ["--artifacts-destination", f"s3://{BUCKET}/mlflow"]
            endpoint = f"http://{HOST}:{self.ports.s3}"
            environment |= self._aws() | {"MLFLOW_S3_ENDPOINT_URL": endpoint}
        else:
            command += ["--artifacts-destination", str(folder / "artifacts")]
        health = f"http://{HOST}:{self.ports.mlflow}/health"
        return Service("mlflow", command, environment, health)

    def _prefect(self) -> Service:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST]
        command += ["--port", str(self.ports.prefect)]
        environment = self._base("prefect") | {
            "PREFECT_HOME": str(self._folder("prefect")),
            # The pages would ask another port otherwise.
            "PREFECT_SERVER_UI_API_URL": f"http://{HOST}:{self.ports.prefect}/api",
            "PREFECT_SERVER_API_AUTH_STRING": f"tabletune:{self.credentials['prefect']}",
            # In memory they would be lost with the server, and the slots stay taken for good.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
                "prefect.server.concurrency.lease_storage.filesystem"
            ),
        }
        health = f"http://{HOST}:{self.ports.prefect}/api/health"
        return Service("prefect", command, environment, health)

    def _write_environment(self) -> None:
        path = self.state / "env"
        lines = [f"export {k}={shlex.quote(v)}" for k, v in self.client_environment().items()]
        _write_private(path, "\n".join(lines) + "\n")

    def _tail(self, name: str) -> str:
        log = self.log(name)
        lines = log.read_text(errors="replace").splitlines()[-6:] if log.exists() else []
        return f"the end of {log}:\n  " + "\n  ".join(lines)


def _credentials(path: pathlib.Path) -> dict[str, str]:
    """The passwords, made once."""
    names = ("prefect", "mlflow", "mlflow_secret", "s3")
    if path.exists():
        try:
            found: Any = json.loads(path.read_text())
            return {name: str(found[name]) for name in names}
        except (ValueError, KeyError, TypeError) as error:
            raise StackError(
                f"{path} cannot be read ({error}); delete the folder {path.parent} "
                "to start with an empty stack"
            ) from error
    made = {name: secrets.token_urlsafe(24) for name in names}
    _write_private(path, json.dumps(made, indent=1))
    return made


def _write_private(path: pathlib.Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500  # it asks who we are: it is up
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, end) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str] | None = None) -> int:
    """Run the stack until it is interrupted; the exit status."""
    parser = argparse.ArgumentParser(description="Run Prefect, MLflow and S3 on this machine.")
    parser.add_argument("--state", type=pathlib.Path, default=pathlib.Path(".tabletune/stack"))
    for name, port in vars(Ports()).items():
        parser.add_argument(f"--{name}-port", type=int, default=port)
    options = parser.parse_args(arguments)
    ports = Ports(options.prefect_port, options.mlflow_port, options.s3_port)
    stack = None
    with _ended_by_signals():
        try:
            print("starting Prefect, MLflow and SeaweedFS …", flush=True)
            stack = LocalStack(options.state, ports)
            stack.start()
            _show(stack)
            while (dead := stack.dead()) is None:
                time.sleep(1)
            raise StackError(f"{dead} ended by itself; see {stack.log(dead)}")
        except KeyboardInterrupt:
            print("stopping", flush=True)
            return 0
        except StackError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            return 1
        finally:
            if stack is not None:
                stack.stop()


def _show(stack: LocalStack) -> None:
    print(f"Prefect  {stack.urls['prefect']}  log in with the password in PREFECT_API_AUTH_STRING")
    print(f"MLflow   {stack.urls['mlflow']}  user tabletune, password MLFLOW_TRACKING_PASSWORD")
    print(f"S3       {stack.urls['s3']}  bucket {BUCKET}, path-style")
    print(f"clients  . {shlex.quote(str(stack.state / 'env'))}")
    print("Ctrl-C stops all of it; what it holds is kept", flush=True)


if __name__ == "__main__":
    sys.exit(main())
