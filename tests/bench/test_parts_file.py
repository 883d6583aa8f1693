"""A result file loses nothing that was whole."""

import json
import pathlib

from bench.parts_file import PartsFile


def test_what_was_whole_stays_until_it_is_whole_anew(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "found.json"
    PartsFile(path).keep("one", {"pairs": 40})
    PartsFile(path).keep("other", {"pairs": 7})
    again = PartsFile(path)
    again.keep_so_far("one", {"pairs": 10})
    again.keep_so_far("one", {"pairs": 20})
    kept = {"one": {"pairs": 40}, "other": {"pairs": 7}, "one_so_far": {"pairs": 20}}
    assert json.loads(path.read_text()) == kept
    again.keep("one", {"pairs": 41})
    assert json.loads(path.read_text()) == {"one": {"pairs": 41}, "other": {"pairs": 7}}
    assert json.loads(again.text) == json.loads(path.read_text())
