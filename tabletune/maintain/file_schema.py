"""The JSON schema of the deployments file, every field with what its model's docstring says."""

import inspect
import re
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from tabletune.maintain.deployments import NAME_PATTERN, Deployment

_ENTRY: Final = re.compile(r"    (?P<names>\w+(?:, \w+)*): (?P<text>.+)")
_CONTINUED: Final = re.compile(r"        \s*(?P<text>\S.*)")


def summary_of(kind: type) -> str:
    """A class's docstring without its list of attributes."""
    return (inspect.getdoc(kind) or "").partition("\nAttributes:")[0].strip()


def attributes_of(kind: type) -> dict[str, str]:
    """What a class's docstring says about each attribute, by name, each on one line.

    >>> class Box:
    ...     '''A box.
    ...
    ...     Attributes:
    ...         width, height: in metres,
    ...             outside.
    ...     '''
    >>> attributes_of(Box)
    {'width': 'in metres, outside.', 'height': 'in metres, outside.'}
    """
    found: dict[str, str] = {}
    current: list[str] = []
    for line in (inspect.getdoc(kind) or "").partition("\nAttributes:")[2].splitlines():
        if entry := _ENTRY.fullmatch(line):
            current = entry["names"].split(", ")
            found |= dict.fromkeys(current, entry["text"])
        elif more := _CONTINUED.fullmatch(line):
            found |= {name: f"{found[name]} {more['text']}" for name in current}
        elif line.strip():  # what follows the list
            break
    return found


class _Described(GenerateJsonSchema):
    """Gives a model its summary, and each field its description."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        kind = schema["cls"]
        texts = attributes_of(kind)
        made["description"] = summary_of(kind)
        for name, field in made["properties"].items():
            if name in texts:
                field["description"] = texts[name]
        return made


def deployment_schema() -> dict[str, Any]:
    """The JSON schema of the file, for editors and the reference."""
    one = Deployment.model_json_schema(ref_template="#/$defs/{model}", schema_generator=_Described)
    parts = one.pop("$defs", {})
    one["properties"].pop("name")
    one.pop("required")  # any field may come from the defaults
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "TableTune deployments",
        "description": "Which tables are kept right.",
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "deployments"],
        "properties": {
            "version": {"const": 1, "description": "Of this file's format."},
            "defaults": {
                "$ref": "#/$defs/Deployment",
                "description": "Any field of a deployment; its own win, section by section.",
            },
            "deployments": {
                "type": "object",
                "description": "The deployments by name, which also names runs and folders.",
                "propertyNames": {"pattern": NAME_PATTERN},
                "additionalProperties": {"$ref": "#/$defs/Deployment"},
            },
        },
        "$defs": {**parts, "Deployment": one},
    }
