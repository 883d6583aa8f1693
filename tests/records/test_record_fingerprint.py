"""Identity leaves labels out; differences are words."""

from hypothesis import given, settings

from tabletune.records.fingerprint import Fingerprint
from tests.records import strategies


def relabelled(fingerprint: Fingerprint) -> Fingerprint:
    update: dict[str, object] = {"model": fingerprint.model.model_copy(update={"label": "moved"})}
    if fingerprint.drafter is not None:
        update["drafter"] = fingerprint.drafter.model_copy(update={"label": "moved too"})
    return fingerprint.model_copy(update=update)


@settings(deadline=None)
@given(strategies.fingerprints)
def test_labels_do_not_count(fingerprint: Fingerprint) -> None:
    moved = relabelled(fingerprint)
    assert moved.identity == fingerprint.identity
    assert fingerprint.matches(moved)
    assert fingerprint.differences(moved) == []
    assert fingerprint.same_models(moved)


@settings(deadline=None)
@given(strategies.fingerprints, strategies.fingerprints)
def test_there_are_words_exactly_where_two_do_not_match(
    left: Fingerprint, right: Fingerprint
) -> None:
    assert (left.differences(right) == []) == left.matches(right)
    assert len(left.differences(right)) == len(right.differences(left))


@settings(deadline=None)
@given(strategies.fingerprints)
def test_an_upgrade_is_the_same_deployment(fingerprint: Fingerprint) -> None:
    engine = fingerprint.engine.model_copy(update={"version": fingerprint.engine.version + "1"})
    device = fingerprint.device.model_copy(update={"count": fingerprint.device.count + 1})
    upgraded = fingerprint.model_copy(
        update={"engine": engine, "device": device, "settings": {"dtype": "float16"}}
    )
    assert fingerprint.same_models(upgraded)
    assert not fingerprint.matches(upgraded)


@settings(deadline=None)
@given(strategies.fingerprints, strategies.models)
def test_another_drafter_is_another_deployment(fingerprint: Fingerprint, drafter: object) -> None:
    other = fingerprint.model_copy(update={"drafter": drafter})
    assert fingerprint.same_models(other) == fingerprint.matches(other)


def test_the_words_name_what_and_from_where_to_where() -> None:
    # Built by hand, so that the words can be read here.
    from tabletune.records.fingerprint import DeviceFacts, EngineFacts, ModelFacts

    one = Fingerprint(
        device=DeviceFacts(
            platform="cuda", name="H200", count=1, capability="9.0", memory_bytes=1, driver="570"
        ),
        engine=EngineFacts(
            distribution="vllm", version="0.32.0", runner="V2", torch="2.13", python="3.12"
        ),
        model=ModelFacts(label="a", content="sha256:a", architecture="L", vocabulary_size=10),
        method="ngram",
        drafter=None,
        settings={"dtype": "float32", "quantization": "fp8"},
    )
    other = one.model_copy(
        update={
            "engine": one.engine.model_copy(update={"version": "0.33.0"}),
            "method": "eagle3",
            "drafter": one.model.model_copy(update={"content": "sha256:d"}),
            "settings": {"dtype": "bfloat16"},
        }
    )
    assert one.differences(other) == [
        "engine version: 0.32.0 → 0.33.0",
        "drafter method: ngram → eagle3",
        "setting dtype: float32 → bfloat16",
        "setting quantization: fp8 → absent",
        "drafter content: absent → sha256:d",
        "drafter architecture: absent → L",
        "drafter vocabulary_size: absent → 10",
    ]
    assert other.differences(one)[0] == "engine version: 0.33.0 → 0.32.0"
