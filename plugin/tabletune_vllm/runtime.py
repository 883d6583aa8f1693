"""The state of the plugin in one engine: what is in force and why, records, status.

What is in force, from the top: a pin or schedule set by hand, a table set by hand, the base
table (the controller's, and the boot table before it has one). The engine core's thread gives
the commands of the endpoints, between two steps; the background thread gives the base table.
Neither waits for the other for longer than it takes to put a new plan together.
"""

import threading
from collections.abc import Callable, Sequence

from tabletune.core.controller.routes import Routes
from tabletune_vllm import __version__
from tabletune_vllm.commands import Commands
from tabletune_vllm.errors import InactiveError
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.logs import logger, warn_once
from tabletune_vllm.lookup import LiveLookup, Plan, Script
from tabletune_vllm.observe import Observer
from tabletune_vllm.ring import StepBatch, StepRing
from tabletune_vllm.tables import ranges_from_dense

READ_LIMIT_MAX = 16_384


class Runtime:
    """Observes and controls one scheduler through the two callables of its seam.

    set_lookup puts a list where the scheduler reads its table; unhook takes every hook off
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
        self.observer.failed = self.turn_off
        self.reason: str | None = None
        # What the seam read about captured graphs, once it was asked.
        self.graphs: dict[str, object] | None = None
        # The controller's share of the status, where a source is followed.
        self.live_status: Callable[[], dict[str, object]] | None = None
        # Set in a forked child: called at its first step, it starts the threads anew.
        self.start: Callable[[], None] | None = None
        self.boot = tuple(boot_lookup)
        self.swaps = 0
        self._boot_list = boot_lookup
        self._commands = Commands(facts, self.boot_lengths)
        self._base: tuple[int, ...] = self.boot
        self._routes: Routes | None = None
        self._probe: Script | None = None
        self._hand_table: tuple[int, ...] | None = None
        self._pin: int | None = None
        self._schedule: Script | None = None
        self._lock = threading.Lock()
        self._set_lookup = set_lookup
        self._unhook = unhook
        self.lookup = LiveLookup(boot_lookup, self._lookup_failed)
        set_lookup(self.lookup)

    @property
    def active(self) -> bool:
        """False once something went wrong; the boot table is in force from then on."""
        return self.reason is None

    @property
    def boot_lengths(self) -> list[int]:
        """The draft lengths of the boot table, ascending."""
        return sorted(set(self.boot[1:]))

    @property
    def suspended(self) -> str | None:
        """What was set by hand and goes before the base table, or None."""
        if self._pin is not None:
            return f"draft length {self._pin} is pinned by hand"
        if self._schedule is not None and not self._schedule.done:
            return "a schedule set by hand is running"
        return None if self._hand_table is None else "a table is set by hand"

    @property
    def table(self) -> tuple[int, ...]:
        """The dense table in force when nothing is pinned."""
        if not self.active:
            return self.boot
        return self._base if self._hand_table is None else self._hand_table

    @property
    def base(self) -> tuple[int, ...]:
        """The dense table in force when nothing is set by hand."""
        return self._base

    def turn_off(self, reason: str) -> None:
        """Put the boot table back, take the hooks off, say why once. Never raises."""
        if self.reason is not None:
            return
        self.reason = reason
        self.observer.patience_s = 0.0
        self._pin = self._schedule = self._hand_table = self._probe = self._routes = None
        self._base = self.boot
        for step in (lambda: self._set_lookup(self._boot_list), self._unhook):
            try:
                step()
            except Exception as error:
                logger.debug("TableTune: while turning off: %r", error)
        warn_once(f"TableTune is off, the boot table is in force: {reason}")

    def orphan(self, start: Callable[[], None]) -> None:
        """In a forked child: a lock that another thread held is held there for ever."""
        self._lock = threading.Lock()
        self.observer.orphan()
        self.start = start

    def start_again(self) -> None:
        """Start the threads that this forked process lacks."""
        start, self.start = self.start, None
        if start is not None:
            start()

    def put_base(self, table: Sequence[int], routes: Routes | None) -> None:
        """Put a base table in force from the next step on and end any probe."""
        with self._lock:
            self.swaps += tuple(table) != self._base
            self._base, self._routes, self._probe = tuple(table), routes, None
            self._compose()

    def probe(self, entries: Sequence[tuple[int, int]]) -> None:
        """Choose each length for so many steps, once, wherever its envelope allows it."""
        with self._lock:
            self._probe = Script(entries, guarded=True)
            self._compose()

    def steps(self, since: int, limit: int) -> StepBatch:
        """Records from sequence number `since`, at most `limit`; see StepRing.read."""
        self.observer.disturbed = True
        return self.observer.ring.read(since, min(limit, READ_LIMIT_MAX))

    def status(self) -> dict[str, object]:
        """Everything a client needs to know, as plain values."""
        self.observer.disturbed = True
        facts = self.facts
        live = self.live_status
        return {
            "plugin_version": __version__,
            "active": self.active,
            "reason": self.reason,
            "vllm_version": facts.vllm_version,
            "runner": facts.runner,
            "device": facts.device,
            "method": facts.method,
            "model": facts.model,
            "async_scheduling": facts.async_scheduling,
            "max_num_seqs": facts.max_num_seqs,
            "max_draft_length": facts.max_draft_length,
            "run_id": facts.run_id,
            "started_unix_s": facts.started_unix_s,
            "boot_table": ranges_from_dense(self.boot),
            "boot_draft_lengths": self.boot_lengths,
            "table": ranges_from_dense(self.table),
            "pin": self._pin_status(),
            "swaps": self.swaps,
            "steps": self.observer.ring.next,
            "ring_steps": self.observer.ring.capacity,
            "totals": self.observer.totals(),
            "controller": None if live is None else live(),
        }

    def pin(self, body: dict[str, object]) -> dict[str, object]:
        """Pin one length, lift the pin, or start a schedule; the last command wins."""
        self._require_active()
        command = self._commands.pin(body)
        self.observer.disturbed = True
        with self._lock:
            self._pin = command.length
            self._schedule = Script(command.entries, command.repeat) if command.entries else None
            self._compose()
        return self.status()

    def swap_table(self, body: dict[str, object]) -> dict[str, object]:
        """Put a table in force and lift any pin; null ranges bring the base table back."""
        self._require_active()
        table = self._commands.table(body)
        self.observer.disturbed = True
        with self._lock:
            self._hand_table = None if table is None else tuple(table)
            self._pin = self._schedule = None
            self._compose()
        return self.status()

    def settle(self) -> None:
        """Put the base table back under its own law once a schedule set by hand is over."""
        with self._lock:
            self._compose()

    def _compose(self) -> None:
        """One reference assignment puts everything in force that was decided."""
        if not self.active:
            return
        hand = self._hand_table
        if self._schedule is not None and self._schedule.done:
            self._schedule = None
        if self._pin is not None:
            plan = Plan((self._pin,) * len(self.boot))
        elif self._schedule is not None or hand is not None:
            plan = Plan(hand or self._base, None, self._schedule)
        else:
            plan = Plan(self._base, self._routes, self._probe)
        self.lookup.plan = plan

    def _lookup_failed(self, error: BaseException) -> None:
        self.turn_off(f"looking up a draft length failed: {error!r}")

    def _pin_status(self) -> dict[str, object] | None:
        script = self._schedule
        if script is not None and not script.done:
            return {
                "schedule": [list(entry) for entry in script.entries],
                "repeat": script.repeat,
                "round": script.round,
                "entry": script.entry,
                "steps_left": script.steps_left,
            }
        return None if self._pin is None else {"draft_length": self._pin}

    def _require_active(self) -> None:
        if self.reason is not None:
            raise InactiveError("an active plugin", self.reason, "see the engine's log")
