"""The figures as Prometheus text, with vLLM's own client library.

They are rendered apart from vLLM's registry, whose collectors differ between one and several
API servers (vllm/v1/metrics/prometheus.py): with several, only what lies in files of the
multiprocess mode is shown, and those hold no info or state of another process. Every API
server asks the same engine core, so whichever of them is scraped tells the same.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

PREFIX = "tabletune_"


def render(figures: Mapping[str, object]) -> bytes:
    """Prometheus text format 0.0.4."""
    core = importlib.import_module("prometheus_client.core")
    client = importlib.import_module("prometheus_client")

    class Collector:
        def collect(self) -> Iterator[Any]:
            yield from _families(core, figures)

    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return cast(bytes, client.generate_latest(registry))


def _families(core: Any, figures: Mapping[str, object]) -> Iterator[Any]:
    run = {name: str(figures.get(name, "")) for name in ("run_id", "model")}
    labels = ["run_id", "model_name"]
    values = [run["run_id"], run["model"]]

    def family(
        kind: str, name: str, text: str, rows: list[tuple[list[str], float]], *more: str
    ) -> Any:
        make = getattr(core, f"{kind}MetricFamily")
        found = make(PREFIX + name, text, labels=[*labels, *more])
        for extra, value in rows:
            found.add_metric([*values, *extra], value)
        return found

    facts = ["plugin_version", "mode", "channel", "version"]
    shown = [str(figures.get(name, "")) for name in facts]
    yield family("Gauge", "info", "What is followed here.", [(shown, 1.0)], *facts)
    flag = float(bool(figures["active"]))
    yield family("Gauge", "active", "1 unless the plugin is off.", [([], flag)])
    if "steps" not in figures:
        return

    def one(name: str) -> list[tuple[list[str], float]]:
        return [([], float(cast(float, figures[name])))]

    yield family("Gauge", "suspended", "1 while something is set by hand.", one("suspended"))
    yield family("Counter", "steps", "Engine steps recorded.", one("steps"))
    yield family("Counter", "swaps", "Tables put in force by TableTune.", one("swaps"))
    yield family("Counter", "refusals", "Versions and answers not used.", one("refusals"))
    yield family(
        "Counter", "explored_seconds", "Throughput given for probes, in seconds.", one("explored_s")
    )
    decisions = cast(dict[str, int], figures["decisions"])
    rows = [([kind], float(count)) for kind, count in sorted(decisions.items())]
    yield family("Counter", "decisions", "Decisions of the controller.", rows, "kind")
    survival = cast(list[float], figures["survival"])
    rows = [([str(i)], value) for i, value in enumerate(survival, start=1)]
    yield family("Gauge", "survival", "P(guesses 1..i all accepted).", rows, "position")
    lengths = cast(list[list[int]], figures["draft_lengths"])
    rows = [([str(size)], float(length)) for size, length in lengths]
    text = "Draft length of the table in force at a batch size."
    yield family("Gauge", "draft_length_in_force", text, rows, "batch_size")
