"""Runs vLLM's own table lookup; started with an engine environment's Python.

Reads a JSON list of [table, max_num_seqs, maximum] from standard input, writes for each the
lookup or the error's text. The module is loaded by its file: importing vllm takes long.
"""

import importlib.util
import json
import pathlib
import sys


def main() -> None:
    package = importlib.util.find_spec("vllm")
    assert package is not None
    assert package.origin is not None
    path = pathlib.Path(package.origin).parent / "v1/spec_decode/dynamic/utils.py"
    spec = importlib.util.spec_from_file_location("vllm_dynamic_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answers: list[list[int] | str] = []
    for arguments in json.load(sys.stdin):
        try:
            answers.append(module.build_dynamic_sd_schedule_lookup(*arguments))
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}")
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
