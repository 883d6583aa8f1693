"""Puts tables and probes in force, after the last check of what this engine can run."""

from collections.abc import Sequence

from tabletune.core.controller.routes import Routes
from tabletune_vllm.errors import PluginError
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.live.words import Target
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.tables import ranges_from_dense


class UnusableError(PluginError):
    """A table or a probe that this engine must not run."""


class Applier:
    """The only way from a decision to the lookup."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._target: Target | None = None
        self._routes: Routes | None = None

    def follow(self, target: Target) -> None:
        """Take a version's envelope and transitions as the law from now on.

        Raises:
            UnusableError: the version does not fit this engine.
        """
        _check_table(self._runtime, target, target.table)
        both = {pair for a, b in target.forbidden for pair in ((a, b), (b, a))}
        lengths = {*target.lengths, *self._runtime.boot[1:], *target.table[1:]}
        envelope = target.envelope
        size = self._runtime.facts.max_num_seqs
        self._routes = Routes(lengths, both, size, envelope)
        self._target = target

    def put(self, table: Sequence[int]) -> None:
        """Put a dense table in force: the boot table, or one within the envelope.

        Raises:
            UnusableError: naming the first pair that is neither.
        """
        if self._target is not None and tuple(table) != self._runtime.boot:
            _check_table(self._runtime, self._target, table)
        self._runtime.put_base(table, self._routes)

    def put_boot(self) -> None:
        """The engine as it was started: no table of ours, no hold of transitions."""
        self._runtime.put_base(self._runtime.boot, None)

    def probe(self, entries: Sequence[tuple[int, int]]) -> None:
        """Run each length for so many steps, once.

        Raises:
            UnusableError: a length that the version's envelope does not have.
        """
        allowed = frozenset[int]() if self._target is None else self._target.lengths
        for length, steps in entries:
            if length not in allowed or steps < 1:
                raise UnusableError(
                    f"probes of {sorted(allowed)}", repr((length, steps)), "report this as a fault"
                )
        self._runtime.probe(entries)


def _check_table(runtime: Runtime, target: Target, table: Sequence[int]) -> None:
    facts: EngineFacts = runtime.facts
    boot = runtime.boot
    if len(table) != len(boot):
        raise UnusableError(
            f"a table for {facts.max_num_seqs} requests", str(len(table) - 1), "promote another"
        )
    usable = set(boot[1:]) if facts.needs_graphs else set(range(facts.max_draft_length + 1))
    for batch_size in range(1, len(table)):
        length = table[batch_size]
        if length not in usable:
            raise UnusableError(
                f"draft lengths of {sorted(usable)}",
                f"{length} at batch size {batch_size}",
                "boot with a table that contains it",
            )
        if not target.envelope(batch_size, length):
            raise UnusableError(
                "a table within its version's envelope",
                f"draft length {length} at batch size {batch_size}",
                "qualify and promote again",
            )


def difference(before: Sequence[int], after: Sequence[int]) -> str:
    """From what to what, in the form of vLLM's option."""
    return f"{ranges_from_dense(before)} -> {ranges_from_dense(after)}"
