"""Where the plugin for an engine environment comes from, and how it gets in."""

import pathlib
import tomllib
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import tabletune
from tabletune.measure.uvtool import INSTALL, Progress, run_uv

#: What the plugin needs for a source in S3, and for channels whose pointers are signed.
Extra = Literal["s3", "signatures"]
EXTRAS: Final[tuple[Extra, ...]] = ("s3", "signatures")


class BadPluginSource(Exception):
    """The path holds no plugin. Attributes: path."""

    def __init__(self, path: pathlib.Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"expected a wheel of tabletune-vllm or its source folder, found {str(path)!r} "
            f"({reason}); without --plugin it is the one of this tabletune"
        )


class PluginSource(NamedTuple):
    """Where tabletune and its plugin come from: arguments for `uv pip install`, and words."""

    arguments: tuple[str, ...]
    words: str


def _project_name(folder: pathlib.Path) -> str | None:
    try:
        with (folder / "pyproject.toml").open("rb") as file:
            name = tomllib.load(file).get("project", {}).get("name")
    except (OSError, tomllib.TOMLDecodeError):
        return None
    return name if isinstance(name, str) else None


def source_checkout() -> pathlib.Path | None:
    """The root of the source checkout that this tabletune runs from, or None."""
    root = pathlib.Path(tabletune.__file__).resolve().parents[1]
    both = _project_name(root) == "tabletune" and _project_name(root / "plugin")
    return root if both == "tabletune-vllm" else None


def plugin_source(plugin: pathlib.Path | None = None, extras: Sequence[Extra] = ()) -> PluginSource:
    """What to install so that the engine can load the plugin.

    plugin: a wheel of tabletune-vllm (with tabletune's wheel beside it) or its source
    folder; None: the source checkout this runs from, else this version from the index.
    extras: of the plugin.

    Raises:
        BadPluginSource: `plugin` is neither.
    """
    with_extras = f"[{','.join(extras)}]" if extras else ""
    if plugin is not None and plugin.suffix == ".whl":
        if not plugin.is_file():
            raise BadPluginSource(plugin, "no such wheel")
        arguments = ("--find-links", str(plugin.parent), f"{plugin}{with_extras}")
        return PluginSource(arguments, f"the wheel {plugin}")
    if plugin is not None:
        if _project_name(plugin) != "tabletune-vllm":
            raise BadPluginSource(plugin, "no source folder of tabletune-vllm")
        root = plugin.resolve().parent
        folders = [root] if _project_name(root) == "tabletune" else []
        arguments = tuple(f"--editable={folder}" for folder in [*folders, f"{plugin}{with_extras}"])
        return PluginSource(arguments, f"the folder {plugin}")
    root = source_checkout()
    if root is not None:
        arguments = (f"--editable={root}", f"--editable={root / 'plugin'}{with_extras}")
        return PluginSource(arguments, f"the source checkout {root}")
    version = tabletune.__version__
    arguments = (f"tabletune=={version}", f"tabletune-vllm{with_extras}=={version}")
    return PluginSource(arguments, f"version {version} of the package index")


def install_into(python: pathlib.Path, source: PluginSource, progress: Progress) -> None:
    """Install tabletune and its plugin beside the engine, which stays as it is."""
    run_uv([*INSTALL, "--python", python, *source.arguments], progress)


def command_to_install(python: pathlib.Path, source: PluginSource) -> str:
    """What a person types to install the plugin into an environment of their own."""
    return " ".join(["uv pip install --python", str(python), *_shell(source.arguments)])


def _shell(arguments: Sequence[str]) -> list[str]:
    return [part.replace("--editable=", "-e ") for part in arguments]
