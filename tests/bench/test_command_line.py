"""What a result file says of where it was made."""

import pathlib

from bench.command_line import placeless, told


def test_a_command_is_told_without_paths() -> None:
    words = ["qwen3", "--engine", "/a/bin/python", "--out=/b/c.json", "--rounds", "3"]
    assert told("bench.run", words) == (
        "python -m bench.run qwen3 --engine PYTHON --out=FILE --rounds 3"
    )


def test_no_place_of_the_machine_is_left() -> None:
    work, home = pathlib.Path("/some/work"), pathlib.Path.home()
    text = f"file://{work}/bench/store, {home}/.cache/x"
    assert placeless(text, work) == "file://FOLDER/bench/store, HOME/.cache/x"
