"""What a request must hold before anything is started, each refusal naming its option.

Everything that can be told from the request alone is refused here: a run that ends after
minutes of measuring because of a wrong option is the worst way to find out.
"""

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tabletune.measure.compat import KNOWN_METHODS, plain_method
from tabletune.records.base import MAX_BATCH_SIZE, MAX_DRAFT_LENGTH
from tabletune.records.pointer import CHANNEL_PATTERN
from tabletune.records.text import DECIDED
from tabletune.records.vllm_format import MAXIMUM, SETTING

#: Engine arguments that would contradict the run, besides those that the table decides: where
#: the engine listens and what it serves, and what hides it from TableTune.
RESERVED = (
    *DECIDED,
    "--model",
    "--host",
    "--port",
    "--uds",
    "--api-key",
    "--ssl-certfile",
    "--ssl-keyfile",
    "--headless",
    "--disable-log-stats",
)
#: Keys of the speculative config with options of their own, and those the table decides.
RESERVED_KEYS = {"method": "--method", "model": "--drafter", MAXIMUM: "--max-draft-length"}


class RequestError(ValueError):
    """A run was asked for with options that do not fit together.

    Attributes:
        option: the option's name as on the command line.
    """

    def __init__(self, option: str, expected: str, found: object, advice: str) -> None:
        self.option = option
        super().__init__(f"{option}: expected {expected}, found {found!r}; {advice}")


def flag_of(argument: str) -> str:
    """The name of an engine argument as vLLM reads it: without value and dotted key, dashes.

    >>> flag_of("--speculative_config.method=ngram")
    '--speculative-config'
    """
    return argument.split("=", 1)[0].split(".", 1)[0].replace("_", "-")


def option(arguments: tuple[str, ...], name: str) -> str | None:
    """The value of ``--name VALUE`` or ``--name=VALUE``, dashes or underscores; the last one.

    >>> option(("--seed", "1", "--seed=2"), "--seed")
    '2'
    """
    found = None
    for index, argument in enumerate(arguments):
        if flag_of(argument) == name:
            _, given, value = argument.partition("=")
            if given:
                found = value
            elif index + 1 < len(arguments):
                found = arguments[index + 1]
    return found


def check_engine_args(arguments: Sequence[str]) -> None:
    """Refuse arguments that TableTune sets; vLLM's parser takes beginnings of names, too.

    Raises:
        RequestError: one is among them.
    """
    for argument in arguments:
        flag = flag_of(argument)
        begins = flag.startswith("--") and len(flag) > len("--") + 2
        if flag in RESERVED or (begins and any(name.startswith(flag) for name in RESERVED)):
            advice = "leave it out, or use tabletune's own option for it (tabletune run --help)"
            raise RequestError("--engine-arg", "no argument that tabletune sets", argument, advice)


def check_limits(max_draft_length: int, max_num_seqs: int, lengths: Iterable[int]) -> None:
    """Refuse what no record or engine could hold.

    Raises:
        RequestError: a number is out of range.
    """
    if not 1 <= max_draft_length <= MAX_DRAFT_LENGTH:
        expected = f"1 to {MAX_DRAFT_LENGTH}"
        raise RequestError("--max-draft-length", expected, max_draft_length, "4 is a good start")
    if not 1 <= max_num_seqs <= MAX_BATCH_SIZE:
        expected, advice = f"1 to {MAX_BATCH_SIZE}", "it is vLLM's option of the same name"
        raise RequestError("--max-num-seqs", expected, max_num_seqs, advice)
    bad = [k for k in lengths if not 0 <= k <= max_draft_length]
    if bad:
        advice = "raise --max-draft-length or drop them"
        raise RequestError("--lengths", f"lengths within 0 … {max_draft_length}", bad, advice)


def check_room(all_lengths: Sequence[int], max_num_seqs: int) -> None:
    """Refuse more draft lengths than batch sizes: a measuring engine's boot table names each.

    Raises:
        RequestError: there are.
    """
    if len(all_lengths) > max_num_seqs:
        expected = f"{len(all_lengths)} or more, one for each of the draft lengths {all_lengths}"
        advice = "raise it, or choose fewer with --lengths or --max-draft-length"
        raise RequestError("--max-num-seqs", expected, max_num_seqs, advice)


def check_method(method: str) -> None:
    """Refuse a method that vLLM does not have; what a version does with it is asked later.

    Raises:
        RequestError: vLLM knows no such method.
    """
    if plain_method(method) not in KNOWN_METHODS:
        near = difflib.get_close_matches(method.lower(), KNOWN_METHODS, 1)
        advice = f"write {near[0]}" if near else "name the drafter's kind as vLLM does"
        raise RequestError("--method", f"one of {', '.join(_methods())}", method, advice)


def _methods() -> list[str]:
    """All methods with which a table can be tuned, for messages."""
    return sorted(KNOWN_METHODS - {"custom_class"})


def check_positive(option: str, value: float | None) -> None:
    """Refuse what is not a finite number above 0; None is left to its default.

    Raises:
        RequestError: it is not.
    """
    if value is not None and not (math.isfinite(value) and value > 0):
        raise RequestError(option, "a number above 0", value, "correct it or leave it out")


def check_concurrencies(concurrencies: Iterable[int], max_num_seqs: int) -> None:
    """Refuse concurrencies that no batch can follow.

    Raises:
        RequestError: one is below 1 or above `max_num_seqs`.
    """
    bad = [c for c in concurrencies if not 1 <= c <= max_num_seqs]
    if bad:
        advice = "requests beyond --max-num-seqs only wait; drop them or raise it"
        raise RequestError("--concurrency", f"numbers within 1 … {max_num_seqs}", bad, advice)


def check_speculative(extra: dict[str, Any]) -> None:
    """Refuse keys that have an option of their own or that the table decides.

    Raises:
        RequestError: one is among them.
    """
    for key in extra:
        if key == SETTING:
            advice = "leave it out: finding it is what the run is for"
            raise RequestError("--speculative", "no draft-length table", key, advice)
        if key in RESERVED_KEYS:
            advice = f"use {RESERVED_KEYS[key]}"
            raise RequestError("--speculative", "no key with an option of its own", key, advice)


def check_channel_name(channel: str) -> None:
    """Refuse a name that no store would take.

    Raises:
        RequestError: it is none.
    """
    if not re.fullmatch(CHANNEL_PATTERN.strip("^$"), channel):
        expected = "a name of small letters, digits and dashes"
        raise RequestError("--channel", expected, channel, "such as live or canary")
