"""What a run is asked to do: one deployment, its engine, its limits."""

import json
import pathlib
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_args

from tabletune.records.base import parse_strict_json
from tabletune.records.step_profile import ProfileMethod
from tabletune.records.verdict import Margins

#: Drafters whose proposals may be short or empty: a step's work then differs within a cell.
MIXED_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})
#: Drafters that need weights of their own.
METHODS_WITH_DRAFTER = frozenset({"eagle", "eagle3", "draft_model", "dflash"})


class RequestError(ValueError):
    """A run was asked for with options that do not fit together.

    Attributes:
        option: the option's name as on the command line.
    """

    def __init__(self, option: str, expected: str, found: object, advice: str) -> None:
        self.option = option
        super().__init__(f"{option}: expected {expected}, found {found!r}; {advice}")


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
        if self.max_draft_length < 1:
            found = self.max_draft_length
            raise RequestError("--max-draft-length", "1 or more", found, "4 is a good start")
        if self.max_num_seqs < 1:
            raise RequestError("--max-num-seqs", "1 or more", self.max_num_seqs, "see vllm's docs")
        bad = [k for k in self.lengths if not 0 <= k <= self.max_draft_length]
        if bad:
            advice = "raise --max-draft-length or drop them"
            expected = f"lengths within 0 … {self.max_draft_length}"
            raise RequestError("--lengths", expected, bad, advice)
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
    def step_kind(self) -> str:
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
        values: dict[str, Any] = parse_strict_json(path.read_bytes(), "run request")
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in values.items() if name in known}
        for name in ("lengths", "engine_args", "concurrencies"):
            values[name] = tuple(values.get(name, ()))
        values["margins"] = Margins(**values.get("margins", {}))
        return cls(**values)
