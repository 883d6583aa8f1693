"""The counters that every vLLM engine shows on ``/metrics``, summed over its engines.

The text format is Prometheus's; the names are those of vllm/v1/metrics/loggers.py and
vllm/v1/spec_decode/metrics.py. An engine without speculation shows no counters of drafts.
"""

from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

GENERATED = "vllm:generation_tokens_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
RUNNING = "vllm:num_requests_running"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


class MetricsError(RuntimeError):
    """The metrics page lacks what is needed.

    Attributes: `missing` (the metric), `found` (what the page shows instead).
    """

    def __init__(self, missing: str, found: str, advice: str) -> None:
        self.missing, self.found = missing, found
        super().__init__(f"expected {missing} on the engine's metrics page, {found}; {advice}")


@dataclass(frozen=True)
class Counters:
    """Counters since the engine's start, or the difference of two readings.

    Attributes:
        generation_tok: output tokens.
        drafts: request-steps with a draft of at least one guess.
        draft_tok, accepted_tok: guesses drafted and accepted.
        accepted_per_pos: guesses accepted at each position; empty without speculation.
        running: requests running, at the (later) reading.
        speculative: whether the engine shows counters of drafts.
        prompt_tok: tokens of prompts computed.
    """

    generation_tok: float
    drafts: float
    draft_tok: float
    accepted_tok: float
    accepted_per_pos: tuple[float, ...]
    running: float
    speculative: bool
    prompt_tok: float = 0.0

    def __sub__(self, earlier: "Counters") -> "Counters":
        """What happened since `earlier`.

        Raises:
            MetricsError: a counter fell, so the engine was started again in between.
        """
        if self.generation_tok < earlier.generation_tok or self.drafts < earlier.drafts:
            found = f"found it fall from {earlier.generation_tok:.0f} to {self.generation_tok:.0f}"
            advice = "the engine was started again: see its log, and measure again"
            raise MetricsError(f"{GENERATED} to grow", found, advice)
        pairs = zip(self.accepted_per_pos, earlier.accepted_per_pos, strict=True)
        return Counters(
            generation_tok=self.generation_tok - earlier.generation_tok,
            drafts=self.drafts - earlier.drafts,
            draft_tok=self.draft_tok - earlier.draft_tok,
            accepted_tok=self.accepted_tok - earlier.accepted_tok,
            accepted_per_pos=tuple(now - then for now, then in pairs),
            running=self.running,
            speculative=self.speculative,
            prompt_tok=self.prompt_tok - earlier.prompt_tok,
        )


def parse_counters(page: str) -> Counters:
    """Read a metrics page.

    Raises:
        MetricsError: the page is no metrics page, or lacks a counter that every engine has.
    """
    sums: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == ACCEPTED_PER_POSITION:
                    positions[int(sample.labels["position"])] += sample.value
                else:
                    sums[sample.name] += sample.value
    except (ValueError, KeyError) as error:
        found = f"found a page that does not parse ({error})"
        raise MetricsError("Prometheus text", found, "check the engine's address") from error
    needed = [GENERATED, RUNNING]
    speculative = DRAFTS in sums
    if speculative:
        needed += [DRAFT_TOKENS, ACCEPTED]
    for name in needed:
        if name not in sums:
            advice = "start the engine without --disable-log-stats, and check its version"
            raise MetricsError(name, f"found {len(sums)} other metrics", advice)
    return Counters(
        generation_tok=sums[GENERATED],
        drafts=sums.get(DRAFTS, 0.0),
        draft_tok=sums.get(DRAFT_TOKENS, 0.0),
        accepted_tok=sums.get(ACCEPTED, 0.0),
        accepted_per_pos=tuple(positions[i] for i in sorted(positions)),
        running=sums[RUNNING],
        speculative=speculative,
        prompt_tok=sums.get(PROMPT_TOKENS, 0.0),
    )
