"""A validation that corrects the table: the version it makes, and the run that promotes it."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from deployment import JUDGEMENTS, Deployment
from test_build import built

from tabletune.commands.exit_codes import ExitCode
from tabletune.measure.correct import Change, Correction
from tabletune.measure.judge import Comparison
from tabletune.pipeline.build import Build
from tabletune.pipeline.corrected import corrected_version, keep_correction, with_corrections
from tabletune.pipeline.workspace import Workspace
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.folder import FolderStore
from tests.pipeline.evidence import MAX_NUM_SEQS

IDENTITY = "f" * 64


def correction_to(build: Build, length: int, first: int = 1, last: int = 2) -> Correction:
    lookup = build.version.table.dense()
    because = Comparison(f"fixed-{length}", 1, 0.9, 0.88, 0.92, 0.97, 6)
    before = tuple(sorted(set(lookup[first : last + 1])))
    lookup[first : last + 1] = [length] * (last - first + 1)
    return Correction(tuple(lookup), (Change(first, last, length, before, because),))


def test_the_corrected_version_differs_in_its_table_and_names_what_it_came_from() -> None:
    _, build = built()
    before, after = build.version, corrected_version(build, correction_to(build, 3))
    assert after.content_hash != before.content_hash
    assert [after.table.draft_length(b) for b in (1, 2, 3)] == [3, 3, 4]
    assert after.parents.previous_version == before.content_hash
    assert after.parents.model_copy(update={"previous_version": ""}) == before.parents
    same = {"table": before.table, "parents": before.parents}
    assert after.model_copy(update=same) == before
    assert after.table.notes[:-1] == before.table.notes
    assert after.table.notes[-1] == (
        "corrected by validation, batch sizes 1–2: draft length 3 in place of 4, which at "
        "concurrency 1 had 90.0% (88.0% to 92.0%) of its throughput in 6 windows"
    )


def test_what_is_predicted_is_stated_for_the_new_ranges() -> None:
    _, build = built()
    after = corrected_version(build, correction_to(build, 3)).table
    expected = build.predicted_goodput_tok_s[:2, 3].mean()
    assert after.ranges[0].predicted_goodput_tok_s == pytest.approx(expected, abs=0.01)
    unknown = np.full_like(build.predicted_goodput_tok_s, np.nan)
    silent = Build(build.version, build.built, unknown)
    table = corrected_version(silent, correction_to(silent, 3)).table
    assert {part.predicted_goodput_tok_s for part in table.ranges} == {None}


def test_no_version_leaves_its_envelope() -> None:
    _, build = built(forbidden=((2, 4),))
    with pytest.raises(ValueError, match="forbidden"):
        corrected_version(build, correction_to(build, 2))


def test_later_builds_start_from_what_was_corrected(tmp_path: pathlib.Path) -> None:
    _, build = built()
    workspace = Workspace(tmp_path)
    assert with_corrections(workspace, IDENTITY, build) == build
    first = corrected_version(build, correction_to(build, 3))
    keep_correction(workspace, IDENTITY, build.version, first)
    once = with_corrections(workspace, IDENTITY, build)
    assert once.version == first
    second = corrected_version(once, correction_to(once, 2, 90, MAX_NUM_SEQS))
    keep_correction(workspace, IDENTITY, first, second)
    assert with_corrections(workspace, IDENTITY, build).version == second
    assert with_corrections(workspace, "e" * 64, build) == build  # of another fingerprint
    keep_correction(workspace, IDENTITY, second, second)  # not made of that version
    assert with_corrections(workspace, IDENTITY, build).version == second


@pytest.fixture
def misled(finished: Deployment, tmp_path: pathlib.Path) -> Deployment:
    """Measured, but the sample prompts had nothing that the drafter guesses right."""
    made = finished.copy(tmp_path, without=("verdict", "table_version"))
    shutil.rmtree(made.out / "store")
    path = made.record("acceptance_prior")
    prior = json.loads(path.read_text())
    every = [prior["counts"], *prior["by_group"].values(), *prior["by_batch_size"].values()]
    for counts in every:
        counts["accepted_through"] = [0] * len(counts["accepted_through"])
    path.write_text(json.dumps(prior))
    return made


def test_a_table_built_from_a_wrong_prior_is_corrected_validated_and_promoted(
    misled: Deployment,
) -> None:
    ended = misled.ask("run", "--margin", "0.1", "--json")
    said = ended.errors
    for _ in range(JUDGEMENTS):  # on a busy host the stock engine's throughput scatters
        if ended.process.returncode == ExitCode.VERDICT_FAILED:
            ended = misled.ask("run", "--json")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    assert "corrected, batch sizes 1–4: draft length 2 in place of 0" in said
    store = FolderStore(misled.out / "store")
    pointer, _ = store.read_pointer("live")
    assert pointer is not None
    assert pointer.table_version == ended.json["table_version"]
    after = store.get(TableVersion, pointer.table_version)
    before = store.get(TableVersion, after.parents.previous_version)
    assert before.table.lengths == (0,)
    assert after.table.lengths == (2,)
    verdicts = [store.get(Verdict, name) for name in store.list(Verdict)]
    (failed,) = [v for v in verdicts if v.table_version == before.content_hash]
    assert not failed.passed
    assert f"corrected to table version {after.content_hash[:12]}" in failed.reasons
    passed = store.get(Verdict, pointer.verdict)
    assert passed.passed
    assert min(r.ratio for r in passed.ratios) >= 0.9
    assert "corrected by validation" in pathlib.Path(ended.json["report"]).read_text()
    _a_second_run_finds_it(misled)


def _a_second_run_finds_it(run: Deployment) -> None:
    (run.engine.folder / "boots.jsonl").unlink()
    before = run.pointer()
    ended = run.ask("run", "--json")
    assert ended.process.returncode == ExitCode.OK, ended.errors
    assert ended.json["promoted"]["moved"] is False
    assert run.engine.boots() == []
    assert run.pointer() == before
    rebuilt = run.ask("build", "--json")
    assert rebuilt.json["table_version"] == ended.json["table_version"]
