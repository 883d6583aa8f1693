"""docs/configuration.md, made from the models, their docstrings and the plugin's own answers."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.file_schema import attributes_of, deployment_schema
from tabletune_vllm.errors import SettingsError
from tabletune_vllm.settings import KNOWN_NAMES, PREFIX, FollowSettings, Settings, read_settings

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "configuration.md"
HEAD = """# Configuration

Every field of the deployments file and every variable of an engine, with its default. This page
is made from the models; a test keeps it so. What is not here: the options of each command in
[options.md](options.md), the command line's own variables in [cli.md](cli.md), the options of a
store's URL in [stores.md](stores.md), the constants of the controller in
[controller.md](controller.md).

"""
FILE = """## The deployments file

Its rules and an example are in [deployments.md](deployments.md). A deployment takes these fields;
`defaults` may hold any of them, and each of the sections below field by field.

"""
ENGINE = """## Variables of an engine

An engine reads them when it boots ([plugin.md](plugin.md)). Paths are absolute. Any other name
that begins with `TABLETUNE_`, and any other value, keeps the plugin off, with one warning.

"""
FOLLOWING = "### Following a store\n\n"
MEASURING = "### Endpoints and measuring\n\n"
#: Variables that are not named like their attribute, which is in other units.
RENAMED = {"max_tpot_s": "TABLETUNE_MAX_TPOT_MS"}
HOME = "/of/the/user"


def render() -> str:
    """The whole page."""
    schema = deployment_schema()
    parts = schema["$defs"]
    top = parts["Deployment"]["properties"]
    sections = [(name, refers_to(field)) for name, field in top.items() if refers_to(field)]
    page = [HEAD, FILE, *field_table(top, required_fields())]
    for name, part in sections:
        described = parts[part]
        page.append(f"\n### {name}\n\n{described['description']}\n\n")
        page.extend(field_table(described["properties"], frozenset()))
    page.extend(("\n", ENGINE, FOLLOWING, *variable_table(FollowSettings)))
    page.extend(("\n", MEASURING, *variable_table(Settings)))
    return "".join(page)


def required_fields() -> frozenset[str]:
    """The fields of a deployment that have no default."""
    return frozenset(n for n, field in Deployment.model_fields.items() if field.is_required())


def field_table(properties: Mapping[str, Any], required: frozenset[str]) -> Iterator[str]:
    """One row a field."""
    yield "| field | default | takes | meaning |\n|---|---|---|---|\n"
    for name, field in properties.items():
        default = "**required**" if name in required else default_words(field)
        meaning = field["description"].rstrip(".").replace("|", r"\|")
        yield f"| `{name}` | {default} | {type_words(field)} | {meaning} |\n"


def refers_to(field: Mapping[str, Any]) -> str:
    """The model that a field holds, empty for none."""
    return str(field.get("$ref", "")).rpartition("/")[2]


def default_words(field: Mapping[str, Any]) -> str:
    """A field's default as it would stand in the file."""
    if refers_to(field):
        return ""
    value = field.get("default", {} if field.get("type") == "object" else None)
    return "none" if value is None else f"`{json.dumps(value)}`"


def type_words(field: Mapping[str, Any]) -> str:
    """What a field takes, in words."""
    if refers_to(field):
        return "see below"
    if "anyOf" in field:
        kinds = [type_words(kind) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join([*kinds, "none"])
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type")
    if kind == "array":
        return {"integer": "list of whole numbers"}.get(field["items"]["type"], "list of texts")
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` or `false`",
        "object": "mapping",
        "string": "text",
    }[str(kind)]
    return ", ".join([words, *bounds(field)])


def bounds(field: Mapping[str, Any]) -> Iterator[str]:
    """The limits of a number and the form of a text."""
    for key, words in (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ):
        if key in field:
            yield f"{words} {field[key]:g}"
    if "pattern" in field:
        yield f"of the form `{field['pattern'].strip('^$')}`"


def variable_table(kind: type) -> Iterator[str]:
    """One row a variable of these settings."""
    yield "| variable | default | takes | meaning |\n|---|---|---|---|\n"
    texts = attributes_of(kind)
    for field in fields(kind):
        name = variable(field.name)
        if name in KNOWN_NAMES:
            meaning = texts[field.name].rstrip(".")
            yield f"| `{name}` | {unset_words(name)} | {takes(name)} | {meaning} |\n"


def variable(field: str) -> str:
    """The environment variable of a field of the settings."""
    return RENAMED.get(field, f"{PREFIX}{field.upper()}")


def unset_words(name: str) -> str:
    """What the plugin makes of a variable that is not set."""
    if name == "TABLETUNE_SOURCE":  # without it there is nothing to follow
        return "none"
    settings = read_settings({"TABLETUNE_SOURCE": "file:///tables", "HOME": HOME})
    assert settings is not None
    assert settings.follow is not None
    values = vars(settings) | vars(settings.follow)
    (field,) = (field for field in values if variable(field) == name)
    value = values[field]
    if value is None:
        return "none"
    number = float(value) if isinstance(value, int | float) else None
    text = str(value).replace(HOME, "~") if number is None else f"{number:.0f}"
    return f"`{text}`"


def takes(name: str) -> str:
    """What the plugin says it expects of a variable."""
    try:
        read_settings({name: "?"})
    except SettingsError as error:
        words = error.expected.removeprefix(name).lstrip(": ")
        for start in ("to be ", "as "):
            words = words.removeprefix(start)
        return words
    raise AssertionError(f"{name} takes anything")
