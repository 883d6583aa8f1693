"""show, diff, build, promote and rollback: what concerns tables and the store."""

import os
import pathlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from tabletune.commands.console import print_json, terminal
from tabletune.commands.options import (
    DEFAULT_OUT,
    Channel,
    Json,
    Out,
    StoreUrl,
    Who,
    store_url,
)
from tabletune.commands.results import show_commands, show_table, show_verdict
from tabletune.commands.who import user_name
from tabletune.measure.clock import SystemClock
from tabletune.pipeline.offline import rebuild
from tabletune.pipeline.request import RequestError, RunRequest
from tabletune.pipeline.serve import stored_commands
from tabletune.pipeline.workspace import Workspace, WorkspaceError
from tabletune.records.base import RecordError
from tabletune.records.diff import diff_rows, version_diff_words
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune.store.history import describe_history
from tabletune.store.opening import open_existing, open_store
from tabletune.store.promotion import Move, promote, rollback
from tabletune.store.signature_look import look_at_signature
from tabletune.store.signing import PUBLIC_KEY_VARIABLE, load_trusted, signer_from

VersionName = Annotated[
    str,
    typer.Argument(help="A version's hash or its beginning, or a channel's name."),
]
PublicKey = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--public-key",
        envvar=PUBLIC_KEY_VARIABLE,
        help="File of the keys, one of which must have signed the channel's pointer.",
    ),
]
Reason = Annotated[str, typer.Option(help="Why; kept in the channel's history.")]


def build(out: Out = DEFAULT_OUT, store: StoreUrl = None, as_json: Json = False) -> None:
    """Build the table again from this folder's measurements; no engine is needed."""
    if not out.is_dir():
        advice = "name the folder of an earlier run with --out"
        raise WorkspaceError(out, "there is no such folder", advice)
    made = rebuild(Workspace(out))
    name = open_store(store_url(out, store)).put(made.version)
    if as_json:
        print_json({"table_version": name, "table": _rows(made.version)})
        return
    console = terminal()
    show_table(made.version.table, console)
    console.print(f"table version {name}")


def show(
    name: VersionName = "live",
    out: Out = DEFAULT_OUT,
    store: StoreUrl = None,
    public_key: PublicKey = None,
    as_json: Json = False,
) -> None:
    """Show a table version, its verdicts and a channel's history and signature."""
    opened = _store(out, store)
    version_hash, version = find_version(opened, name)
    verdicts = _verdicts_of(opened, version_hash)
    is_channel = name in opened.channels()
    channel = name if is_channel else "live"
    trusted = None if public_key is None else load_trusted(public_key)
    signature = look_at_signature(opened, name, trusted) if is_channel else None
    commands = stored_commands(opened, version, channel, _last_request(out))
    if as_json:
        print_json(
            {
                "table_version": version_hash,
                "table": _rows(version),
                "fingerprint": version.fingerprint,
                "graph_mode": version.plan.graph_mode,
                "capture_sizes": list(version.plan.capture_sizes),
                "lengths": list(version.plan.lengths),
                "serve": None if commands is None else commands.as_json(),
                "signature": None if signature is None else signature.as_json(),
                "verdicts": [{"passed": v.passed, "at": v.validated_at} for v in verdicts],
            }
        )
        return
    console = terminal()
    console.print(f"table version {version_hash}, made {version.created_at}")
    show_table(version.table, console)
    plan = version.plan
    sizes = f", {len(plan.capture_sizes)} capture sizes, {plan.graph_count} graphs"
    console.print(f"capture plan: graph mode {plan.graph_mode}{sizes if plan.graph_count else ''}")
    if plan.joining_sizes:
        joining = ", ".join(map(str, plan.joining_sizes))
        console.print(f"  of the sizes, {joining} tokens are for steps in which prompts join")
    for verdict in sorted(verdicts, key=lambda v: v.validated_at)[-1:]:
        show_verdict(verdict, console)
    if commands is not None:
        show_commands(commands, console)
    if signature is not None:
        console.print(f"signature: {signature.found}", markup=False, soft_wrap=True)
        console.print(f"history of channel {name!r}:")
        for line in describe_history(opened, name):
            console.print(f"  {line}", markup=False, soft_wrap=True)


def _last_request(out: pathlib.Path) -> RunRequest | None:
    """What was last asked for in the folder, None where nothing readable says so."""
    try:
        return RunRequest.load(Workspace(out).request_path) if out.is_dir() else None
    except (OSError, RecordError, RequestError):
        return None


def diff(
    old: VersionName,
    new: VersionName,
    out: Out = DEFAULT_OUT,
    store: StoreUrl = None,
    as_json: Json = False,
) -> None:
    """Say what changes from one table version to another."""
    opened = _store(out, store)
    _, before = find_version(opened, old)
    _, after = find_version(opened, new)
    if as_json:
        rows = [row.as_list() for row in diff_rows(before.table, after.table)]
        print_json({"rows": rows, "words": version_diff_words(before, after)})
        return
    console = terminal()
    for line in version_diff_words(before, after) or ["no difference"]:
        console.print(line, markup=False, soft_wrap=True)


def promote_version(
    version: VersionName,
    channel: Channel = "live",
    reason: Reason = "promoted by hand",
    force: Annotated[
        bool, typer.Option("--force", help="Although no passing verdict allows it.")
    ] = False,
    out: Out = DEFAULT_OUT,
    store: StoreUrl = None,
    by: Who = None,
    as_json: Json = False,
) -> None:
    """Put a validated table version in force on a channel.

    The pointer is signed where TABLETUNE_SIGNING_KEY names a private key (`key new`).
    """
    opened = _store(out, store)
    version_hash, _ = find_version(opened, version)
    verdict = _newest_verdict(opened, version_hash)
    signer = signer_from(os.environ)
    now = SystemClock().utc()
    others = opened.channels()
    move = promote(
        opened,
        channel,
        version_hash,
        verdict,
        now,
        user_name(by),
        reason,
        force=force,
        signer=signer,
    )
    if others and channel not in others:
        note = f"channel {channel} had no version before; channels there: {', '.join(others)}"
        move = replace(move, notes=(note, *move.notes))
    _tell(move, as_json)


def roll_back(
    channel: Channel = "live",
    to: Annotated[str | None, typer.Option(help="A version of the channel's history.")] = None,
    reason: Reason = "rolled back by hand",
    out: Out = DEFAULT_OUT,
    store: StoreUrl = None,
    by: Who = None,
    as_json: Json = False,
) -> None:
    """Put a channel's earlier table version in force again."""
    opened = _store(out, store)
    target = None if to is None else find_version(opened, to)[0]
    signer = signer_from(os.environ)
    now = SystemClock().utc()
    _tell(rollback(opened, channel, now, user_name(by), reason, to=target, signer=signer), as_json)


class NoSuchVersion(StoreError):
    """A name that is no channel and begins no version, or more than one.

    Attributes: `name`, `matches` (the versions that it begins).
    """

    def __init__(self, store: Store, name: str, found: Sequence[str]) -> None:
        self.name, self.matches = name, tuple(found)
        if found:
            there, advice = f"{len(found)} that begin like that", "give more of the hash"
        else:
            channels, versions = store.channels(), store.list(TableVersion)
            shown = ", ".join(v[:12] for v in versions[:8]) or "none"
            there = f"none; channels: {', '.join(channels) or 'none'}; versions: {shown}"
            advice = "name one of them (four characters or more of a version)"
            if not (channels or versions):
                advice = "look into another store with --store or --out"
        super().__init__(
            f"a channel, or one table version beginning with {name!r}, in {store.url}",
            there,
            advice,
        )


def find_version(store: Store, name: str) -> tuple[str, TableVersion]:
    """The version of a channel, or whose hash begins with `name`.

    Raises:
        NoSuchVersion: none, or several.
    """
    if name in store.channels():
        pointer, _ = store.read_pointer(name)
        if pointer is not None:
            return pointer.table_version, store.get(TableVersion, pointer.table_version)
    found = [v for v in store.list(TableVersion) if v.startswith(name)] if len(name) >= 4 else []
    if len(found) != 1:
        raise NoSuchVersion(store, name, found)
    return found[0], store.get(TableVersion, found[0])


def _store(out: pathlib.Path, store: str | None) -> Store:
    return open_existing(store_url(out, store))


def _verdicts_of(store: Store, version_hash: str) -> list[Verdict]:
    """The version's verdicts; damaged ones, of whatever version, are told of and left out."""
    found: list[Verdict] = []
    for name in store.list(Verdict):
        try:
            verdict = store.get(Verdict, name)
        except (StoreError, RecordError) as error:
            terminal(errors=True).print(str(error), markup=False, soft_wrap=True)
            continue
        if verdict.table_version == version_hash:
            found.append(verdict)
    return found


def _newest_verdict(store: Store, version_hash: str) -> str | None:
    verdicts = [(store.get(Verdict, name), name) for name in store.list(Verdict)]
    own = [(v.validated_at, name) for v, name in verdicts if v.table_version == version_hash]
    return max(own)[1] if own else None


def _rows(version: TableVersion) -> list[list[int]]:
    return [[r.first, r.last, r.draft_length] for r in version.table.ranges]


def _tell(move: Move, as_json: bool) -> None:
    pointer = move.pointer
    if as_json:
        print_json(
            {
                "channel": pointer.channel,
                "table_version": pointer.table_version,
                "sequence": pointer.sequence,
                "moved": move.moved,
                "notes": list(move.notes),
            }
        )
        return
    state = "now has" if move.moved else "already had"
    print(f"channel {pointer.channel} {state} table version {pointer.table_version}")
    for note in move.notes:
        print(f"  {note}")
