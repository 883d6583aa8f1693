"""Where flows find things, unless a run's parameters say otherwise. From the environment."""

import os
import pathlib

import platformdirs


def deployments_path() -> pathlib.Path:
    """TABLETUNE_DEPLOYMENTS, else deployments.yaml in the working folder."""
    return pathlib.Path(os.environ.get("TABLETUNE_DEPLOYMENTS", "deployments.yaml"))


def engine_root() -> pathlib.Path:
    """TABLETUNE_ENGINE_ROOT, else the user's data folder."""
    given = os.environ.get("TABLETUNE_ENGINE_ROOT")
    return pathlib.Path(given or pathlib.Path(platformdirs.user_data_dir("tabletune")) / "engines")


def outbox_path(out: str) -> pathlib.Path:
    """Where a deployment's entries wait for MLflow; `out` is the deployment's folder."""
    return pathlib.Path(out) / "outbox"


def watch_state_path(config: pathlib.Path) -> pathlib.Path:
    """What a watch remembers, beside the deployments file or where TABLETUNE_STATE says."""
    given = os.environ.get("TABLETUNE_STATE")
    folder = pathlib.Path(given) if given else config.absolute().parent / ".tabletune"
    return folder / f"watch-{config.stem}.json"


def watch_metrics_path(config: pathlib.Path) -> pathlib.Path:
    """What a watch tells Prometheus: TABLETUNE_METRICS, else beside what it remembers."""
    given = os.environ.get("TABLETUNE_METRICS")
    return pathlib.Path(given) if given else watch_state_path(config).with_suffix(".prom")
