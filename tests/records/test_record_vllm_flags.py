"""vLLM's own parser understands the flags that we print."""

import json
import pathlib
import subprocess

import pytest

from tabletune.records.text import serve_arguments
from tabletune.records.vllm_format import MAXIMUM, SETTING, to_vllm
from tests.records.test_record_diff import plan, table, version

pytestmark = pytest.mark.engine

ORACLE = pathlib.Path(__file__).with_name("vllm_flags_oracle.py")


def test_vllm_reads_the_flags_as_they_were_meant(engine_python: pathlib.Path) -> None:
    subject = version(table(3, 3, 0, 0), plan((1, 2, 4), (0, 1, 3)))
    arguments = serve_arguments(
        subject, "ngram", None, ["--dtype", "float32"], {"prompt_lookup_max": 4}
    )
    answer = subprocess.run(
        [engine_python, ORACLE],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in answer.stdout.splitlines() if line.startswith("UNDERSTOOD "))
    assert json.loads(line.removeprefix("UNDERSTOOD ")) == {
        "speculative_config": {
            "method": "ngram",
            "prompt_lookup_max": 4,
            MAXIMUM: 3,
            SETTING: to_vllm(subject.table),
        },
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": [1, 2, 4],
        "max_num_seqs": 4,
        "dtype": "float32",
    }
