"""Parses serving flags with vLLM's own parser; started with an engine environment's Python.

Reads a JSON list of arguments from standard input, writes what vLLM understood.
"""

import json
import sys

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    parsed = AsyncEngineArgs.from_cli_args(parser.parse_args(json.load(sys.stdin)))
    graphs = parsed.compilation_config
    understood = {
        "speculative_config": parsed.speculative_config,
        "cudagraph_mode": graphs.cudagraph_mode.name,
        "cudagraph_capture_sizes": graphs.cudagraph_capture_sizes,
        "max_num_seqs": parsed.max_num_seqs,
        "dtype": parsed.dtype,
    }
    print("UNDERSTOOD " + json.dumps(understood))


if __name__ == "__main__":
    main()
