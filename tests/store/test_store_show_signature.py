"""`show` says whether a channel's pointer is signed, and by a key that is trusted here."""

import hashlib
import json
import pathlib
from typing import Any

import pytest

from tabletune.records.pointer import Pointer
from tabletune.store.layout import object_key, pointer_key
from tabletune.store.promotion import promote
from tabletune.store.signing import load_signer, make_key, public_path
from tests.commands.called import call
from tests.store.world import AT, World


class Keys:
    """Two keys, and a channel that is signed by the first, by none, or by whom it says."""

    def __init__(self, world: World, folder: pathlib.Path) -> None:
        self.world, self.files = world, (folder / "ours", folder / "other")
        self.ids = tuple(make_key(path) for path in self.files)

    def promote(self, signed: bool = True) -> None:
        version, verdict = self.world.candidate()
        signer = load_signer(self.files[0]) if signed else None
        promote(self.world.store, "live", version, verdict, AT, "a test", "first", signer=signer)

    def public(self, number: int = 0) -> str:
        return str(public_path(self.files[number]))

    def show(self, *options: str) -> tuple[Any, str]:
        """What `show live` says of the signature: as JSON, and its line."""
        where = ("show", "live", "--store", self.world.store.url, *options)
        shown, text = call(*where, "--json"), call(*where)
        assert (shown.status, text.status) == (0, 0), shown.errors + text.errors
        (line,) = [line for line in text.output.splitlines() if line.startswith("signature: ")]
        return shown.json["signature"], line

    def forge(self, **changes: Any) -> None:
        """Another pointer under the same signature, as who can write to the store could."""
        place = self.world.place
        fields = json.loads(place.read(pointer_key("live"))) | changes
        data = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        data = Pointer.from_json(data).to_json()
        place.write(object_key(Pointer, hashlib.sha256(data).hexdigest()), data)
        place.write(pointer_key("live"), data)


@pytest.fixture
def keys(world: World, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.delenv("TABLETUNE_PUBLIC_KEY", raising=False)
    return Keys(world, tmp_path)


def test_without_a_key_it_says_that_nothing_was_checked(keys: Keys) -> None:
    keys.promote()
    found, line = keys.show()
    assert (found["state"], found["signed_by"]) == ("not_checked", keys.ids[0])
    assert f"of key {keys.ids[0]}, not checked" in line
    assert "--public-key" in line


def test_a_signature_by_a_trusted_key_is_valid(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.promote()
    found, line = keys.show("--public-key", keys.public())
    assert found == {
        "state": "valid",
        "signed_by": keys.ids[0],
        "found": f"of key {keys.ids[0]}, valid",
    }
    assert line == f"signature: of key {keys.ids[0]}, valid"
    monkeypatch.setenv("TABLETUNE_PUBLIC_KEY", keys.public())  # as engines have it
    assert keys.show()[0]["state"] == "valid"


def test_a_signature_of_another_key_or_of_something_else_is_wrong(keys: Keys) -> None:
    keys.promote()
    found, line = keys.show("--public-key", keys.public(1))
    assert (found["state"], found["signed_by"]) == ("wrong", keys.ids[0])
    assert f"expected a pointer signed by key {keys.ids[1]}" in line
    keys.forge(reason="somebody else's")
    found, line = keys.show("--public-key", keys.public())
    assert found["state"] == "wrong"
    assert "that is not of this pointer" in line


def test_a_pointer_that_nobody_signed(keys: Keys) -> None:
    keys.promote(signed=False)
    found, line = keys.show()
    assert (found, line) == (
        {"state": "none", "signed_by": "", "found": "none"},
        "signature: none",
    )
    found, line = keys.show("--public-key", keys.public())
    assert (found["state"], found["signed_by"]) == ("wrong", "")
    assert "found no signature" in line


def test_a_version_by_its_hash_has_none_of_its_own(keys: Keys) -> None:
    keys.promote()
    pointer, _ = keys.world.store.read_pointer("live")
    assert pointer is not None
    shown = call("show", pointer.table_version, "--store", keys.world.store.url, "--json")
    assert shown.json["signature"] is None


def test_a_key_that_cannot_be_used_is_told(keys: Keys, tmp_path: pathlib.Path) -> None:
    keys.promote()
    where = ("show", "live", "--store", keys.world.store.url, "--json")
    ended = call(*where, "--public-key", str(tmp_path / "nothing"))
    assert (ended.status, ended.json["error"]["kind"]) == (6, "KeyUnusable")
