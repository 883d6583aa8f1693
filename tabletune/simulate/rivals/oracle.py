"""What could be reached: the best length for the true step times and the true survival."""

from __future__ import annotations

import numpy as np

from tabletune.core.words import FloatArray
from tabletune.simulate.policy import TablePolicy
from tabletune.simulate.step_cost import StepCost


def oracle(cost: StepCost, expected_tokens: FloatArray) -> TablePolicy:
    """The argmax of E(K)/T(b,K) at every batch size; no smoothing, no noise.

    expected_tokens: float64[K+1], of request-steps (`expected_tokens_per_step`). For a switch
    of traffic put two into a `ScheduledPolicy`.
    """
    lengths = min(expected_tokens.size, cost.max_draft_length + 1)
    goodput = expected_tokens[:lengths] / cost.step_time_s[1:, :lengths]
    return TablePolicy(np.nanargmax(goodput, axis=1).tolist())
