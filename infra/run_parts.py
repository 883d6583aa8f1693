"""Runs make targets one after the other; says what it does and how long each part took.

    python infra/run_parts.py "setup=control environment" "check=style, imports and types" …

Each argument is TARGET=WORDS. The first part that fails ends the run with its status; the
times are told in any case. Standard library only: it runs before anything is installed.
"""

import os
import subprocess
import sys
import time


def main(arguments: list[str]) -> int:
    parts = [argument.partition("=")[::2] for argument in arguments]
    make = os.environ.get("MAKE", "make")
    begun_s = time.monotonic()
    times: list[str] = []
    status = 0
    for number, (target, words) in enumerate(parts, 1):
        print(f"\n== {number} of {len(parts)}: {words} (make {target})", flush=True)
        part_s = time.monotonic()
        try:
            status = subprocess.run([make, "--no-print-directory", target], check=False).returncode
        except KeyboardInterrupt:
            status = 130
        outcome = "" if status == 0 else f", failed with status {status}"
        times.append(f"{time.monotonic() - part_s:6.0f} s  {words}{outcome}")
        if status != 0:
            break
    left = [words for _, words in parts[len(times) :]]
    print("\n== times")
    print("\n".join([*times, *(f"     –    {words}: not begun" for words in left)]))
    print(f"{time.monotonic() - begun_s:6.0f} s  in all", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
