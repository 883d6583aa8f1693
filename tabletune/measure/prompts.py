"""Sample prompts: the set shipped with the package, a user's file, or a traffic log.

A file has one JSON object a line. These forms are read, and may be mixed:

    {"prompt": "…", "group": "code"}                          a plain completion
    {"messages": [{"role": "user", "content": "…"}, …]}       a conversation
    {"body": {…}}, {"request": {…}}                           a logged call with either inside

A conversation keeps its messages, so that the engine can render them with the model's own
chat template; `text` is the plain rendering for engines without one. Answers at the end of a
logged conversation are dropped: the engine gives its own.
"""

import hashlib
import importlib.resources
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

#: Larger files are refused; a sample of a few hundred lines says as much about acceptance.
MAX_FILE_BYTES = 64 * 2**20
MAX_PROMPT_CHARS = 400_000
EXPECTED = '{"prompt": "…"}, {"messages": […]}, {"body": {…}} or {"request": {…}}'
DEFAULT_GROUP = "prompts"
WRAPPERS = ("body", "request")


class PromptFileError(ValueError):
    """A file of prompts cannot be used.

    Attributes:
        path: the file.
        line: its line number from 1, 0 for the file as a whole.
        expected, found: what had to be there, and what is.
    """

    def __init__(self, path: str, line: int, expected: str, found: str, advice: str = "") -> None:
        self.path, self.line, self.expected, self.found = path, line, expected, found
        where = f"{path}, line {line}" if line else path
        advice = advice or "correct or remove it"
        super().__init__(f"{where}: expected {expected}, found {found}; {advice}")


@dataclass(frozen=True)
class Prompt:
    """One prompt. `messages` holds (role, text) pairs, empty for a plain completion."""

    text: str
    group: str = DEFAULT_GROUP
    messages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PromptSet:
    """Prompts in their order, and the SHA-256 of what they say."""

    prompts: tuple[Prompt, ...]
    sha256: str

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in order of first appearance."""
        return tuple(dict.fromkeys(prompt.group for prompt in self.prompts))

    def of_group(self, group: str) -> tuple[Prompt, ...]:
        """The prompts of one group."""
        return tuple(prompt for prompt in self.prompts if prompt.group == group)

    def sample(self, count: int) -> "PromptSet":
        """At most `count` prompts, spread evenly over the set and so over its groups."""
        if count >= len(self.prompts):
            return self
        every = len(self.prompts) / count
        return prompt_set([self.prompts[int(i * every)] for i in range(count)])

    def mixed(self) -> "PromptSet":
        """The same prompts with the groups taking turns, so that each stretch has of every one.

        A group with fewer prompts than another is spread over the whole.
        """
        placed: list[tuple[float, int, Prompt]] = []
        for number, group in enumerate(self.groups):
            members = self.of_group(group)
            placed += [((i + 0.5) / len(members), number, p) for i, p in enumerate(members)]
        return prompt_set([p for _, _, p in sorted(placed, key=lambda entry: entry[:2])])


def prompt_set(prompts: Sequence[Prompt]) -> PromptSet:
    """A set with its hash. Raises ValueError for no prompts at all."""
    if not prompts:
        raise ValueError("expected at least one prompt, found none")
    content = json.dumps(
        [[p.text, p.group, p.messages] for p in prompts], separators=(",", ":"), ensure_ascii=False
    )
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    return PromptSet(tuple(prompts), digest)


def load_prompts(path: pathlib.Path | None = None) -> PromptSet:
    """Read a file of prompts; None gives the 160 shipped with the package.

    The shipped ones are requests that a person could make, so each counts as a conversation
    of one message.

    Raises:
        PromptFileError: not readable, too large, not UTF-8, empty, or a line that is none of
            the forms above.
    """
    if path is None:
        shipped = importlib.resources.files("tabletune.measure") / "data" / "prompts.jsonl"
        plain = _parse(shipped.read_bytes(), "the shipped prompts")
        return prompt_set([Prompt(p.text, p.group, (("user", p.text),)) for p in plain])
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        found = error.strerror or repr(error)
        raise PromptFileError(name, 0, "a readable file", found, "check the path") from error
    if len(data) > MAX_FILE_BYTES:
        expected, found = f"at most {MAX_FILE_BYTES // 2**20} MiB", "a larger file"
        raise PromptFileError(name, 0, expected, found, "take a sample of its lines")
    return prompt_set(_parse(data, name))


def _parse(data: bytes, name: str) -> list[Prompt]:
    prompts: list[Prompt] = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            value = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            found = f"byte {raw[error.start : error.start + 1]!r} at column {error.start + 1}"
            advice = "save the file as UTF-8"
            raise PromptFileError(name, number, "UTF-8 text", found, advice) from error
        except (ValueError, RecursionError) as error:
            found = f"{_short(raw.decode())} ({error})"
            raise PromptFileError(name, number, "one JSON object a line", found) from error
        prompts.append(_Line(name, number).prompt(value))
    if not prompts:
        raise PromptFileError(name, 0, f"lines such as {EXPECTED}", "an empty file")
    return prompts


@dataclass(frozen=True)
class _Line:
    """One line of a file; its methods read the parts of the value that stands there."""

    path: str
    number: int

    def prompt(self, value: object) -> Prompt:
        if not isinstance(value, dict):
            raise self._error(EXPECTED, _short(value))
        fields = cast(dict[str, Any], value)
        group = fields.get("group", DEFAULT_GROUP)
        if not isinstance(group, str) or not group.strip():
            raise self._error('"group" as a text that is not empty', _short(group))
        call = fields
        while inner := [call[name] for name in WRAPPERS if isinstance(call.get(name), dict)]:
            call = cast(dict[str, Any], inner[0])
        if "messages" in call:
            messages = self._messages(call["messages"])
            return Prompt(self._checked(flatten(messages)), group, messages)
        if "prompt" in call:
            return Prompt(self._checked(call["prompt"]), group)
        raise self._error(EXPECTED, f"an object with the keys {_short(sorted(call))}")

    def _messages(self, value: object) -> tuple[tuple[str, str], ...]:
        expected = '"messages" as a list of {"role": "…", "content": "…"}'
        if not isinstance(value, list):
            raise self._error(expected, _short(value))
        messages: list[tuple[str, str]] = []
        for item in cast(list[object], value):
            fields = cast(dict[str, Any], item) if isinstance(item, dict) else {}
            role = fields.get("role")
            if not isinstance(role, str):
                raise self._error(expected, f"the message {_short(item)}")
            messages.append((role, self._content(fields.get("content"))))
        while messages and messages[-1][0] == "assistant":
            messages.pop()
        if not any(text.strip() for _, text in messages):
            raise self._error("messages with some text to answer", _short(value))
        return tuple(messages)

    def _content(self, value: object) -> str:
        if value is None:  # an assistant's call of a tool
            return ""
        if isinstance(value, str):
            return value
        parts = cast(list[object], value) if isinstance(value, list) else [value]
        texts: list[str] = []
        for part in parts:
            text = cast(dict[str, Any], part).get("text") if isinstance(part, dict) else part
            if not isinstance(text, str):
                raise self._error("a message's content to be text", _short(part))
            texts.append(text)
        return "\n".join(texts)

    def _checked(self, text: object) -> str:
        if not isinstance(text, str) or not text.strip():
            raise self._error("a prompt that is a text and not empty", _short(text))
        if len(text) > MAX_PROMPT_CHARS:
            raise self._error(f"at most {MAX_PROMPT_CHARS} characters", f"{len(text)}")
        return text

    def _error(self, expected: str, found: str) -> PromptFileError:
        return PromptFileError(self.path, self.number, expected, found)


def flatten(messages: Sequence[tuple[str, str]]) -> str:
    """A conversation as plain text, for an engine without a chat template.

    >>> flatten([("user", "Hello")])
    'Hello'
    >>> flatten([("system", "Be brief."), ("user", "Hello")])
    'system: Be brief.\\n\\nuser: Hello\\n\\nassistant:'
    """
    if len(messages) == 1 and messages[0][0] == "user":
        return messages[0][1]
    return "\n\n".join([*(f"{role}: {text}" for role, text in messages), "assistant:"])


def _short(value: object, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else text[:most] + "…"
