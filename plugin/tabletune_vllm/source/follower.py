"""Follows a channel's pointer: polls the source, checks what it finds, remembers what is good."""

import random
from dataclasses import replace

from tabletune.records.base import RecordError
from tabletune.records.control import MAX_CONTROL_BYTES, Mode
from tabletune.records.pointer import Pointer
from tabletune.store.errors import StoreError, StoreUnreachable, StoreUnwritable
from tabletune.store.layout import control_key, live_key, pointer_key
from tabletune.store.signing import SignatureWrong
from tabletune.store.source import Source
from tabletune_vllm.source.answers import (
    Answer,
    NewVersion,
    Refused,
    SwitchedOff,
    Unchanged,
    Unreachable,
)
from tabletune_vllm.source.cache import VersionCache
from tabletune_vllm.source.control import Switch
from tabletune_vllm.source.loading import MAX_POINTER_BYTES, DoesNotFit, Loaded, Loader
from tabletune_vllm.source.schedule import Schedule

MAX_TOLD_BYTES = 256 * 1024


class Follower:
    """One engine's view of a channel. No method raises.

    `poll` and `tell` belong to one thread; `mode` and `status` may be read from any. At most
    one version is held at a time, and only while it is given.
    """

    def __init__(
        self,
        source: Source,
        loader: Loader,
        cache: VersionCache | None,
        ceiling: Mode,
        poll_s: float,
        rng: random.Random,
    ) -> None:
        self._source, self._loader, self._cache = source, loader, cache
        self._switch = Switch(loader.channel, ceiling)
        self._schedule = Schedule(poll_s, rng)
        self._tag = ""  # of the pointer that was last dealt with
        self._standing: Answer = Unchanged()  # the answer for as long as that tag stays
        self._state = ""  # the state in force: of the version that was given last
        self._sequence = 0  # of the newest pointer that can be trusted
        self._newest = ""
        self._version = ""
        self._complete, self._retries = True, 0
        self._cache_read = self._remembered = False
        # In words only: an answer may hold a version of many megabytes.
        self._last = ("", "not asked yet")
        self._told = ""

    @property
    def mode(self) -> Mode:
        """What the engine may do: its own ceiling or what the source's switch says, the lower."""
        return self._switch.mode

    def due(self, now_s: float) -> bool:
        """Whether it is time for `poll`."""
        return self._schedule.due(now_s)

    def poll(self, now_s: float) -> Answer:
        """Ask the source whether there is something new; before its time, Unchanged."""
        if not self.due(now_s):
            return Unchanged()
        try:
            answer = self._ask()
        except Exception as error:
            answer = Unreachable(f"the source could not be followed: {error!r}")
        if not self._state and isinstance(answer, Refused | Unreachable):
            answer = self._from_cache(answer)
        reached = not isinstance(answer, Unreachable) and not (
            isinstance(answer, NewVersion) and answer.from_cache
        )
        self._schedule.asked(now_s, reached)
        self._last = (type(answer).__name__, answer.reason)
        return answer

    def tell(self, name: str, data: bytes) -> str | None:
        """Write what this engine has to tell under the source; None, or why it was not written.

        name: of this engine; what it told before is overwritten.
        """
        try:
            if len(data) > MAX_TOLD_BYTES:
                return f"{len(data)} bytes are more than the {MAX_TOLD_BYTES} that are written"
            self._source.write(live_key(self._loader.channel, name), data)
            self._told = ""
        except Exception as error:
            self._told = str(error)
            return self._told
        return None

    def status(self) -> dict[str, object]:
        """Everything that an operator may want to know, as plain values."""
        keys, cache = self._loader.keys, self._cache
        return {
            "source": self._source.url,
            "channel": self._loader.channel,
            "mode": self.mode,
            "switch": self._switch.words,
            "version": self._version,
            "sequence": self._sequence,
            "answer": self._last[0],
            "reason": self._last[1],
            "failures": self._schedule.failures,
            "signed_by": None if keys is None else sorted(keys.keys),
            "cache": None if cache is None else str(cache.folder),
            "cache_problem": "" if cache is None else cache.problem,
            "told_problem": self._told,
        }

    def _ask(self) -> Answer:
        known = self._switch.data
        try:
            self._switch.read(self._source)
        except StoreError as error:
            return _failed(error)
        if self._cache is not None and self._switch.data != known:
            self._cache.save_control(self._switch.data)
        if self._switch.mode == "off":
            return SwitchedOff(f"the source's switch: {self._switch.words}")
        return self._ask_pointer()

    def _ask_pointer(self) -> Answer:
        channel = self._loader.channel
        try:
            blob = self._source.read(pointer_key(channel), MAX_POINTER_BYTES, self._tag)
        except StoreError as error:
            return _failed(error)
        if blob is None:
            self._tag = ""
            kept = "; the version in force stays" if self._state else ""
            return Refused(f"channel {channel!r} has no version in {self._source.url}{kept}")
        if blob.unchanged:
            return self._standing if self._complete else self._complete_version()
        return self._settle(blob.data, blob.tag)

    def _settle(self, data: bytes, tag: str) -> Answer:
        """Deal with a pointer that was not seen before; what may pass is tried again later."""
        self._tag = ""
        self._remember()
        try:
            pointer, state = self._loader.pointer(self._source, data)
            old = self._replayed(pointer, state)
            if old:
                return self._stand(Refused(old, lasting=True), tag)
            self._sequence, self._newest = pointer.sequence, state
            if state == self._state and self._complete:
                return self._stand(Unchanged(), tag)
            loaded = self._loader.version(self._source, pointer)
        except (SignatureWrong, DoesNotFit) as error:
            return self._stand(Refused(str(error), lasting=True), tag)
        except (StoreError, RecordError) as error:
            return _failed(error)
        same = state == self._state and not loaded.complete
        self._take(loaded, state, data)
        self._stand(Unchanged(), tag)
        return Unchanged() if same else loaded.new

    def _remember(self) -> None:
        """How far the channel had come when this kind of engine last followed it."""
        if self._cache is None or self._remembered:
            return
        self._remembered = True
        try:
            key = pointer_key(self._loader.channel)
            blob = self._cache.source.read(key, MAX_POINTER_BYTES)
            if blob is not None:
                pointer, state = self._loader.pointer(self._cache.source, blob.data)
                self._sequence, self._newest = pointer.sequence, state
        except (StoreError, RecordError) as error:
            self._cache.problem = f"it holds nothing that can be used: {error}"

    def _replayed(self, pointer: Pointer, state: str) -> str:
        """Why the pointer is an old one, put back without a move of its own; empty if not."""
        if pointer.sequence > self._sequence or state == self._newest:
            return ""
        kind = "older than" if pointer.sequence < self._sequence else "not the same as"
        advice = "a roll-back is a move of its own with a higher number"
        if self._cache is not None:
            advice += f"; if the store was made anew, remove {self._cache.folder} and restart"
        return (
            f"the source shows move {pointer.sequence} of channel {pointer.channel!r}, which is "
            f"{kind} move {self._sequence} that was seen before: {advice}"
        )

    def _take(self, loaded: Loaded, state: str, data: bytes) -> None:
        self._state, self._version = state, loaded.new.name
        if loaded.complete or self._complete:
            self._retries = 0
        self._complete = loaded.complete
        if self._cache is not None:
            self._cache.save(data, loaded.objects)

    def _stand(self, answer: Unchanged | Refused, tag: str) -> Answer:
        """The answer for as long as the pointer keeps its tag."""
        self._tag, self._standing = tag, answer
        return answer

    def _complete_version(self) -> Answer:
        """Look again for what the version in force came from."""
        self._retries += 1
        if self._retries & (self._retries - 1):  # ever more rarely
            return Unchanged()
        blob = self._source.read(pointer_key(self._loader.channel), MAX_POINTER_BYTES)
        return Unchanged() if blob is None else self._settle(blob.data, blob.tag)

    def _from_cache(self, instead: Refused | Unreachable) -> Answer:
        """The last good version of before, once, in place of an answer that gives none."""
        if self._cache is None or self._cache_read:
            return instead
        self._cache_read = True
        try:
            self._read_cached_switch(self._cache.source)
            loaded = None if self.mode == "off" else self._cached(self._cache.source)
        except Exception as error:
            self._cache.problem = f"it holds nothing that can be used: {error}"
            return instead
        if loaded is None:
            return instead
        self._complete = loaded.complete
        note = f"from the cache, because {instead.reason}"
        return replace(loaded.new, from_cache=True, notes=(note, *loaded.new.notes))

    def _read_cached_switch(self, cached: Source) -> None:
        """What the switch said when the source was last reached."""
        if not self._switch.known:
            blob = cached.read(control_key(self._loader.channel), MAX_CONTROL_BYTES)
            if blob is not None:
                self._switch.take(blob.data)

    def _cached(self, cached: Source) -> Loaded | None:
        blob = cached.read(pointer_key(self._loader.channel), MAX_POINTER_BYTES)
        if blob is None:
            return None
        pointer, state = self._loader.pointer(cached, blob.data)
        loaded = self._loader.version(cached, pointer)
        self._sequence, self._newest = pointer.sequence, state
        self._state, self._version = state, loaded.new.name
        return loaded


def _failed(error: StoreError | RecordError) -> Refused | Unreachable:
    """What asking again may help against, apart from what somebody has to put right."""
    if isinstance(error, StoreUnreachable | StoreUnwritable):
        return Unreachable(str(error))
    return Refused(str(error))
