"""A worker extension with which a benchmark changes synthetic acceptance while serving.

    --worker-extension-cls bench.synthetic_acceptance.SyntheticAcceptance

and VLLM_SERVER_DEV_MODE=1, then POST /collective_rpc with
{"method": "set_synthetic_survival", "args": [[S_1, …, S_K]]}. Runs inside vLLM's worker; reads
and writes one tensor of its rejection sampler (vllm/v1/worker/gpu/spec_decode/
rejection_sampler.py, 0.32 and 0.33). For benchmarks with synthetic acceptance only.
"""

from typing import Any


class SyntheticAcceptance:
    """Mixed into vLLM's worker class."""

    model_runner: Any

    def set_synthetic_survival(self, survival: list[float]) -> list[float]:
        """Put these survival values in force from the next step on; the conditional rates.

        Raises:
            ValueError: not non-increasing within 0 … 1, or of another length than at boot.
            RuntimeError: the engine was not booted with synthetic acceptance.
        """
        rates = getattr(self.model_runner.rejection_sampler, "synthetic_conditional_rates", None)
        if rates is None:
            raise RuntimeError("boot with rejection_sample_method synthetic")
        before = [1.0, *survival[:-1]]
        falling = all(0 <= s <= b <= 1 for s, b in zip(survival, before, strict=True))
        if len(survival) != len(rates) or not falling:
            raise ValueError(f"expected {len(rates)} non-increasing shares, found {survival}")
        conditional = [s / b if b else 0.0 for s, b in zip(survival, before, strict=True)]
        rates.copy_(rates.new_tensor(conditional))
        return conditional
