import json
from collections import Counter

import pytest

from tabletune.measure import prompts as prompts_module
from tabletune.measure.prompts import (
    Prompt,
    PromptFileError,
    flatten,
    load_prompts,
    prompt_set,
)


def write(path, *lines):
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def test_shipped_set():
    shipped = load_prompts()
    assert Counter(p.group for p in shipped.prompts) == {
        "code": 40,
        "chat": 40,
        "summarising": 40,
        "extraction": 40,
    }
    texts = [p.text for p in shipped.prompts]
    assert len(set(texts)) == 160
    assert all(200 <= len(text) <= 1700 for text in texts)
    assert len({text.split()[0] for text in texts}) > 25  # not one template over and over
    assert all(p.messages == (("user", p.text),) for p in shipped.prompts)
    assert load_prompts().sha256 == shipped.sha256


def test_sample_is_spread_over_the_groups():
    sample = load_prompts().sample(16)
    assert Counter(p.group for p in sample.prompts) == dict.fromkeys(sample.groups, 4)
    assert load_prompts().sample(500).sha256 == load_prompts().sha256


def test_mixed_prompts_take_turns_by_group():
    sample = load_prompts().sample(48)
    mixed = sample.mixed()
    assert sorted(mixed.prompts, key=lambda p: p.text) == sorted(
        sample.prompts, key=lambda p: p.text
    )
    groups = [p.group for p in mixed.prompts]
    assert all(set(groups[i : i + 4]) == set(sample.groups) for i in range(0, 48, 4))
    uneven = prompt_set([Prompt(f"a{i}", "a") for i in range(6)] + [Prompt("b", "b")]).mixed()
    assert [p.text for p in uneven.prompts] == ["a0", "a1", "a2", "b", "a3", "a4", "a5"]
    assert prompt_set(uneven.of_group("a")).mixed().prompts == uneven.of_group("a")


def test_all_forms_may_be_mixed(tmp_path):
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    ]
    answer = {"role": "assistant", "content": "Hi."}
    path = write(
        tmp_path / "log.jsonl",
        {"prompt": "one", "group": "a"},
        "",
        {"messages": chat},
        {"custom_id": "7", "body": {"model": "m", "messages": [*chat, answer]}, "group": "b"},
        {"request": {"body": {"prompt": "two", "max_tokens": 5}}, "response": {"text": "x"}},
    )
    found = load_prompts(path)
    assert [p.group for p in found.prompts] == ["a", "prompts", "b", "prompts"]
    assert found.prompts[0].messages == ()
    assert found.prompts[1].messages == (("system", "Be brief."), ("user", "Hello"))
    assert found.prompts[2].messages == found.prompts[1].messages  # the logged answer is dropped
    assert found.prompts[1].text == "system: Be brief.\n\nuser: Hello\n\nassistant:"
    assert found.prompts[3].text == "two"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{oops", "{oops"),
        ("[1]", "[1]"),
        ('{"text": "x"}', "the keys ['text']"),
        ('{"prompt": ""}', "''"),
        ('{"prompt": 3}', "3"),
        ('{"prompt": "x", "group": 1}', "1"),
        ('{"messages": []}', "[]"),
        ('{"messages": [{"content": "x"}]}', "{'content': 'x'}"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "image_url"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "assistant"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, found):
    path = write(tmp_path / "p.jsonl", {"prompt": "fine"}, line)
    with pytest.raises(PromptFileError) as caught:
        load_prompts(path)
    assert caught.value.line == 2
    assert found in caught.value.found
    assert "p.jsonl, line 2: expected" in str(caught.value)


def test_files_that_cannot_be_used(tmp_path, monkeypatch):
    with pytest.raises(PromptFileError, match="No such file"):
        load_prompts(tmp_path / "absent.jsonl")
    with pytest.raises(PromptFileError, match="an empty file"):
        load_prompts(write(tmp_path / "empty.jsonl", "", " "))
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"prompt": "fine"}\n{"prompt": "Käse"}'.encode("latin-1"))
    with pytest.raises(PromptFileError, match=r"line 2: expected UTF-8 text, found byte b'\\xe4'"):
        load_prompts(latin)
    monkeypatch.setattr(prompts_module, "MAX_FILE_BYTES", 10)
    with pytest.raises(PromptFileError, match="a larger file"):
        load_prompts(write(tmp_path / "large.jsonl", {"prompt": "many words"}))


def test_hash_is_of_content_not_of_form(tmp_path):
    one = load_prompts(write(tmp_path / "1", {"prompt": "a", "group": "g"}))
    other = load_prompts(write(tmp_path / "2", "", '{"group":"g",   "prompt":"a"}', ""))
    different = load_prompts(write(tmp_path / "3", {"prompt": "b", "group": "g"}))
    assert one.sha256 == other.sha256 != different.sha256


def test_flatten_keeps_a_single_question_as_it_is():
    assert flatten([("user", "Why?")]) == "Why?"
