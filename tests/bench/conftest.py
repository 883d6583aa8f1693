"""What tests of the benchmarks share: the pipeline's small deployment on a stand-in engine."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "pipeline"))
sys.path.append(str(pathlib.Path(__file__).parents[1] / "plugin"))
