"""The deployments file as documented is one that is read, and its schema is the models'."""

import json
import pathlib
import re

import pytest

from tabletune.maintain.deployments import load_deployments
from tabletune.maintain.file_schema import deployment_schema

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_the_documented_file_is_read(tmp_path: pathlib.Path) -> None:
    page = (DOCS / "deployments.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "deployments.yaml"
    path.write_text(example)
    chat, code = load_deployments(path)
    assert (chat.store, chat.gate.approval, chat.canary.minutes) == (
        "s3://tables/chat-8b",
        "when_large",
        45,
    )
    assert (code.gate.approval, code.gate.least_gain, code.max_tpot_ms) == ("always", 0.02, 40)


def test_the_schema_beside_it_is_that_of_the_models(request: pytest.FixtureRequest) -> None:
    path = DOCS / "deployments.schema.json"
    text = json.dumps(deployment_schema(), indent=1) + "\n"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.read_text() == text, "write it anew with --update-golden"
