"""Greedy output with each draft length against the output without drafts.

Verifying K drafts changes the shapes of the engine's matrix products, and so the last bits
of its logits: near ties may flip, and from there on the text differs. How often that
happens is learnt from length 0 against itself, at the same and at batch size 1. What an
engine with a fault does is different in kind: it diverges within a few tokens, on most
prompts.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tabletune.measure.load import LoadRequest
from tabletune.measure.qualify_drive import Driver
from tabletune.measure.qualify_findings import Finding
from tabletune.measure.qualify_options import QualifyOptions
from tabletune.measure.qualify_phases import Drives
from tabletune.measure.qualify_result import check_of
from tabletune.measure.quiet import Quiet
from tabletune.records.qualification import Check

#: Divergences per token below this are never held against a length.
TOLERATED_RATE = 0.08
#: A length may diverge so many times as often as length 0 from itself.
TOLERATED_RATIO = 4.0

Output = list[Any]


@dataclass(frozen=True)
class Divergence:
    """How outputs compare with their baseline: over all prompts."""

    prompts: int
    diverged: int
    matched_tok: int

    @property
    def rate(self) -> float:
        """Divergences per token compared."""
        return self.diverged / max(1, self.matched_tok + self.diverged)

    def __str__(self) -> str:
        return (
            f"{self.diverged} of {self.prompts} outputs differ, after {self.matched_tok} equal "
            "tokens in all"
        )


def compare_outputs(baseline: Sequence[Output], outputs: Sequence[Output]) -> Divergence:
    """Compare prompt by prompt, up to the shorter of the two; pairs beyond the shorter list
    are left out."""
    diverged = matched = 0
    pairs = list(zip(baseline, outputs, strict=False))
    for expected, found in pairs:
        length = min(len(expected), len(found))
        equal = next((i for i in range(length) if expected[i] != found[i]), length)
        matched += equal
        diverged += equal < length
    return Divergence(len(pairs), diverged, matched)


def differs_too_much(own: Divergence, length: Divergence) -> bool:
    """Whether a length diverges beyond what `own`, length 0 against itself, explains."""
    enough = length.diverged >= max(2, (length.prompts + 1) // 2)
    return enough and length.rate > max(TOLERATED_RATE, TOLERATED_RATIO * own.rate)


def judge_output(
    own: Divergence, found: Divergence, again: Callable[[], Divergence], length: int, size: int
) -> tuple[list[Finding], str]:
    """The verdict on one length; a failing one is generated again before it fails.

    Returns:
        No finding or one, and what was seen, in words.
    """
    if differs_too_much(own, found):
        found = again()
    text = f"{found}; length 0 against itself: {own}"
    if differs_too_much(own, found):
        return [Finding("output", size, length, f"greedy output changes: {text}")], text
    return [], text


RunPrompts = Callable[[Sequence[LoadRequest], int], list[Output]]


def http_prompts(driver: Driver, model: str) -> RunPrompts:
    """Runs prompts over HTTP, so many at once; outputs as token ids, in the prompts' order.

    Engines that do not return token ids are compared by characters.
    """

    def run(requests: Sequence[LoadRequest], concurrency: int) -> list[Output]:
        outputs: list[Output | None] = [None] * len(requests)
        errors = list[Exception]()
        waiting = list(range(len(requests)))[::-1]
        lock = threading.Lock()

        def work() -> None:
            while not errors:
                with lock:
                    if not waiting:
                        return
                    index = waiting.pop()
                request = requests[index]
                try:
                    sampling = {"temperature": 0, "return_token_ids": True, **request.extra}
                    body = driver.api.complete(
                        model, request.prompt, request.max_tokens, **sampling
                    )
                    choice = body["choices"][0]
                    outputs[index] = list(choice.get("token_ids") or choice["text"])
                except Exception as error:  # handed to the caller's thread
                    errors.append(error)

        # Daemons: a hung engine must not keep this process from ending.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(concurrency)]
        for thread in threads:
            thread.start()
        quiet = Quiet(driver.clock)
        while any(thread.is_alive() for thread in threads) and not errors:
            threads[0].join(0.05)
            for thread in threads[1:]:
                thread.join(0.001)
            quiet.look(bool(len(driver.read_steps())))
            driver.check_alive(quiet)
        if errors:
            error = errors[0]

            def fail() -> list[Output]:
                raise error

            return driver.call(fail)
        return [output for output in outputs if output is not None]

    return run


def check_greedy_output(
    drives: Drives, options: QualifyOptions, run: RunPrompts, checks: list[Check]
) -> list[Finding]:
    """Generate with each length pinned and compare with length 0; `checks` grows.

    Nothing is checked on an engine without a length 0: there is no baseline.

    Raises:
        EngineFault: the engine died, hangs, or refuses the prompts.
    """
    if 0 not in drives.lengths:
        return []
    driver, findings = drives.driver, list[Finding]()
    requests = [
        LoadRequest(r.prompt, options.output_tok, r.extra)
        for r in drives.requests[: options.output_prompts]
    ]
    size, half = min(len(requests), drives.max_num_seqs), max(1, len(requests) // 2)

    def outputs(length: int, prompts: int, concurrency: int) -> list[Output]:
        driver.doing = f"greedy output at draft length {length}"
        driver.call(lambda: driver.api.pin(length))
        return run(requests[:prompts], concurrency)

    def against_baseline(length: int) -> Divergence:
        return compare_outputs(baseline, outputs(length, len(requests), size))

    drives.progress.start("qualify: greedy output", float(len(drives.lengths)))
    baseline = outputs(0, len(requests), size)
    repeated = [*outputs(0, len(requests), size), *outputs(0, half, 1)]
    own = compare_outputs([*baseline, *baseline[:half]], repeated)
    for done, length in enumerate(k for k in drives.lengths if k > 0):
        drives.progress.advance(float(done + 1), f"draft length {length}")
        found = against_baseline(length)
        again = functools.partial(against_baseline, length)
        faults, text = judge_output(own, found, again, length, size)
        findings += faults
        name = f"greedy output at draft length {length}"
        checks.append(check_of(name, faults, size, length, text))
    return findings
