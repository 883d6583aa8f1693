"""From a profile and an acceptance prior to a table version."""

from dataclasses import dataclass

import numpy as np

from tabletune.core.goodput_map import goodput_map
from tabletune.core.surface import StepTimeSurface
from tabletune.core.table import BuildOptions, BuiltTable, build_table
from tabletune.pipeline.request import RunRequest
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.evidence import (
    PaddedTokens,
    expected_tokens_of,
    padded_tokens,
    surface_and_scatter,
)
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import Parents, Range, Table, TableVersion

#: A narrow range is kept where merging it would cost more than this share of goodput. The paper
#: merges at any price, which by a recorded H200 profile costs up to 5 % at single batch sizes
#: even of a perfectly informed table (bench/results/sensitivity.json). As much as a tie may cost.
MAX_MERGE_LOSS = 0.02


@dataclass(frozen=True)
class Evidence:
    """What a table is built from, all for one fingerprint."""

    fingerprint: Fingerprint
    plan: CapturePlan
    qualification: Qualification
    profile: Profile
    prior: AcceptancePrior

    def padded_tokens(self) -> PaddedTokens | None:
        """(b, K) → tokens that the step is padded to; None for an engine without graphs."""
        facts = self.fingerprint
        return padded_tokens(self.plan, facts.engine, facts.device, facts.method)


@dataclass(frozen=True)
class Build:
    """A table version and what the report shows of its making.

    `predicted_goodput_tok_s`: float64[max_num_seqs, K_max + 1], NaN where not covered.
    """

    version: TableVersion
    built: BuiltTable
    predicted_goodput_tok_s: np.ndarray


def build_version(
    request: RunRequest,
    evidence: Evidence,
    padded: PaddedTokens | None,
) -> Build:
    """The table with the highest predicted goodput, as an immutable version.

    Its plan and envelope are the whole ones that were qualified, not only the table's lengths:
    an engine that adapts, or follows a later table, may use all of them.

    The same evidence gives the same version, byte for byte: `created_at` is when the newest
    of its parents was measured.

    Raises:
        NoTableError: some batch size has no usable length.
    """
    surface, scatter = surface_and_scatter(evidence.profile, padded, evidence.prior)
    tokens = expected_tokens_of(evidence.prior)
    envelope = evidence.qualification.envelope
    options = BuildOptions(
        uncertainty=surface.relative_uncertainty,
        max_merge_loss=MAX_MERGE_LOSS,
        noise=scatter,
        max_tpot_s=None if request.max_tpot_ms is None else request.max_tpot_ms / 1e3,
        allowed=set(envelope.lengths),
        forbidden_transitions=envelope.forbidden_transitions,
        envelope=envelope.contains,
    )
    built = build_table(surface, tokens, request.max_num_seqs, options)
    table = Table(
        max_num_seqs=request.max_num_seqs,
        max_draft_length=evidence.plan.max_draft_length,  # the request's, or less
        ranges=tuple(
            Range(
                first=part.first,
                last=part.last,
                draft_length=part.draft_length,
                predicted_goodput_tok_s=round(part.predicted_goodput_tok_s, 2),
            )
            for part in built.ranges
        ),
        notes=built.notes,
    )
    version = TableVersion(
        table=table,
        plan=evidence.plan,
        envelope=envelope,
        fingerprint=evidence.fingerprint.identity,
        parents=Parents(
            profile=evidence.profile.content_hash,
            acceptance_prior=evidence.prior.content_hash,
            qualification=evidence.qualification.content_hash,
        ),
        objective="throughput" if request.max_tpot_ms is None else "throughput_under_tpot_limit",
        max_tpot_s=options.max_tpot_s,
        created_at=max(
            evidence.profile.measured_at,
            evidence.prior.measured_at,
            evidence.qualification.qualified_at,
        ),
    )
    return Build(version, built, _grid(surface, tokens, request))


def _grid(surface: StepTimeSurface, tokens: np.ndarray, request: RunRequest) -> np.ndarray:
    plane = goodput_map(surface, tokens, request.max_num_seqs)
    grid = np.full((request.max_num_seqs, request.max_draft_length + 1), np.nan)
    for column, length in enumerate(plane.lengths):
        values = plane.goodput_tok_s[:, column]
        grid[:, length] = np.where(values > 0, values, np.nan)
    return grid
