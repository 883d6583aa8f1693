"""Builds docs/results.md and its plots from the result files.

    python -m bench.results [--results bench/results] [--out docs/results.md] [--images FOLDER]

Whatever was not measured is called not run.
"""

from __future__ import annotations

import argparse
import os
import pathlib

from bench.evaluation.result_page import Page
from bench.evaluation.result_set import read_results

ROOT = pathlib.Path(__file__).resolve().parents[1]


def build(results: pathlib.Path, out: pathlib.Path, images: pathlib.Path) -> None:
    """Write the page and its plots."""
    link = pathlib.Path(os.path.relpath(images, out.parent)).as_posix()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(Page(read_results(results), images, link).text().rstrip() + "\n")


def main() -> None:
    """Build it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs" / "images" / "results")
    options = parser.parse_args()
    build(options.results, options.out, options.images)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
