"""The two numbers that are most easily swapped, as types of their own.

>>> cell: Cell = (BatchSize(8), DraftLength(3))
>>> cell
(8, 3)
"""

from __future__ import annotations

from typing import Any, NewType, TypeAlias

import numpy as np
import numpy.typing as npt

BatchSize = NewType("BatchSize", int)
"""Requests in one engine step, prefills included, as vLLM's table lookup counts them."""

DraftLength = NewType("DraftLength", int)
"""Guesses per request in one engine step; 0 means no speculation."""

Cell: TypeAlias = tuple[int, int]
"""(batch size, draft length), always in this order."""

FloatArray: TypeAlias = npt.NDArray[np.float64]
"""float64 of any shape; the shape stands in the docstring."""

ArrayLike: TypeAlias = npt.ArrayLike
"""What numpy turns into an array: a list, a tuple, a number or an array."""

IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
"""Integers of any width."""
