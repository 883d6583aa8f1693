"""A table as text, and the exact flags with which vLLM serves a table version."""

import json
import shlex
from collections.abc import Mapping, Sequence

from tabletune.records.table import Range, Table, TableVersion
from tabletune.records.vllm_format import MAXIMUM, SETTING, to_vllm

HEADINGS = ("batch sizes", "draft length", "predicted tok/s")

#: Flags that a table version decides, with vLLM's other spellings of them
#: (vllm/engine/arg_utils.py). `extra` arguments must not set them again: the last one wins.
DECIDED = (
    "--max-num-seqs",
    "--speculative-config",
    "-sc",
    "--compilation-config",
    "-cc",
    "--spec-method",
    "--spec-model",
    "--spec-tokens",
    "--cudagraph-capture-sizes",
    "--max-cudagraph-capture-size",
)


def table_text(table: Table) -> str:
    """The table in three aligned columns: batch sizes, draft length, predicted tokens/s.

    A range without a prediction (a table written by hand) shows a dash.
    """
    rows: list[tuple[str, str, str]] = [HEADINGS]
    for part in table.ranges:
        sizes = _sizes(part)
        goodput = part.predicted_goodput_tok_s
        predicted = "–" if goodput is None else f"{goodput:,.0f}"
        rows.append((sizes, f"{part.draft_length}", predicted))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in table.notes)])


def table_line(table: Table) -> str:
    """The table in one line, as `K=3 at 1–3, K=2 at 4–8`."""
    return ", ".join(f"K={part.draft_length} at {_sizes(part)}" for part in table.ranges)


def _sizes(part: Range) -> str:
    return str(part.first) if part.first == part.last else f"{part.first}–{part.last}"


def speculative_config(
    version: TableVersion,
    method: str,
    drafter: str | None,
    method_settings: Mapping[str, object] | None = None,
    table: Table | None = None,
) -> dict[str, object]:
    """vLLM's speculative config for this version.

    The configured maximum is the plan's: the longest length that the engine captures graphs
    for. The table's own lengths are among the plan's (`TableVersion` checks it), so vLLM
    clamps none of them. A larger maximum would reserve memory for drafts that never come and
    leave the drafter without a graph of that length; a smaller one would be clamped to in
    silence.

    Args:
        method: the drafter's method, such as ``eagle3`` or ``ngram``.
        drafter: the drafter's model, None where the method has no weights.
        method_settings: further keys that the method needs, such as
            ``prompt_lookup_max``.
        table: the boot table of an engine with the plugin (records/boot_table.py); the
            version's own by default.

    Raises:
        ValueError: `method_settings` sets what is decided here.
    """
    decided: dict[str, object] = {"method": method}
    if drafter is not None:
        decided["model"] = drafter
    decided |= {MAXIMUM: version.plan.max_draft_length, SETTING: to_vllm(table or version.table)}
    clash = set(decided) & set(method_settings or {})
    if clash:
        raise ValueError(f"method settings {sorted(clash)} are decided by the table; remove them")
    return decided | dict(method_settings or {})


def serve_arguments(
    version: TableVersion,
    method: str,
    drafter: str | None,
    extra: Sequence[str] = (),
    method_settings: Mapping[str, object] | None = None,
    table: Table | None = None,
) -> list[str]:
    """The arguments, after the model, with which ``vllm serve`` runs this version.

    The capture plan is part of them: the table is valid only with it. A plan in graph mode
    NONE is written out too, because vLLM's default on a GPU is to capture. vLLM captures the
    lengths of the table it boots with, not those of the plan: an engine that is to change its
    table while it runs must boot with `boot_table`, which names them all.

    Args:
        extra: further engine arguments, as typed, such as ``["--dtype", "float32"]``.
        table: see `speculative_config`.

    Raises:
        ValueError: `extra` or `method_settings` sets what the version decides.
    """
    for argument in extra:
        flag = argument.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
        if flag in DECIDED:
            raise ValueError(
                f"expected engine arguments that the table version leaves open, found "
                f"{argument!r}, which it decides; remove it"
            )
    config = speculative_config(version, method, drafter, method_settings, table)
    plan = version.plan
    graphs: dict[str, object] = {"cudagraph_mode": plan.graph_mode}
    if plan.capture_sizes:
        graphs["cudagraph_capture_sizes"] = list(plan.capture_sizes)
    return [
        "--max-num-seqs",
        str(plan.max_num_seqs),
        "--speculative-config",
        _compact(config),
        "--compilation-config",
        _compact(graphs),
        *extra,
    ]


def shell_line(arguments: Sequence[str]) -> str:
    """The arguments as one line for a POSIX shell, quoted where needed."""
    return shlex.join(arguments)


def _compact(value: object) -> str:
    return json.dumps(value, allow_nan=False)
