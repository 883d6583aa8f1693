"""Hypothesis strategies for every record; each draws valid records only."""

import hashlib
import itertools

from hypothesis import strategies as st

from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.decision_record import Evidence, PromotionDecision
from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint, ModelFacts
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Attempt, Check, Qualification
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Parents, Range, Table, TableVersion, table_from_dense
from tabletune.records.verdict import Margins, Measured, Ratio, StockCheck, Verdict

hashes = st.binary(max_size=8).map(lambda data: hashlib.sha256(data).hexdigest())
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
positive = st.floats(1e-6, 1e6)
seconds = st.floats(0, 1e5)
moments = st.datetimes().map(lambda moment: moment.isoformat() + "+00:00")
channels = st.from_regex(r"[a-z][a-z0-9_-]{0,62}", fullmatch=True)
batch_sizes = st.integers(1, 512)
draft_lengths = st.integers(0, 8)


@st.composite
def position_counts(draw: st.DrawFn, most_positions: int = 6) -> PositionCounts:
    drafted = sorted(draw(st.lists(st.integers(0, 10_000), max_size=most_positions)), reverse=True)
    accepted: list[int] = []
    for limit in drafted:
        accepted.append(draw(st.integers(0, min([limit, *accepted[-1:]]))))
    return PositionCounts(
        drafted_through=tuple(drafted),
        accepted_through=tuple(accepted),
        request_steps=draw(st.integers(max([0, *drafted]), 20_000)),
    )


acceptance_priors = st.integers(1, 6).flatmap(
    lambda length: st.builds(
        AcceptancePrior,
        fingerprint=hashes,
        draft_length=st.just(length),
        source=st.sampled_from(["measured", "synthetic"]),
        prompt_count=st.integers(1, 1000),
        prompts_hash=hashes,
        counts=position_counts(length),
        by_group=st.dictionaries(texts, position_counts(length), max_size=3),
        by_batch_size=st.dictionaries(batch_sizes.map(str), position_counts(length), max_size=3),
        wall_time_s=seconds,
        measured_at=moments,
    )
)

models = st.builds(
    ModelFacts,
    label=texts,
    content=texts,
    architecture=texts,
    vocabulary_size=st.integers(0, 200_000),
)
fingerprints = st.builds(
    Fingerprint,
    device=st.builds(
        DeviceFacts,
        platform=st.sampled_from(["cuda", "cpu"]),
        name=texts,
        count=st.integers(1, 8),
        capability=texts,
        memory_bytes=st.integers(0, 2**38),
        driver=texts,
    ),
    engine=st.builds(
        EngineFacts,
        distribution=texts,
        version=texts,
        runner=st.sampled_from(["V1", "V2"]),
        torch=texts,
        python=texts,
    ),
    model=models,
    method=texts,
    drafter=st.none() | models,
    settings=st.dictionaries(texts, texts, max_size=5),
)


@st.composite
def capture_plans(
    draw: st.DrawFn, lengths: tuple[int, ...] = (), max_num_seqs: int = 0, maximum: int = 0
) -> CapturePlan:
    """Any plan, or one that has `lengths`, `max_num_seqs` and `maximum`."""
    wanted = draw(st.sets(draft_lengths, min_size=0 if lengths else 1)) | set(lengths)
    if maximum:
        wanted = {length for length in wanted if length <= maximum}
    mode = draw(
        st.sampled_from(["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"])
    )
    sizes = () if mode == "NONE" else tuple(sorted(draw(st.sets(st.integers(1, 4096)))))
    return CapturePlan(
        graph_mode=mode,
        capture_sizes=sizes,
        lengths=tuple(sorted(wanted)),
        max_draft_length=maximum or max(1, *wanted, 1),
        max_num_seqs=max_num_seqs or draw(batch_sizes),
        graph_count=0 if mode == "NONE" else draw(st.integers(0, 1000)),
        notes=tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def range_lists(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    edges = sorted(draw(st.sets(batch_sizes, max_size=8)))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    return tuple(pairs)


transitions = st.tuples(draft_lengths, draft_lengths).filter(lambda pair: pair[0] != pair[1])
envelopes = st.builds(
    Envelope,
    allowed=st.dictionaries(draft_lengths.map(str), range_lists(), max_size=4),
    forbidden_transitions=st.lists(transitions, max_size=3).map(tuple),
)


@st.composite
def tables(draw: st.DrawFn, max_num_seqs: int = 64) -> Table:
    """Dense tables; neighbours may share a length, as a table by hand may."""
    last = draw(st.integers(1, max_num_seqs))
    cuts = sorted(draw(st.sets(st.integers(1, last), max_size=8)) | {last})
    lengths = [draw(draft_lengths) for _ in cuts]
    firsts = [1, *(cut + 1 for cut in cuts[:-1])]
    return Table(
        max_num_seqs=last,
        max_draft_length=draw(st.integers(max(1, *lengths, 1), 9)),
        ranges=tuple(
            Range(
                first=first,
                last=cut,
                draft_length=length,
                predicted_goodput_tok_s=draw(st.none() | st.floats(0, 1e6)),
            )
            for first, cut, length in zip(firsts, cuts, lengths, strict=True)
        ),
        notes=tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def dense_lookups(draw: st.DrawFn, most: int = 200) -> list[int]:
    """A lookup as vLLM's: index 0 is unused and 0."""
    runs = draw(st.lists(st.tuples(st.integers(1, 40), draft_lengths), min_size=1, max_size=8))
    lookup = [0, *itertools.chain.from_iterable([length] * count for count, length in runs)]
    return lookup[: most + 1]


dense_tables = dense_lookups().map(lambda lookup: table_from_dense(lookup, max(1, *lookup)))


@st.composite
def table_versions(draw: st.DrawFn) -> TableVersion:
    table = draw(tables())
    plan = draw(capture_plans(table.lengths, table.max_num_seqs, table.max_draft_length))
    everywhere = ((1, table.max_num_seqs),)
    limit = draw(st.none() | positive)
    return TableVersion(
        table=table,
        plan=plan,
        envelope=Envelope(allowed={str(length): everywhere for length in plan.lengths}),
        fingerprint=draw(hashes),
        parents=Parents(
            profile=draw(st.just("") | hashes),
            acceptance_prior=draw(st.just("") | hashes),
            qualification=draw(st.just("") | hashes),
            previous_version=draw(st.just("") | hashes),
        ),
        objective="throughput" if limit is None else "throughput_under_tpot_limit",
        max_tpot_s=limit,
        created_at=draw(moments),
        created_by=draw(texts),
    )


@st.composite
def cells(draw: st.DrawFn, batch_size: int, draft_length: int) -> Cell:
    status = draw(st.sampled_from(["measured", "not_measured", "rejected"]))
    least = 1 if status == "measured" else 0
    return Cell(
        batch_size=batch_size,
        draft_length=draft_length,
        samples_s=tuple(draw(st.lists(st.floats(-1, 10), min_size=least, max_size=4))),
        scheduled_tok=draw(seconds),
        context_tok=draw(seconds),
        status=status,
        problem="" if status == "measured" else "the engine was busy",
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    keys = draw(st.sets(st.tuples(batch_sizes, draft_lengths), max_size=4))
    return Profile(
        fingerprint=draw(hashes),
        plan=draw(hashes),
        method=draw(st.sampled_from(["in_engine", "client"])),
        step_kind=draw(st.sampled_from(["constant", "mixed"])),
        prompt_tok=draw(st.integers(1, 8192)),
        context_tok=draw(st.integers(1, 8192)),
        cells=tuple(draw(cells(*key)) for key in sorted(keys)),
        wall_time_s=draw(seconds),
        measured_at=draw(moments),
    )


@st.composite
def checks(draw: st.DrawFn) -> Check:
    passed = draw(st.booleans())
    fault = st.sampled_from(["crash", "hang", "stall", "ignored", "output", "refused"])
    return Check(
        name=draw(texts),
        batch_size=draw(batch_sizes),
        draft_length=draw(draft_lengths),
        previous_length=draw(st.none() | draft_lengths),
        passed=passed,
        fault=None if passed else draw(fault),
        evidence=draw(texts),
    )


qualifications = st.builds(
    Qualification,
    fingerprint=hashes,
    plan=hashes,
    checks=st.lists(checks(), max_size=3).map(tuple),
    attempts=st.lists(
        st.builds(Attempt, plan=hashes, description=texts, passed=st.booleans(), reason=texts),
        max_size=2,
    ).map(tuple),
    envelope=envelopes,
    excluded=st.lists(texts, max_size=2).map(tuple),
    wall_time_s=seconds,
    qualified_at=moments,
)


@st.composite
def ratios(draw: st.DrawFn) -> Ratio:
    low, ratio, high = sorted(draw(st.tuples(positive, positive, positive)))
    return Ratio(policy=draw(texts), concurrency=draw(batch_sizes), ratio=ratio, low=low, high=high)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    passed = draw(st.booleans())
    followed = st.just(True) if passed else st.booleans()
    return Verdict(
        table_version=draw(hashes),
        fingerprint=draw(hashes),
        incumbent_version=draw(st.just("") | hashes),
        passed=passed,
        reasons=tuple(draw(st.lists(texts, min_size=0 if passed else 1, max_size=3))),
        margins=draw(
            st.builds(
                Margins,
                best_fixed=st.floats(0, 0.5),
                incumbent=st.floats(0, 0.5),
                no_speculation=st.floats(0, 0.5),
                confidence=st.floats(0.6, 0.99),
                slack=st.floats(0, 0.5),
            )
        ),
        measured=tuple(
            draw(
                st.lists(
                    st.builds(
                        Measured,
                        policy=texts,
                        concurrency=batch_sizes,
                        windows_tok_s=st.lists(seconds, max_size=3).map(tuple),
                        engine=st.sampled_from(["measured", "stock", "no_speculation"]),
                    ),
                    max_size=2,
                )
            )
        ),
        ratios=tuple(draw(st.lists(ratios(), max_size=3))),
        stock=draw(st.none() | st.builds(StockCheck, passed=followed, evidence=texts)),
        wall_time_s=draw(seconds),
        validated_at=draw(moments),
    )


SIGNED = {"signed_by": "0123456789abcdef", "signature": "A" * 86 + "=="}


@st.composite
def pointers(draw: st.DrawFn) -> Pointer:
    sequence = draw(st.integers(1, 1000))
    actions = ["promote", "force"] if sequence == 1 else ["promote", "force", "rollback"]
    action = draw(st.sampled_from(actions))
    verdict = draw(hashes) if action == "promote" else draw(st.just("") | hashes)
    return Pointer(
        channel=draw(channels),
        sequence=sequence,
        table_version=draw(hashes),
        fingerprint=draw(hashes),
        verdict="" if action == "rollback" else verdict,
        action=action,
        previous_version="" if sequence == 1 else draw(hashes),
        previous_pointer="" if sequence == 1 else draw(hashes),
        moved_at=draw(moments),
        moved_by=draw(texts),
        reason=draw(texts),
        **draw(st.sampled_from([{}, SIGNED])),
    )


decisions = st.builds(
    PromotionDecision,
    deployment=texts,
    channel=channels,
    outcome=st.sampled_from(["promote", "ask", "refuse", "approve", "canary_back"]),
    from_version=st.just("") | hashes,
    from_pointer=st.just("") | hashes,
    to_version=hashes,
    reasons=st.lists(texts, min_size=1, max_size=3).map(tuple),
    evidence=st.lists(st.builds(Evidence, kind=texts, name=hashes), max_size=3).map(tuple),
    policy=st.dictionaries(texts, texts, max_size=3),
    numbers=st.dictionaries(texts, st.floats(-10, 10), max_size=3),
    answers=st.just("") | hashes,
    decided_at=moments,
    decided_by=texts.filter(bool),
)

any_record = st.one_of(
    acceptance_priors,
    capture_plans(),
    decisions,
    fingerprints,
    pointers(),
    profiles(),
    qualifications,
    tables(),
    table_versions(),
    verdicts(),
)
