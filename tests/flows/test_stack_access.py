"""The local stack lets in who has its credentials, and nobody else."""

import os
import pathlib
import stat
import urllib.error
import urllib.request

import pytest

from infra.local_stack import LocalStack, Ports, StackError

pytestmark = pytest.mark.stack


def status_of(url: str, method: str = "GET") -> int:
    request = urllib.request.Request(url, method=method, data=b"{}" if method != "GET" else None)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_without_credentials_nothing_is_read_or_written(stack: LocalStack) -> None:
    assert status_of(f"{stack.urls['prefect']}/api/flows/filter", "POST") == 401
    assert status_of(f"{stack.urls['mlflow']}/api/2.0/mlflow/experiments/search", "POST") == 401
    assert status_of(f"{stack.urls['s3']}/tabletune/x", "PUT") == 403
    assert status_of(f"{stack.urls['s3']}/tabletune?list-type=2") == 403


def test_secrets_are_private_and_in_no_log(stack: LocalStack) -> None:
    for name in ("credentials.json", "env"):
        assert stat.S_IMODE((stack.state / name).stat().st_mode) == 0o600
    logs = "".join(stack.log(name).read_text(errors="replace") for name in stack.urls)
    for secret in stack.credentials.values():
        assert secret not in logs


def test_servers_listen_on_loopback_only(stack: LocalStack) -> None:
    """By the kernel's own table of listening sockets."""
    ports = stack.ports
    ours = {ports.prefect, ports.mlflow, *range(ports.s3, ports.s3 + 5)}
    seen: set[int] = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, state = line.split()[1], line.split()[3]
        host, port = address.split(":")
        if state == "0A" and int(port, 16) in ours:
            assert host == "0100007F", f"{host}:{int(port, 16)}"
            seen.add(int(port, 16))
    assert {ports.prefect, ports.mlflow, ports.s3} <= seen


def test_a_port_in_use_is_named(stack: LocalStack, tmp_path: pathlib.Path) -> None:
    other = LocalStack(tmp_path / "other", Ports(prefect=stack.ports.mlflow), parts=("prefect",))
    with pytest.raises(StackError, match=f"port {stack.ports.mlflow} for prefect is in use"):
        other.start()


def test_damaged_credentials_are_explained(tmp_path: pathlib.Path) -> None:
    (tmp_path / "credentials.json").write_text("{")
    with pytest.raises(StackError, match="delete the folder"):
        LocalStack(tmp_path, parts=("prefect",))


def test_the_environment_names_every_server(stack: LocalStack) -> None:
    text = (stack.state / "env").read_text()
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "AWS_SECRET_ACCESS_KEY"):
        assert f"export {name}=" in text
    assert os.environ["PREFECT_API_URL"].startswith("http://127.0.0.1:")
