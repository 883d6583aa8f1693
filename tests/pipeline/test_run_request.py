"""What a run may be asked for, and what is refused."""

import pathlib

import pytest

from tabletune.pipeline.request import RequestError, RunRequest
from tabletune.records.base import RecordError
from tabletune.records.verdict import Margins


def request(**values: object) -> RunRequest:
    return RunRequest(**({"model": "m", "method": "ngram", "engine": "e"} | values))  # type: ignore[arg-type]


def test_a_request_survives_its_file(tmp_path: pathlib.Path) -> None:
    asked = request(
        lengths=(0, 1, 3),
        engine_args=("--dtype", "float32"),
        speculative_extra={"prompt_lookup_max": 3},
        margins=Margins(best_fixed=0.05),
        max_tpot_ms=12.5,
    )
    path = tmp_path / "request.json"
    path.write_text(asked.to_json())
    assert RunRequest.load(path) == asked


def test_a_damaged_request_file_is_explained(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "request.json"
    path.write_text("{")
    with pytest.raises(RecordError, match="strict JSON"):
        RunRequest.load(path)


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({"max_draft_length": 0}, "--max-draft-length"),
        ({"max_num_seqs": 0}, "--max-num-seqs"),
        ({"lengths": (0, 9)}, "--lengths"),
        ({"method": "eagle3"}, "--drafter"),
        ({"method": "Eagle3"}, "--method"),
        ({"method": ""}, "--method"),
    ],
)
def test_bad_options_are_named(values: dict[str, object], option: str) -> None:
    with pytest.raises(RequestError, match="expected") as caught:
        request(**values)
    assert caught.value.option == option


def test_lengths_always_hold_zero_and_the_maximum() -> None:
    assert request(lengths=(2,), max_draft_length=5).all_lengths == (0, 2, 5)
    assert request(max_draft_length=2).all_lengths == (0, 1, 2)


@pytest.mark.parametrize(
    ("method", "kind"), [("ngram", "mixed"), ("suffix", "mixed"), ("mtp", "constant")]
)
def test_step_kind_follows_the_drafter(method: str, kind: str) -> None:
    assert request(method=method).step_kind == kind


def test_profile_method_of_a_kept_request_is_checked(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(request(profile_method="client").to_json())
    assert RunRequest.load(path).profile_method == "client"
    path.write_text(path.read_text().replace('"client"', '"guess"'))
    with pytest.raises(RequestError, match=r"--profile-method: expected in_engine or client"):
        RunRequest.load(path)
