"""prune: remove from a store what no pointer, history or engine needs any more."""

import datetime
from typing import Annotated

import typer
from pydantic import ValidationError

from tabletune.commands.console import print_json
from tabletune.commands.options import DEFAULT_OUT, Json, Out, StoreUrl, store_url
from tabletune.maintain.policies import RetentionPolicy
from tabletune.maintain.prune import Pruned
from tabletune.maintain.prune import prune as prune_store
from tabletune.pipeline.request import RequestError

USUAL = RetentionPolicy()


def prune(
    out: Out = DEFAULT_OUT,
    store: StoreUrl = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Remove; without it only say what would go.")
    ] = False,
    keep_versions: Annotated[
        int, typer.Option(help="Last versions of each channel that stay with all measurements.")
    ] = USUAL.keep_versions,
    history_days: Annotated[
        float, typer.Option(help="So do versions in force within so many days.")
    ] = USUAL.history_days,
    young_days: Annotated[
        float, typer.Option(help="Younger records stay, whoever names them.")
    ] = USUAL.young_days,
    engine_days: Annotated[
        float, typer.Option(help="Engines seen within so many days keep what they run.")
    ] = USUAL.engine_days,
    as_json: Json = False,
) -> None:
    """Say what a store needs no more, and remove it with --apply.

    A version that was ever in force stays with its verdict, so that a roll-back remains
    possible; what goes of old ones is their measurements.
    """
    try:
        policy = RetentionPolicy(
            keep_versions=keep_versions,
            history_days=history_days,
            young_days=young_days,
            engine_days=engine_days,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        expected = "a number " + first["msg"].removeprefix("Input should be ")
        raise RequestError(option, expected, first["input"], "correct it") from error
    now = datetime.datetime.now(datetime.UTC)
    found = prune_store(store_url(out, store), policy, now, apply)
    if as_json:
        print_json(_as_json(found))
        return
    for line in found.words():
        print(line)
    if not apply and (found.plan.remove or found.plan.forget):
        print("nothing was changed: repeat it with --apply to remove them")


def _as_json(found: Pruned) -> dict[str, object]:
    plan = found.plan
    return {
        "store": found.store,
        "records": [{"kind": kind.KIND, "name": name} for kind, name in plan.remove],
        "snapshots": [{"channel": s.channel, "run_id": s.engine.run_id} for s in plan.forget],
        "kept": plan.kept,
        "notes": list(plan.notes),
        "applied": found.applied,
        "removed": found.removed,
    }
