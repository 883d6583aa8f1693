"""The schema of the deployments file: every field, and what it means."""

import doctest

import pytest

from tabletune.maintain import file_schema
from tabletune.maintain.file_schema import deployment_schema

SCHEMA = deployment_schema()


def test_it_names_every_field_and_no_name() -> None:
    one = SCHEMA["$defs"]["Deployment"]
    assert {"model", "method", "gate"} <= set(one["properties"])
    assert "name" not in one["properties"]
    assert {"GatePolicy", "CanaryPolicy", "Margins"} <= set(SCHEMA["$defs"])


@pytest.mark.parametrize("model", [SCHEMA, *SCHEMA["$defs"].values()], ids=lambda m: m["title"])
def test_every_field_says_what_it_means(model: dict[str, dict[str, dict[str, str]]]) -> None:
    fields = model["properties"]
    unexplained = [name for name, field in fields.items() if not field.get("description")]
    assert unexplained == [], "list them under Attributes in the docstring of their model"
    assert model["description"]


def test_no_list_of_attributes_is_left_in_a_summary() -> None:
    assert "Attributes:" not in str(SCHEMA)


def test_the_docstrings_are_read_as_written() -> None:
    assert doctest.testmod(file_schema).attempted == 2
    gate = SCHEMA["$defs"]["GatePolicy"]["properties"]
    assert gate["approval"]["description"] == (
        "when a person is asked. `when_large`: for movements above the two limits, and for a "
        "first promotion if `ask_first`."
    )
