"""The files of infra/ that cannot be run here are at least of the right form."""

import importlib
import json
import pathlib
import re
from typing import Any

import pytest
import yaml

from tabletune.maintain.watch_metrics import HELP

INFRA = pathlib.Path(__file__).resolve().parents[2] / "infra"
METRIC = re.compile(r"\btabletune_[a-z_]+")


def read_yaml(path: str) -> Any:
    return yaml.safe_load((INFRA / path).read_text())


def test_prefect_yaml_is_what_prefect_reads() -> None:
    models = pytest.importorskip("prefect.cli.deploy._models")
    content = read_yaml("prefect/prefect.yaml")
    content.pop("definitions")
    parsed = models.PrefectYamlModel.model_validate(content)
    assert len(parsed.deployments) == 8
    for one in content["deployments"]:
        module, _, name = one["entrypoint"].rpartition(".")
        flow = getattr(importlib.import_module(module), name)
        assert set(one["parameters"]) <= set(flow.parameters.properties)
        assert one["tags"] == ["tabletune"], "what watches over runs goes by it"


def test_compose_names_what_it_defines() -> None:
    compose = read_yaml("compose/compose.yaml")
    services = compose["services"]
    assert set(services) == {"postgres", "prefect", "mlflow", "worker", "anywhere"}
    for name, service in services.items():
        assert "image" in service or (INFRA.parent / service["build"]["dockerfile"]).is_file(), name
        for other in service.get("depends_on", {}):
            assert other in services
            assert "healthcheck" in services[other]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            known = source in compose["volumes"] or source.startswith(("./", "/", "$"))
            assert known, (name, volume)
            if source.startswith("./"):
                assert (INFRA / "compose" / source).is_file()
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "not for everybody by default"


def test_compose_asks_for_no_more_than_its_example_has() -> None:
    text = (INFRA / "compose" / "compose.yaml").read_text()
    needed = set(re.findall(r"\$\{([A-Z0-9_]+)", text))
    example = (INFRA / "compose" / "example.env").read_text()
    offered = set(re.findall(r"^([A-Z0-9_]+)=", example, re.MULTILINE))
    defaults = set(re.findall(r"\$\{([A-Z0-9_]+):-", text))
    assert needed - defaults <= offered
    assert not re.search(r"(PASSWORD|KEY)=.+", example), "no password in the repository"


def exposed_metrics() -> set[str]:
    """The names on the plugin's own metrics page."""
    from tabletune_vllm.exposition import render

    page = render(
        {
            "run_id": "r",
            "model": "m",
            "active": True,
            "mode": "adapt",
            "steps": 1,
            "swaps": 1,
            "suspended": False,
            "refusals": 0,
            "explored_s": 0.1,
            "decisions": {"hold": 1},
            "survival": [0.5],
            "draft_lengths": [[1, 2]],
        }
    ).decode()
    return set(re.findall(r"^(tabletune_[a-z_]+)", page, re.MULTILINE))


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((INFRA / "monitoring" / "dashboard.json").read_text())
    names = exposed_metrics()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        for target in panel["targets"]:
            used = set(METRIC.findall(target["expr"]))
            assert used
            assert used <= names, (panel["title"], used - names)
            assert target["expr"].count("(") == target["expr"].count(")")


def test_alerts_use_metrics_that_exist_and_have_a_runbook() -> None:
    names = exposed_metrics() | set(HELP)
    rules = [
        rule for group in read_yaml("monitoring/alerts.yaml")["groups"] for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(METRIC.findall(rule["expr"])) <= names, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        anchor = f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == anchor
        assert rule["annotations"]["summary"].endswith(".")


def test_the_component_patches_what_the_guide_has() -> None:
    folder = "kubernetes/tabletune-plugin"
    component = read_yaml(f"{folder}/kustomization.yaml")
    assert component["kind"] == "Component"
    patch = read_yaml(f"{folder}/{component['patches'][0]['path']}")
    assert component["patches"][0]["target"] == {"kind": "Deployment", "name": "decode"}
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "modelserver"
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    generated = component["configMapGenerator"][0]
    settings = dict(literal.split("=", 1) for literal in generated["literals"])
    settings |= {one["name"]: one["value"] for one in container["env"]}
    assert_settings_are_known(settings)


def assert_settings_are_known(variables: dict[str, str]) -> None:
    """By the plugin's own reader, which refuses unknown names and values."""
    from tabletune_vllm.settings import read_settings

    assert variables.pop("VLLM_PLUGINS") == "tabletune"
    settings = read_settings(variables)
    assert settings is not None
    assert settings.follow is not None


@pytest.mark.parametrize("name", ["control", "engine"])
def test_images_copy_what_is_there(name: str) -> None:
    text = (INFRA / "images" / f"{name}.Dockerfile").read_text()
    assert re.search(r"^FROM ", text, re.MULTILINE)
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert (INFRA.parent / source).exists(), source
