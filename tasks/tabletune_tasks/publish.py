"""Tasks that show a result on Prefect's pages. A page that cannot be written fails nothing."""

import pathlib
from collections.abc import Callable, Sequence

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from tabletune.maintain.watch import WatchResult
from tabletune.pipeline.run_summary import difference_markdown, plain, run_markdown
from tabletune.pipeline.staged_run import StagedRun
from tabletune.pipeline.tracking import verdict_table
from tabletune.records.diff import diff_rows
from tabletune.records.table import TableVersion
from tabletune_tasks.calls import library_task
from tabletune_tasks.run_progress import run_logger

#: Rows of a table on a page.
MOST_ROWS = 200


def _show(what: str, create: Callable[[], object]) -> None:
    try:
        create()
    except Exception as error:  # whatever it is, the run's own result stands
        run_logger().warning("%s is not shown: %s", what, error)


@library_task("publish run", timeout_s=120)
def publish_run(
    deployment: str,
    run: StagedRun,
    headline: str,
    reasons: Sequence[str],
    report: str | None,
    tracker_page: str,
) -> None:
    """The summary, the verdict's ratios, and links to the report and to MLflow."""
    links = [f"[run in MLflow]({tracker_page})"] if tracker_page else []
    if report:
        links.append(f"report: `{report}`")
    text = run_markdown(deployment, run, headline, reasons, links)
    _show("the summary", lambda: create_markdown_artifact(text, key=f"{deployment}-summary"))
    verdict = run.verdict
    if verdict is not None and verdict.ratios:
        table = verdict_table(verdict)
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        key = f"{deployment}-verdict"
        _show("the verdict", lambda: create_table_artifact(rows, key=key, description=headline))
    if tracker_page:
        publish_link(deployment, "mlflow", tracker_page, "The run in MLflow")
    if report:
        publish_link(deployment, "report", pathlib.Path(report).as_uri(), "The HTML report")


def publish_link(deployment: str, name: str, url: str, text: str) -> None:
    """A link on the run's page."""
    key = f"{deployment}-{name}"
    _show(f"the link {name}", lambda: create_link_artifact(url, link_text=text, key=key))


def listed(title: str, lines: Sequence[str]) -> str:
    """A title and a list."""
    return "\n".join([f"# {plain(title)}", "", *(f"- {plain(line)}" for line in lines)])


@library_task("publish text", timeout_s=60)
def publish_text(key: str, text: str) -> None:
    """Markdown on the run's page."""
    _show("the text", lambda: create_markdown_artifact(text, key=key))


@library_task("publish watch", timeout_s=60)
def publish_watch(results: Sequence[WatchResult]) -> None:
    """What a look found, as a table: only what needs attention where there is much."""
    rows = [
        {
            "deployment": result.deployment,
            "found": "; ".join(change.words for change in result.changes) or "nothing changed",
            "problem": result.problem,
            "notes": "; ".join(result.notes),
        }
        for result in sorted(results, key=lambda r: (not r.problem, not r.retune, r.deployment))
    ]
    _show("what was found", lambda: create_table_artifact(rows[:MOST_ROWS], key="watch"))


@library_task("publish comparison", timeout_s=60)
def publish_comparison(
    deployment: str, old: TableVersion, new: TableVersion, tracker_page: str
) -> str:
    """Two versions' differences as text, table and link; returns the text."""
    text = difference_markdown(old, new)
    _show("the comparison", lambda: create_markdown_artifact(text, key=f"{deployment}-compare"))
    rows = [
        {"batch sizes": f"{r.first}–{r.last}", "before": r.old_length, "after": r.new_length}
        for r in diff_rows(old.table, new.table)
    ]
    if rows:
        key = f"{deployment}-edges"
        _show("the edges", lambda: create_table_artifact(rows, key=key))
    if tracker_page:
        publish_link(deployment, "comparison", tracker_page, "Both side by side in MLflow")
    return text
