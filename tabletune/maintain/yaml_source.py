"""Reads YAML strictly, and remembers at which line each value stands.

A subset that means the same to everyone: mappings with text keys, lists, text, numbers,
true, false and null. YAML 1.1 reads `no` as false, `3:30` as 210 and `010` as 8; here they are
text, and the field's own check says what was expected. Aliases are refused, because a few
bytes of them can stand for any amount of data.
"""

import pathlib
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

#: Larger files are refused before they are parsed; 10,000 deployments take 5 MB.
MAX_BYTES: Final = 16 * 2**20
MAX_DEPTH: Final = 32

_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)?\.?[0-9]+([eE][-+]?[0-9]{1,3})?")
_PLAIN_TAGS: Final = frozenset(
    ("null", "bool", "int", "float", "str", "map", "seq", "timestamp", "merge", "value")
)
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Path = tuple[str | int, ...]


class YamlProblem(ValueError):
    """A file that cannot be read as such YAML. Attributes: path, line (from 1), reason."""

    def __init__(self, path: pathlib.Path, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}:{line}: {reason}")


@dataclass(frozen=True)
class Parsed:
    """A file's value, and the line (from 1) of each value by its path in it."""

    value: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of the value at `path`, or of the innermost one around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(path: pathlib.Path) -> Parsed:
    """The content of a YAML file.

    Raises:
        YamlProblem: unreadable, too large, or not such YAML; with the line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "name the deployments file with --config or TABLETUNE_DEPLOYMENTS"
        what = f"expected a file, found none to read ({reason}); {advice}"
        raise YamlProblem(path, 1, what) from error
    if len(data) > MAX_BYTES:
        raise YamlProblem(path, 1, f"expected at most {MAX_BYTES} bytes, found more; split it")
    loader = _LOADER(data)
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(path, mark.line + 1 if mark else 1, f"{error.problem}") from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise YamlProblem(path, 1, f"expected YAML in UTF-8, found {error}") from error
    finally:
        loader.dispose()
    walk = _Walk(path)
    return Parsed(None if node is None else walk.value(node, ()), walk.lines)


class _Walk:
    """Turns composed nodes into values."""

    def __init__(self, file: pathlib.Path) -> None:
        self.lines: dict[Path, int] = {}
        self._file = file
        self._seen: set[int] = set()

    def value(self, node: Any, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if len(path) > MAX_DEPTH:
            raise YamlProblem(self._file, line, f"expected at most {MAX_DEPTH} levels, found more")
        if id(node) in self._seen:  # a composed alias is its anchor's node itself
            reason = "expected no alias of this value; put what is shared into `defaults`"
            raise YamlProblem(self._file, line, reason)
        self._seen.add(id(node))
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
            reason = f"expected plain values, found the tag {node.tag!r}"
            raise YamlProblem(self._file, line, reason)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, n)) for n, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                reason = "expected text as a key, found a list or mapping"
                raise YamlProblem(self._file, line, reason)
            key = key_node.value
            if key in result:
                raise YamlProblem(self._file, line, f"the key {key!r} appears twice")
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result


def _scalar(node: Any) -> Any:
    text = node.value
    if node.style:  # quoted or a block: text, whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
