"""engine create: what is wrong with the options is told before anything is made."""

import pathlib

import pytest
from called import call

from tabletune.commands.exit_codes import ExitCode


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("vllm==0.33.0", "--with", "s3,signing"), "--with: expected s3, signatures"),
        (("vllm==0.33.0", "--with", "s3,signing"), "found 'signing'; write signatures"),
        (("vllm==0.33.0", "--with", ","), "--with: expected s3, signatures"),
        (("--python", "/nowhere", "--with", "s3"), "--with: expected --install-plugin beside it"),
        (("vllm==0.33.0", "--install-plugin"), "--install-plugin: expected --python"),
        (("vllm==0.33.0", "--python", "/nowhere"), "REQUIREMENT: expected a requirement or"),
        ((), "REQUIREMENT: expected a requirement or --python, found 'neither'"),
    ],
)
def test_options_that_do_not_fit(
    options: tuple[str, ...], message: str, tmp_path: pathlib.Path
) -> None:
    ended = call("engine", "create", *options, "--root", str(tmp_path / "engines"), "--json")
    assert ended.status == ExitCode.USAGE
    assert message in ended.json["error"]["message"]
    assert not (tmp_path / "engines").exists()
