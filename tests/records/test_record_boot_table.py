"""The boot table of an engine that follows promotions: every length, nothing forbidden."""

from hypothesis import given, settings

from tabletune.records.boot_table import boot_table
from tabletune.records.plan import Envelope
from tabletune.records.table import TableVersion
from tests.records import strategies
from tests.records.test_record_diff import plan, table, version


@settings(max_examples=200, deadline=None)
@given(strategies.table_versions())
def test_it_is_a_sound_version_that_names_every_length(subject: TableVersion) -> None:
    found = boot_table(subject)
    # As strict as a version: inside the plan and the envelope, no forbidden transition.
    TableVersion.model_validate({**dict(subject), "table": found.table})
    named = set(found.table.lengths)
    assert named == set(subject.plan.lengths) - set(found.left_out)
    assert set(subject.table.lengths) <= named
    for placed in found.placements:
        assert found.table.draft_length(placed.batch_size) == placed.draft_length
    same = sum(a == b for a, b in zip(found.table.dense(), subject.table.dense(), strict=True))
    assert same == len(subject.table.dense()) - len(found.placements)


def test_a_table_that_names_them_all_is_left_as_it_is() -> None:
    subject = version(table(3, 3, 1, 0), plan((1, 2, 4), (0, 1, 3)))
    found = boot_table(subject)
    assert found.table.dense() == subject.table.dense()
    assert found.words() == ()


def test_a_length_stands_where_it_loses_least() -> None:
    subject = version(table(3, 3, 0, 0), plan((1, 2, 4), (0, 1, 3)))
    assert boot_table(subject, lambda b, k: abs(b - 4)).table.dense() == [0, 3, 3, 0, 1]
    assert boot_table(subject).words() == (
        "boot table: draft length 1 at batch size 3, so that the engine has it ready",
    )


def test_what_failed_qualification_is_not_booted() -> None:
    subject = version(table(3, 3, 0, 0), plan((1, 2, 4), (0, 1, 2, 3)))
    everywhere = ((1, 4),)
    envelope = Envelope(
        allowed={"0": everywhere, "1": ((1, 3),), "3": everywhere},
        forbidden_transitions=((1, 0),),
    )
    found = boot_table(subject.model_copy(update={"envelope": envelope}))
    assert found.left_out == (2,)
    assert "draft length 2 is left out" in found.words()[-1]
    assert found.table.dense() == [0, 1, 3, 0, 0]  # beside a 0 it would be forbidden
