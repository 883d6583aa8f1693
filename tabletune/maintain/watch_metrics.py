"""What a watch tells Prometheus, as a file for the text-file collector of its node exporter.

A watch is a job of seconds: nobody could scrape it. The file holds every deployment that was
ever looked at and still is in the deployments file, so that an alert fires on what did *not*
happen: a retune that is due and does not succeed, or no look at all.
"""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Final

from tabletune.durable_file import write_durably
from tabletune.maintain.watch_state import LastLook

#: Name → help. All are gauges; times are Unix seconds.
HELP: Final = {
    "tabletune_watch_time_seconds": "When a watch last looked at any deployment.",
    "tabletune_deployment_due_since_seconds": (
        "Since when a retune is due and no table that fits came in force; absent if none is due."
    ),
    "tabletune_deployment_right_time_seconds": "When the table in force was last found right.",
    "tabletune_deployment_problem": "1 where the last look at the deployment failed.",
}


def metrics_text(looks: Mapping[str, LastLook]) -> str:
    """The file's content; `looks` by deployment."""
    watch, due, right, problem = HELP
    known = sorted(looks.items())
    parts = [
        _family(watch, [("", max(look.at for _, look in known))] if known else []),
        _family(due, [(n, look.due_since) for n, look in known if look.due_since is not None]),
        _family(right, [(n, look.right_at) for n, look in known if look.right_at is not None]),
        _family(problem, [(name, float(look.problem)) for name, look in known]),
    ]
    return "".join(parts)


def write_metrics(text: str, path: pathlib.Path) -> None:
    """Write the file whole or not at all, readable by others, as the exporter is one.

    Raises:
        OSError: it cannot be written; what was there before is untouched.
    """
    # The collector reads every file that ends in .prom: the unfinished one does not.
    write_durably(path, text.encode(), mode=0o644)


def _family(name: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
    for deployment, value in samples:
        # Names of deployments are letters, digits and dashes: nothing to escape.
        label = f'{{deployment="{deployment}"}}' if deployment else ""
        lines.append(f"{name}{label} {value:.3f}")
    return "\n".join(lines) + "\n"
