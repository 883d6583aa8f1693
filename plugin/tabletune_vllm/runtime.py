"""The state of the plugin in one engine: table in force, pin, records, status.

Everything here runs on the engine core's thread, between two steps, so it needs no lock; a
change of table or pin is one reference assignment through `set_lookup`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tabletune_vllm import __version__
from tabletune_vllm.errors import InactiveError, RequestError
from tabletune_vllm.logs import logger, warn_once
from tabletune_vllm.observe import Observer
from tabletune_vllm.ring import StepBatch, StepRing
from tabletune_vllm.script import ScriptedLookup
from tabletune_vllm.tables import checked_length, dense_from_ranges, ranges_from_dense, short

SCRIPT_ENTRIES_MAX = 1024
SCRIPT_STEPS_MAX = 1_000_000
READ_LIMIT_MAX = 16_384


@dataclass(frozen=True)
class EngineFacts:
    """What the seam found out about the engine at start; max_draft_length is K_max."""

    vllm_version: str
    runner: str
    device: str
    method: str
    async_scheduling: bool
    max_num_seqs: int
    max_draft_length: int
    run_id: str
    started_unix_s: float

    @property
    def needs_graphs(self) -> bool:
        """Whether a length outside the boot table would run without a captured graph."""
        return self.runner == "V2" and self.device != "cpu"


class Runtime:
    """Observes and controls one scheduler through the two callables of its seam.

    set_lookup puts a dense table in force for the next step; unhook takes every hook off
    the scheduler. boot_lookup is the scheduler's own list and is put back untouched.
    """

    def __init__(
        self,
        facts: EngineFacts,
        boot_lookup: list[int],
        ring_steps: int,
        set_lookup: Callable[[list[int]], None],
        unhook: Callable[[], None],
    ) -> None:
        self.facts = facts
        self.observer = Observer(StepRing(facts.max_draft_length, ring_steps))
        self.reason: str | None = None
        # What the seam read about captured graphs, once it was asked.
        self.graphs: dict[str, object] | None = None
        self._boot = boot_lookup
        self._table = boot_lookup
        self._pin: int | None = None
        self._script: ScriptedLookup | None = None
        self._set_lookup = set_lookup
        self._unhook = unhook

    @property
    def active(self) -> bool:
        """False once something went wrong; the boot table is in force from then on."""
        return self.reason is None

    @property
    def boot_lengths(self) -> list[int]:
        """The draft lengths of the boot table, ascending."""
        return sorted(set(self._boot[1:]))

    def turn_off(self, reason: str) -> None:
        """Put the boot table back, take the hooks off, say why once. Never raises."""
        if self.reason is not None:
            return
        self.reason = reason
        self._table, self._pin, self._script = self._boot, None, None
        for step in (lambda: self._set_lookup(self._boot), self._unhook):
            try:
                step()
            except Exception as error:
                logger.debug("TableTune: while turning off: %r", error)
        warn_once(f"TableTune is off, the boot table is in force: {reason}")

    def steps(self, since: int, limit: int) -> StepBatch:
        """Records from sequence number `since`, at most `limit`; see StepRing.read."""
        self.observer.disturbed = True
        return self.observer.ring.read(since, min(limit, READ_LIMIT_MAX))

    def status(self) -> dict[str, object]:
        """Everything a client needs to know, as plain values."""
        self.observer.disturbed = True
        facts = self.facts
        return {
            "plugin_version": __version__,
            "active": self.active,
            "reason": self.reason,
            "vllm_version": facts.vllm_version,
            "runner": facts.runner,
            "device": facts.device,
            "method": facts.method,
            "async_scheduling": facts.async_scheduling,
            "max_num_seqs": facts.max_num_seqs,
            "max_draft_length": facts.max_draft_length,
            "run_id": facts.run_id,
            "started_unix_s": facts.started_unix_s,
            "boot_table": ranges_from_dense(self._boot),
            "boot_draft_lengths": self.boot_lengths,
            "table": ranges_from_dense(self._table),
            "pin": self._pin_status(),
            "steps": self.observer.ring.next,
            "ring_steps": self.observer.ring.capacity,
            "totals": self.observer.totals(),
        }

    def pin(self, body: dict[str, object]) -> dict[str, object]:
        """Pin one length, lift the pin, or start a schedule; the last command wins.

        body: {"draft_length": K | null} or {"schedule": [[K, steps], …], "repeat": n}, with
        "allow_uncaptured": true to force a length that has no captured graph.
        """
        self._require_active()
        force = _flag(body, "allow_uncaptured")
        keys = set(body) - {"allow_uncaptured"}
        if keys == {"draft_length"}:
            length = body["draft_length"]
            if length is None:
                self._put(self._table, None, None)
            else:
                length = self._usable_length(length, force)
                self._put([length] * len(self._boot), length, None)
        elif keys in ({"schedule"}, {"schedule", "repeat"}):
            entries = self._entries(body["schedule"], force)
            repeat = _count(body.get("repeat", 1), "repeat")
            script = ScriptedLookup(self._table, entries, repeat, self._script_over)
            self._put(script, None, script)
        else:
            expected = '{"draft_length": K or null} or {"schedule": [[K, steps], …], "repeat": n}'
            raise RequestError(expected, f"keys {sorted(body)}", "send one of the two forms")
        return self.status()

    def swap_table(self, body: dict[str, object]) -> dict[str, object]:
        """Put a table in force and lift any pin; null ranges bring the boot table back.

        body: {"ranges": [[first, last, K], …] | null}, optionally "allow_uncaptured".
        """
        self._require_active()
        force = _flag(body, "allow_uncaptured")
        if set(body) - {"allow_uncaptured"} != {"ranges"}:
            expected = '{"ranges": [[first, last, K], …] or null}'
            raise RequestError(expected, f"keys {sorted(body)}", "send that form")
        if body["ranges"] is None:
            table = self._boot
        else:
            facts = self.facts
            table = dense_from_ranges(body["ranges"], facts.max_num_seqs, facts.max_draft_length)
            for length in sorted(set(table[1:])):
                self._usable_length(length, force)
        self._table = table
        self._put(table, None, None)
        return self.status()

    def _put(self, lookup: list[int], pin: int | None, script: ScriptedLookup | None) -> None:
        self.observer.disturbed = True
        self._set_lookup(lookup)
        self._pin, self._script = pin, script

    def _script_over(self, error: BaseException | None) -> None:
        if error is not None:
            self.turn_off(f"the pin schedule failed: {error!r}")
            return
        self._script = None
        self._set_lookup(self._table)

    def _pin_status(self) -> dict[str, object] | None:
        if self._script is not None:
            script = self._script
            return {
                "schedule": [list(entry) for entry in script.entries],
                "repeat": script.repeat,
                "round": script.round,
                "entry": script.entry,
                "steps_left": script.steps_left,
            }
        return None if self._pin is None else {"draft_length": self._pin}

    def _usable_length(self, value: object, force: bool) -> int:
        length = checked_length(value, self.facts.max_draft_length)
        if self.facts.needs_graphs and length not in self.boot_lengths and not force:
            raise RequestError(
                f"a draft length of the boot table {self.boot_lengths}: only those have graphs",
                repr(length),
                "boot with a table that contains it, or send allow_uncaptured: true",
            )
        return length

    def _entries(self, value: object, force: bool) -> list[tuple[int, int]]:
        expected = f"schedule as 1 to {SCRIPT_ENTRIES_MAX} entries [K, steps]"
        items = cast(list[object], value) if isinstance(value, list) else []
        if not 1 <= len(items) <= SCRIPT_ENTRIES_MAX:
            raise RequestError(expected, short(cast(object, value)), "send such a list")
        entries: list[tuple[int, int]] = []
        for item in items:
            pair = cast(list[object], item) if isinstance(item, list) else []
            if len(pair) != 2:
                raise RequestError(expected, short(cast(object, item)), "correct the entry")
            entries.append((self._usable_length(pair[0], force), _count(pair[1], "steps")))
        return entries

    def _require_active(self) -> None:
        if self.reason is not None:
            raise InactiveError("an active plugin", self.reason, "see the engine's log")


def _count(value: object, name: str) -> int:
    if type(value) is not int or not 1 <= value <= SCRIPT_STEPS_MAX:
        expected = f"{name} as a whole number from 1 to {SCRIPT_STEPS_MAX}"
        raise RequestError(expected, short(value), "correct it")
    return value


def _flag(body: dict[str, object], name: str) -> bool:
    value = body.get(name, False)
    if type(value) is not bool:
        raise RequestError(f"{name} to be true or false", short(value), "correct it")
    return value
