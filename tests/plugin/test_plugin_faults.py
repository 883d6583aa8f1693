"""An exception at every line of the seam: vLLM gets its own result and its own table.

A tracer raises once, just before the n-th executed line of the plugin's files that run in or
beside a step. Left alone are lines in which nothing of ours runs: `try:`, the call of vLLM's
own function, the return of its result, and the call of the guard around every endpoint.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import fake_vllm
import pytest

import tabletune_vllm
from tabletune.core.controller import routes
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.core import wrap_core
from tabletune_vllm.seam.hooks import MARK, wrap_scheduler
from tabletune_vllm.seam.utilities import add_utilities
from tabletune_vllm.settings import Settings

FOLDER = Path(tabletune_vllm.__file__).parent
STEP_FILES = [
    *(FOLDER / "seam" / name for name in ("hooks.py", "step_hooks.py", "steps.py", "core.py")),
    *(FOLDER / name for name in ("observe.py", "step.py", "lookup.py", "ring.py")),
    Path(routes.__file__),
]
CALL_FILES = [FOLDER / "seam" / "utilities.py", FOLDER / "seam" / "graphs.py"]
VLLMS_OWN = (
    "try:",
    "original(self, *args, **kwargs)",
    "result = original(self, *args, **kwargs)",
    "if after:",
    "if not after:",
    "try_to_begin(self, settings)",
    "result = update(scheduler_output, model_runner_output)",
    "return result",
    "return make_stats(*args, **kwargs)",
    "count_silently(spec_decoding_stats, *arguments)",
    "return count_request(spec_decoding_stats, *arguments)",
    "arguments = num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id",
)
BOOT = [0, 3, 3, 1, 0]


class InjectedError(Exception):
    """Raised by the tracer."""


class Injector:
    """Raises before the n-th line executed in the given files; counts them otherwise."""

    def __init__(self, files: list[Path], at: int | None) -> None:
        self.files = {str(path): path.read_text().splitlines() for path in files}
        self.at = at
        self.seen = 0
        self.where: str | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line" and self.where is None:
            text = self.files[frame.f_code.co_filename][frame.f_lineno - 1].strip()
            if text not in VLLMS_OWN and not text.startswith("return guarded("):
                if self.seen == self.at:
                    self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {text}"
                    raise InjectedError(self.where)
                self.seen += 1
        return self._line


class Scenario:
    """One engine from its start through steps of all kinds and calls of all endpoints."""

    def __init__(self, log_stats: bool) -> None:
        class Scheduler(fake_vllm.Scheduler):
            pass

        class Core(fake_vllm.EngineCore):
            pass

        settings = Settings(measure=True, ring_steps=256)
        wrap_scheduler(Scheduler, settings, "0.32.0")
        wrap_core(Core, Core, settings)
        add_utilities(Core, "0.32.0", None)
        self.make: Callable[[], Any] = lambda: Core(Scheduler(list(BOOT), log_stats=log_stats))
        self.core: Any = None

    def start(self) -> None:
        self.core = self.make()
        self.core.run_busy_loop()

    def steps(self) -> list[bool]:
        """Whether each step's result was vLLM's own: the very object, and its statistics."""
        scheduler = self.core.scheduler
        good: list[bool] = []
        for number, batch in enumerate((2, 2, 3, 3, 1, 0, 2, 2, 4)):
            output, model_output = scheduler.decode(batch, accepted=number % 3)
            if number in (2, 6):
                output.scheduled_new_reqs = [type("New", (), {"req_id": f"r{batch - 1}"})()]
                output.scheduled_cached_reqs.req_ids.pop()
                output.scheduled_cached_reqs.num_output_tokens.pop()
            if number == 3:
                output.num_invalid_spec_tokens = {"r0": 1}
            if number == 4:
                output.scheduled_cached_reqs.num_output_tokens[0] = 0
            result = scheduler.update_from_output(output, model_output)
            drafts = len(output.scheduled_spec_decode_tokens)
            counted = drafts if scheduler.log_stats and drafts else None
            found = result["stats"] and result["stats"].num_drafts
            good.append(result["of"] is output and found == counted)
        return good

    def calls(self) -> list[Any]:
        """The replies of all endpoints."""
        core = self.core
        return [
            core.tabletune_status(),
            core.tabletune_metrics(),
            core.tabletune_graphs(),
            core.tabletune_steps(0, 10),
            core.tabletune_table({"ranges": [[1, 4, 2]]}),
            core.tabletune_pin({"schedule": [[1, 1], [0, 1]]}),
        ]


def _lines(run: Callable[[], object], files: list[Path]) -> int:
    injector = Injector(files, None)
    with injector.watching():
        run()
    return injector.seen


@pytest.mark.parametrize("log_stats", [True, False])
def test_an_exception_at_any_line_of_a_step(log_stats: bool) -> None:
    whole = Scenario(log_stats)
    whole.start()
    total = _lines(whole.steps, STEP_FILES)
    assert total > 300
    for at in range(total):
        scenario = Scenario(log_stats)
        scenario.start()
        scenario.core.tabletune_table({"ranges": [[1, 4, 1]]})
        injector = Injector(STEP_FILES, at)
        with injector.watching():
            good = scenario.steps()
        assert all(good), injector.where
        if injector.where is None:
            continue  # another table, another number of lines
        _is_as_booted(scenario, injector.where)


@pytest.mark.parametrize("log_stats", [True, False])
def test_an_exception_at_any_line_of_the_start(log_stats: bool) -> None:
    total = _lines(Scenario(log_stats).start, STEP_FILES)
    assert total > 40
    hooked = 0
    for at in range(total):
        scenario = Scenario(log_stats)
        injector = Injector(STEP_FILES, at)
        with injector.watching():
            scenario.start()
        assert injector.where is not None
        found = vars(scenario.core.scheduler).get(MARK)
        if isinstance(found, Runtime) and found.active:
            hooked += 1  # the line after which nothing was left to fail
        else:
            _is_as_booted(scenario, injector.where)
        assert all(scenario.steps()), injector.where
    assert hooked <= 3


def test_an_exception_at_any_line_of_a_call_is_an_error_reply_and_serving_goes_on() -> None:
    whole = Scenario(True)
    whole.start()
    total = _lines(whole.calls, CALL_FILES)
    assert total > 40
    for at in range(total):
        scenario = Scenario(True)
        scenario.start()
        injector = Injector(CALL_FILES, at)
        with injector.watching():
            replies = scenario.calls()
        assert all(isinstance(reply, dict) for reply in replies), injector.where
        assert all(scenario.steps()), injector.where


def _is_as_booted(scenario: Scenario, where: str) -> None:
    scheduler = scenario.core.scheduler
    assert type(scheduler.dynamic_sd_lookup) is list, where
    assert scheduler.dynamic_sd_lookup == BOOT, where
    assert not {"update_from_output", "make_stats", "make_spec_decoding_stats"} & set(
        vars(scheduler)
    ), where
    status = scenario.core.tabletune_status()
    assert status["active"] is False, where
    assert status["reason"], where
    assert scenario.core.tabletune_metrics()["active"] is False, where
