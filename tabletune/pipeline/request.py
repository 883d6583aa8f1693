"""What a run is asked to do: one deployment, its engine, its limits."""

import json
import pathlib
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tabletune.pipeline.request_checks import (
    RequestError,
    check_channel_name,
    check_concurrencies,
    check_engine_args,
    check_limits,
    check_method,
    check_positive,
    check_room,
    check_speculative,
)
from tabletune.records.base import RecordError, parse_strict_json
from tabletune.records.step_profile import ProfileMethod
from tabletune.records.verdict import Margins

#: Drafters whose proposals may be short or empty: a step's work then differs within a cell.
MIXED_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})
#: Drafters that need weights of their own.
METHODS_WITH_DRAFTER = frozenset({"eagle", "eagle3", "draft_model", "dflash"})


@dataclass(frozen=True)
class RunRequest:
    """One deployment to tune.

    Attributes:
        model, drafter: a folder or a hub id; `drafter` is None for methods without weights.
        method: vLLM's speculative method, such as ``eagle3`` or ``ngram``.
        max_draft_length: the longest draft length to consider.
        max_num_seqs: the engine's largest batch size.
        lengths: the draft lengths to consider; empty means 0 … max_draft_length.
        engine: an engine environment's name, or a path to its python.
        engine_args: passed to vLLM as they are.
        speculative_extra: more keys of vLLM's speculative config, such as
            ``prompt_lookup_max`` or a synthetic acceptance.
        concurrencies: for the validation; empty means chosen from max_num_seqs.
        context_tok: length of the profile's prompts in tokens.
        profile_method: ``in_engine``, or ``client``: from outside, as in the paper.
    """

    model: str
    method: str
    engine: str
    drafter: str | None = None
    max_draft_length: int = 4
    max_num_seqs: int = 128
    lengths: tuple[int, ...] = ()
    max_tpot_ms: float | None = None
    engine_args: tuple[str, ...] = ()
    speculative_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    prompts: str | None = None
    prompt_count: int = 160
    context_tok: int = 128
    concurrencies: tuple[int, ...] = ()
    channel: str = "live"
    profile_method: ProfileMethod = "in_engine"
    profile_budget_s: float = 600.0
    allow_unknown_version: bool = False
    margins: Margins = field(default_factory=Margins)

    def __post_init__(self) -> None:
        for option, name in (("--model", self.model), ("--engine", self.engine)):
            if not name:
                raise RequestError(option, "a name", name, "give a folder or a name")
        check_method(self.method)
        check_limits(self.max_draft_length, self.max_num_seqs, self.lengths)
        check_room(self.all_lengths, self.max_num_seqs)
        check_concurrencies(self.concurrencies, self.max_num_seqs)
        check_positive("--max-tpot-ms", self.max_tpot_ms)
        check_positive("--prompt-count", self.prompt_count)
        check_positive("--context-tok", self.context_tok)
        check_engine_args(self.engine_args)
        check_speculative(self.speculative_extra)
        check_channel_name(self.channel)
        if self.profile_method not in get_args(ProfileMethod):
            expected = " or ".join(get_args(ProfileMethod))
            found, advice = self.profile_method, "in_engine is quicker and more exact"
            raise RequestError("--profile-method", expected, found, advice)
        if self.method in METHODS_WITH_DRAFTER and not self.drafter:
            expected = f"a drafter for the method {self.method}"
            raise RequestError("--drafter", expected, self.drafter, "give a folder or a hub id")

    @property
    def all_lengths(self) -> tuple[int, ...]:
        """The draft lengths to consider, in rising order, 0 included."""
        chosen = set(self.lengths) or set(range(self.max_draft_length + 1))
        return tuple(sorted(chosen | {0, self.max_draft_length}))

    @property
    def step_kind(self) -> Literal["constant", "mixed"]:
        """``mixed`` where the drafter may propose nothing, else ``constant``."""
        return "mixed" if self.method in MIXED_METHODS else "constant"

    @property
    def synthetic(self) -> bool:
        """Whether the engine is told to accept at given rates."""
        return self.speculative_extra.get("rejection_sample_method") == "synthetic"

    def to_json(self) -> str:
        """For the run's folder, so that later commands need no options again."""
        values = asdict(self) | {"margins": self.margins.model_dump()}
        return json.dumps(values, indent=2, sort_keys=True)

    @classmethod
    def load(cls, path: pathlib.Path) -> "RunRequest":
        """Read what `to_json` wrote.

        Raises:
            RecordError: not such a file.
            FileNotFoundError: no run was started in this folder.
        """
        advice = f"delete {path} and start with --model, --method and --engine"
        try:
            values: Any = parse_strict_json(path.read_bytes(), "run request")
        except RecordError as error:
            raise RecordError(error.kind, error.reason, advice) from error
        if not isinstance(values, dict):
            found = f"it is a JSON {type(values).__name__}, not an object"
            raise RecordError("run request", found, advice)
        types = get_type_hints(cls) | {"profile_method": str}  # its values: __post_init__
        known = {f.name: types[f.name] for f in fields(cls) if f.name in values}
        read: dict[str, Any] = {}
        for name, kind in known.items():
            text = json.dumps(values[name])
            try:
                read[name] = TypeAdapter(kind).validate_json(text, strict=True)
            except ValidationError as error:
                found = f"{name}: {error.errors(include_url=False)[0]['msg']} (found {text[:60]})"
                raise RecordError("run request", found, advice) from error
        missing = {"model", "method", "engine"} - read.keys()
        if missing:
            raise RecordError("run request", f"it lacks {', '.join(sorted(missing))}", advice)
        return cls(**read)
