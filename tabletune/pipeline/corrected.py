"""The table version that a validation made of another one, and where it is kept."""

from dataclasses import replace

import numpy as np

from tabletune.measure.correct import Correction
from tabletune.pipeline.build import Build
from tabletune.pipeline.workspace import Workspace
from tabletune.records.table import Range, Table, TableVersion, table_from_dense


def corrected_version(build: Build, correction: Correction) -> TableVersion:
    """The corrected table as a version of its own.

    Its evidence is the same and its previous version the one that was corrected; a note of the
    table says what was changed, from which measurement.

    Raises:
        ValueError: it leaves the envelope or makes a forbidden transition.
    """
    version = build.version
    dense = table_from_dense(list(correction.lookup), version.table.max_draft_length)
    table = Table(
        max_num_seqs=dense.max_num_seqs,
        max_draft_length=dense.max_draft_length,
        ranges=tuple(_predicted(part, build.predicted_goodput_tok_s) for part in dense.ranges),
        notes=(
            *version.table.notes,
            *(f"corrected by validation, {change.words()}" for change in correction.changes),
        ),
    )
    parents = version.parents.model_copy(update={"previous_version": version.content_hash})
    return TableVersion(**(dict(version) | {"table": table, "parents": parents}))


def _predicted(part: Range, goodput_tok_s: np.ndarray) -> Range:
    """The range with the mean of what was predicted, None where part of it was not."""
    mean = float(np.mean(goodput_tok_s[part.first - 1 : part.last, part.draft_length]))
    found = round(mean, 2) if np.isfinite(mean) else None
    return part.model_copy(update={"predicted_goodput_tok_s": found})


def keep_correction(
    workspace: Workspace, identity: str, before: TableVersion, after: TableVersion
) -> None:
    """Note that a validation made `after` of `before`."""
    workspace.save(identity, after, _name(before))


def with_corrections(workspace: Workspace, identity: str, build: Build) -> Build:
    """The build with the version that validations have made of it so far.

    What was corrected once, from the same evidence, need not be found wrong again: the
    corrected version is the candidate from then on, and is validated like any other.
    """
    version = build.version
    while True:
        after = workspace.load(identity, TableVersion, _name(version))
        if after is None or after.parents.previous_version != version.content_hash:
            return replace(build, version=version)
        version = after


def _name(before: TableVersion) -> str:
    return f"corrected-{before.content_hash[:16]}"
