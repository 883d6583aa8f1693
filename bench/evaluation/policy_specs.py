"""Policies that decide in every step, as plain values: written for the engine, read there.

A spec is {"kind": …, parameters}. The kinds are those of tabletune/simulate/rivals that keep a
state; the same classes decide in the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tabletune.simulate.policy import Policy
from tabletune.simulate.rivals.acceptance_tiers import AcceptanceTiersPolicy
from tabletune.simulate.rivals.fitted_goodput import (
    FittedGoodputOptions,
    FittedGoodputPolicy,
    FittedStepTime,
)
from tabletune.simulate.rivals.switching_bandit import SwitchingBanditPolicy

Spec = dict[str, Any]


class UnknownPolicyError(ValueError):
    """A spec of a kind that nobody knows.

    Attributes: `kind`.
    """

    def __init__(self, kind: object) -> None:
        self.kind = kind
        super().__init__(
            f"expected acceptance_tiers, fitted_goodput or switching_bandit, found {kind!r}; "
            "correct the file that BENCH_POLICIES names"
        )


def tiers(slots: Mapping[int, Sequence[int]], longest: int) -> Spec:
    """SGLang-style, see `AcceptanceTiersPolicy`."""
    rows = [[smallest, list(lengths)] for smallest, lengths in slots.items()]
    return {"kind": "acceptance_tiers", "longest": longest, "slots": rows}


def fitted_goodput(
    cells: Mapping[tuple[int, int], float], longest: int, interval_steps: int = 1
) -> Spec:
    """TurboSpec-style, see `FittedGoodputPolicy`. cells: {(batch size, K): seconds}."""
    rows = [[b, k, step_time_s] for (b, k), step_time_s in cells.items()]
    spec = {"kind": "fitted_goodput", "longest": longest, "cells": rows}
    return spec | {"interval_steps": interval_steps}


def bandit(longest: int, seed: int) -> Spec:
    """Nightjar-style, see `SwitchingBanditPolicy`."""
    return {"kind": "switching_bandit", "longest": longest, "seed": seed}


def policy_of(spec: Spec) -> Policy:
    """The policy of a spec, fresh.

    Raises:
        UnknownPolicyError: of no known kind.
    """
    kind = spec.get("kind")
    if kind == "acceptance_tiers":
        slots = {int(smallest): tuple(lengths) for smallest, lengths in spec["slots"]}
        return AcceptanceTiersPolicy(slots, spec["longest"])
    if kind == "fitted_goodput":
        cells = {(int(b), int(k)): float(seconds) for b, k, seconds in spec["cells"]}
        options = FittedGoodputOptions(interval_steps=spec["interval_steps"])
        return FittedGoodputPolicy(FittedStepTime.fit(cells), spec["longest"], options)
    if kind == "switching_bandit":
        return SwitchingBanditPolicy(spec["longest"], np.random.default_rng(spec["seed"]))
    raise UnknownPolicyError(kind)
