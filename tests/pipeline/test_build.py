"""From evidence to a table version."""

import dataclasses
import itertools

import numpy as np
import pytest

from tabletune.core.errors import NoTableError
from tabletune.pipeline.build import build_version
from tabletune.records.evidence import padded_tokens
from tabletune.records.plan import Envelope
from tests.pipeline.evidence import MAX_NUM_SEQS, h200_evidence, h200_request


def built(request=None, **changes):  # type: ignore[no-untyped-def]
    request = request or h200_request()
    evidence = h200_evidence(request, **changes)
    fingerprint = evidence.fingerprint
    padded = padded_tokens(evidence.plan, fingerprint.engine, fingerprint.device, "eagle3")
    return evidence, build_version(request, evidence, padded)


def test_draft_lengths_fall_as_the_batch_grows() -> None:
    _, build = built()
    lengths = [part.draft_length for part in build.version.table.ranges]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == 4
    assert build.version.table.max_num_seqs == MAX_NUM_SEQS


def test_the_same_evidence_gives_the_same_version() -> None:
    assert built()[1].version.content_hash == built()[1].version.content_hash


def test_the_version_names_its_parents_and_keeps_the_whole_plan_and_envelope() -> None:
    evidence, build = built()
    version = build.version
    assert version.parents.profile == evidence.profile.content_hash
    assert version.parents.acceptance_prior == evidence.prior.content_hash
    assert version.plan == evidence.plan
    assert version.envelope == evidence.qualification.envelope
    assert set(version.table.lengths) < set(version.plan.lengths)


def test_a_plan_that_had_to_drop_the_longest_length_still_makes_a_version() -> None:
    evidence = h200_evidence(h200_request())
    kept = tuple(k for k in evidence.plan.lengths if k < 4)
    plan = evidence.plan.model_copy(update={"lengths": kept, "max_draft_length": 3})
    cells = tuple(cell for cell in evidence.profile.cells if cell.draft_length < 4)
    envelope = Envelope(allowed={str(k): ((1, MAX_NUM_SEQS),) for k in kept})
    smaller = dataclasses.replace(
        evidence,
        plan=plan,
        profile=evidence.profile.model_copy(update={"cells": cells}),
        qualification=evidence.qualification.model_copy(update={"envelope": envelope}),
    )
    version = build_version(h200_request(), smaller, None).version
    assert version.table.max_draft_length == 3


def test_the_stated_goodput_is_the_grid_s_mean() -> None:
    _, build = built()
    for part in build.version.table.ranges:
        rows = build.predicted_goodput_tok_s[part.first - 1 : part.last, part.draft_length]
        assert part.predicted_goodput_tok_s == pytest.approx(np.mean(rows), rel=1e-3)


def test_a_forbidden_transition_is_not_in_the_table() -> None:
    evidence, _ = built()
    free = built()[1].version.table.ranges
    pair = (free[0].draft_length, free[1].draft_length)
    _, build = built(forbidden=(pair,))
    lengths = [part.draft_length for part in build.version.table.ranges]
    assert pair not in list(itertools.pairwise(lengths))
    assert evidence.qualification.envelope.forbidden_transitions == ()


def test_a_batch_size_without_any_length_is_refused_with_words() -> None:
    request = h200_request()
    evidence = h200_evidence(request)
    envelope = Envelope(allowed={"0": ((1, 8),), "2": ((1, 8),)})
    narrow = dataclasses.replace(
        evidence,
        qualification=evidence.qualification.model_copy(update={"envelope": envelope}),
    )
    with pytest.raises(NoTableError, match="no covered and allowed draft length"):
        build_version(request, narrow, None)


def test_a_latency_limit_is_kept_in_the_version() -> None:
    _, build = built(h200_request(max_tpot_ms=5.0))
    assert build.version.objective == "throughput_under_tpot_limit"
    assert build.version.max_tpot_s == pytest.approx(0.005)
