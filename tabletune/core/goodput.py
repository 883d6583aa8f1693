"""Expected tokens and predicted goodput (arXiv 2610.38968)."""

from __future__ import annotations

import numpy as np

from tabletune.core.errors import CoreError
from tabletune.core.survival import check_survival
from tabletune.core.words import ArrayLike, FloatArray


def expected_tokens(survival: ArrayLike, proposal_rate: ArrayLike | None = None) -> FloatArray:
    """E(0)..E(K): output tokens per request and step, float64[K+1].

    E(K) = 1 + sum over i <= K of p_i * S_i: the token that every step yields, and each guess
    that survives. survival, proposal_rate: float64[K]; without a proposal rate p_i = 1.

    >>> expected_tokens([0.72, 0.50, 0.34]).round(2).tolist()
    [1.0, 1.72, 2.22, 2.56]
    >>> expected_tokens([0.72, 0.50], proposal_rate=[0.5, 0.4]).round(2).tolist()
    [1.0, 1.36, 1.56]
    """
    gains = check_survival(survival)
    if proposal_rate is not None:
        rate = check_survival(proposal_rate)
        if rate.shape != gains.shape:
            raise CoreError(
                "proposal_rate",
                f"one value per position ({gains.size})",
                rate.size,
                "take both from the same counts",
            )
        gains = gains * rate
    return 1.0 + np.concatenate(([0.0], np.cumsum(gains)))


def predicted_goodput_tok_s(batch_size: float, expected_tokens: float, step_time_s: float) -> float:
    """b * E(K) / T(b, K): output tokens per second of the whole batch.

    >>> predicted_goodput_tok_s(8, 2.0, 0.004)
    4000.0
    """
    if not (np.isfinite(step_time_s) and step_time_s > 0):
        raise CoreError("step_time_s", "a finite time > 0", step_time_s, "measure the cell again")
    return batch_size * expected_tokens / step_time_s


def time_per_output_token_s(expected_tokens: float, step_time_s: float) -> float:
    """T(b, K) / E(K): mean seconds between two output tokens of one request.

    >>> time_per_output_token_s(2.0, 0.004)
    0.002
    """
    return step_time_s / expected_tokens
