"""Sends runs to MLflow and keeps its aliases like the pointers. The only importer of mlflow.

Nothing that promotes waits for this: every call is bounded, and what cannot be sent now goes to
the outbox (outbox.py).
"""

import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tabletune.records.tracking_entry import TrackedRun, TrackedTable, TrackingEntry

#: Unless set otherwise: a server that hangs is given up after seconds, not after minutes.
BOUNDS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
#: The longest that sending one entry may take.
DEADLINE_S = 60.0
#: Most metrics and most parameters that the server takes in one call.
MOST_METRICS, MOST_PARAMS = 1000, 100
#: MLflow's words for credentials that it does not accept, and for content that it does not.
NOT_LET_IN = ("UNAUTHENTICATED", "PERMISSION_DENIED", "CUSTOMER_UNAUTHORIZED")
NOT_TAKEN = ("INVALID_PARAMETER_VALUE", "MALFORMED_REQUEST", "BAD_REQUEST")
KEY_TAG = "tabletune.key"
VERSION_TAG = "table_version"


class TrackerError(RuntimeError):
    """MLflow did not take what it was sent.

    Attributes: url, reason. refused: it is this entry that it does not take; others it may.
    """

    def __init__(self, url: str, reason: str, advice: str = "", refused: bool = False) -> None:
        self.url, self.reason, self.refused = url, reason, refused
        advice = f"{advice}; " if advice else ""
        super().__init__(
            f"MLflow at {url} did not take it ({reason}); {advice}it is sent again with the next "
            "run"
        )


@dataclass(frozen=True)
class Logged:
    """Where an entry is in MLflow. `registry_version` is empty without a table version."""

    run_id: str
    experiment_id: str
    run_url: str
    registry_version: str = ""


def tracking_url() -> str:
    """The server that MLFLOW_TRACKING_URI names; empty means that nothing is tracked."""
    return os.environ.get("MLFLOW_TRACKING_URI", "").rstrip("/")


class Tracker:
    """An MLflow server.

    Args:
        url: such as ``http://127.0.0.1:5000``.
        now_s: the clock of the deadline.
    """

    def __init__(self, url: str, now_s: Callable[[], float] = time.monotonic) -> None:
        for name, value in BOUNDS.items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        from mlflow import MlflowClient

        self.url, self._now_s = url, now_s
        self._client: Any = MlflowClient(tracking_uri=url, registry_uri=url)

    def send(self, entry: TrackingEntry, deadline_s: float = DEADLINE_S) -> Logged:
        """Log an entry, or what is missing of it.

        Raises:
            TrackerError: not all of it, for any reason; sending again completes it.
        """
        return self._bounded(lambda check: self._send(entry, check), deadline_s)

    def mirror(
        self, model: str, aliases: Mapping[str, str], deadline_s: float = DEADLINE_S
    ) -> dict[str, str]:
        """Set each alias to the registry's version of that table version; empty removes it.

        Returns:
            What was changed: alias → registry version, or empty where removed.

        Raises:
            TrackerError: not done.
        """
        return self._bounded(lambda check: self._mirror(model, aliases, check), deadline_s)

    def versions(self, model: str) -> dict[str, tuple[str, str]]:
        """Table version → (registry version, run id).

        Raises:
            TrackerError: not to be read.
        """

        def read(check: Callable[[], None]) -> dict[str, tuple[str, str]]:
            found = self._registered(model, check)
            return {v.tags[VERSION_TAG]: (str(v.version), v.run_id or "") for v in found}

        return self._bounded(read, DEADLINE_S)

    def compare_url(self, experiment: str, run_ids: list[str]) -> str:
        """The page that compares runs side by side.

        Raises:
            TrackerError: not to be read.
        """

        def read(check: Callable[[], None]) -> str:
            found = self._client.get_experiment_by_name(experiment)
            runs = json.dumps(run_ids, separators=(",", ":"))
            experiments = json.dumps([found.experiment_id], separators=(",", ":"))
            return f"{self.url}/#/compare-runs?runs={runs}&experiments={experiments}"

        return self._bounded(read, DEADLINE_S)

    def _bounded(self, do: Callable[[Callable[[], None]], Any], deadline_s: float) -> Any:
        import requests
        from mlflow.exceptions import MlflowException

        end_s = self._now_s() + deadline_s

        def check() -> None:
            if self._now_s() > end_s:
                raise TrackerError(self.url, f"it took longer than {deadline_s:g} s")

        try:
            return do(check)
        except (MlflowException, requests.RequestException, OSError) as error:
            reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise _explained(self.url, reason, str(getattr(error, "error_code", ""))) from error

    def _send(self, entry: TrackingEntry, check: Callable[[], None]) -> Logged:
        experiment = self._experiment(entry.experiment)
        run_id = self._run(experiment, entry.key, entry.run, "", check)
        for stage in entry.stages:
            self._run(experiment, f"{entry.key}.{stage.name}", stage, run_id, check)
        registered = self._register(entry, run_id, check)
        url = f"{self.url}/#/experiments/{experiment}/runs/{run_id}"
        return Logged(run_id, experiment, url, registered)

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException:  # another run was first
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _run(
        self, experiment: str, key: str, run: TrackedRun, parent: str, check: Callable[[], None]
    ) -> str:
        """The id of the finished run with this key: found, completed or made."""
        check()
        query = f"tags.`{KEY_TAG}` = '{key}'"
        found = self._client.search_runs([experiment], filter_string=query, max_results=1)
        if found and found[0].info.status == "FINISHED":
            return str(found[0].info.run_id)
        if found:
            run_id = str(found[0].info.run_id)
        else:
            tags = {KEY_TAG: key, **run.tags}
            if parent:
                tags["mlflow.parentRunId"] = parent
            made = self._client.create_run(experiment, tags=tags, run_name=run.name)
            run_id = str(made.info.run_id)
        self._values(run_id, run, check)
        self._artifacts(run_id, run, check)
        self._client.set_terminated(run_id, "FINISHED")
        return run_id

    def _values(self, run_id: str, run: TrackedRun, check: Callable[[], None]) -> None:
        from mlflow.entities import Metric, Param

        now_ms = int(time.time() * 1000)
        metrics = [Metric(m.name, m.value, now_ms, m.step) for m in run.metrics]
        params = [Param(name, value) for name, value in run.params.items()]
        for part in _parts(params, MOST_PARAMS):
            check()
            self._client.log_batch(run_id, params=part)
        for part in _parts(metrics, MOST_METRICS):
            check()
            self._client.log_batch(run_id, metrics=part)

    def _artifacts(self, run_id: str, run: TrackedRun, check: Callable[[], None]) -> None:
        for name, value in run.documents.items():
            check()
            self._client.log_text(run_id, json.dumps(value, indent=1, sort_keys=True), name)
        for name, table in run.tables.items():
            check()
            self._client.log_text(run_id, table_json(table), name)
        if run.tables:
            listed = [{"path": name, "type": "table"} for name in run.tables]
            self._client.set_tag(run_id, "mlflow.loggedArtifacts", json.dumps(listed))
        for name, path in run.files.items():
            check()
            if pathlib.Path(path).is_file():
                folder = str(pathlib.PurePosixPath(name).parent)
                self._client.log_artifact(run_id, path, None if folder == "." else folder)

    def _register(self, entry: TrackingEntry, run_id: str, check: Callable[[], None]) -> str:
        from mlflow.exceptions import MlflowException

        version = entry.version
        if version is None:
            return ""
        for known in self._registered(version.model, check):
            if known.tags.get(VERSION_TAG) == version.table_version:
                return str(known.version)
        try:
            self._client.get_registered_model(version.model)
        except MlflowException:
            self._create_model(version.model)
        made = self._client.create_model_version(
            version.model,
            source=f"runs:/{run_id}/table",
            run_id=run_id,
            tags={**version.tags, VERSION_TAG: version.table_version},
            await_creation_for=0,
        )
        return str(made.version)

    def _create_model(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if getattr(error, "error_code", "") != "RESOURCE_ALREADY_EXISTS":
                raise

    def _registered(self, model: str, check: Callable[[], None]) -> list[Any]:
        """All versions of the model that are table versions, the newest first."""
        found: list[Any] = []
        token: str | None = None
        while True:
            check()
            page = self._client.search_model_versions(
                f"name = '{model}'", max_results=1000, page_token=token
            )
            found += [version for version in page if VERSION_TAG in version.tags]
            token = page.token
            if not token:
                return sorted(found, key=lambda v: int(v.version), reverse=True)

    def _mirror(
        self, model: str, aliases: Mapping[str, str], check: Callable[[], None]
    ) -> dict[str, str]:
        found = self._registered(model, check)
        if not found:
            return {}
        known = {v.tags[VERSION_TAG]: str(v.version) for v in reversed(found)}
        # Aliases are read from the model: a search for versions leaves them out.
        set_now = {k: str(v) for k, v in self._client.get_registered_model(model).aliases.items()}
        changed: dict[str, str] = {}
        for alias, table_version in aliases.items():
            check()
            wanted = known.get(table_version, "")
            if wanted == set_now.get(alias, ""):
                continue
            if wanted:
                self._client.set_registered_model_alias(model, alias, wanted)
            else:
                self._client.delete_registered_model_alias(model, alias)
            changed[alias] = wanted
        return changed


def _explained(url: str, reason: str, code: str) -> TrackerError:
    if code in NOT_LET_IN or "error code 401" in reason or "error code 403" in reason:
        advice = "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        return TrackerError(url, reason, advice)
    return TrackerError(url, reason, refused=code in NOT_TAKEN)


def table_json(table: TrackedTable) -> str:
    """The table in the form that MLflow's pages compare by row."""
    return json.dumps({"columns": list(table.columns), "data": [list(row) for row in table.rows]})


def _parts(values: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
