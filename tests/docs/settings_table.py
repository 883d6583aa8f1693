"""The table of the controller's settings in docs/controller.md."""

import pathlib
from dataclasses import fields

from tabletune.core.controller.settings import ControllerSettings

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "controller.md"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->"
HEAD = "| setting | default | meaning |\n|---|---|---|\n"


def read_rows() -> dict[str, tuple[str, str]]:
    """Default and meaning by setting, as the page has them."""
    inner = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0].removeprefix(HEAD)
    rows: dict[str, tuple[str, str]] = {}
    for line in inner.splitlines():
        name, default, meaning = (part.strip() for part in line.strip("|").split("|", 2))
        rows[name.strip("`")] = (default, meaning.rstrip("|").strip())
    return rows


def defaults() -> dict[str, str]:
    """Default by setting, as the code has them."""
    return {field.name: f"{field.default:g}" for field in fields(ControllerSettings)}


def write_rows() -> None:
    """Bring names and defaults up to date; a setting that is new has no meaning yet."""
    before = read_rows()
    lines = [
        f"| `{name}` | {default} | {before.get(name, ('', ''))[1]} |\n"
        for name, default in defaults().items()
    ]
    text = PAGE.read_text("utf-8")
    start, rest = text.split(BEGIN)
    PAGE.write_text(f"{start}{BEGIN}{HEAD}{''.join(lines)}{END}{rest.split(END)[1]}", "utf-8")
