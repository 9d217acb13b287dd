"""Invariants 3 and 4 over alternates: read below, never written, never in the way."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import CorruptObjectError, RefConflictError
from castore.format import layout, ref
from castore.format.canonical import encode
from castore.format.value import Link
from castore.maintenance import gc, stats
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    errors_in,
    frame_of,
    id_of,
    manifest,
    object_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from castore.store.store import Store

A, B, C = manifest(1), manifest(2), manifest(3)
T = FOREIGN_TOPOLOGY


@pytest.fixture
def below(tmp_path: Path) -> Store:
    store = castore.open(tmp_path / "below")
    store.record("tuning", T, "k", A)
    return store


@pytest.fixture
def store(tmp_path: Path, below: Store) -> Store:
    return castore.open(tmp_path / "s", alternates=[below.root])


def test_objects_and_refs_of_an_alternate_are_read(store: Store, below: Store) -> None:
    assert store.get(id_of(A)) == A
    assert store.has(id_of(A))
    assert list(store.ids()) == [id_of(A)]
    assert store.lookup("tuning", T, "k") == A
    assert [each.object for each in store.refs()] == [id_of(A)]
    assert store.alternates == (str(below.root),)


def test_what_an_alternate_has_put_later_is_seen(store: Store, below: Store) -> None:
    below.record("tuning", T, "later", B)
    assert store.lookup("tuning", T, "later") == B


def test_a_conflict_in_an_alternate_is_none_and_the_local_ref_wins(
    store: Store, below: Store
) -> None:
    store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == B
    assert below.lookup("tuning", T, "k") == A
    assert [each.object for each in store.refs()] == [id_of(B)]


def test_keep_makes_the_local_ref_as_an_alternate_is_no_conflict(store: Store) -> None:
    assert store.record("tuning", T, "k", B, on_conflict="keep") == id_of(B)


def test_a_swap_is_compared_with_what_the_alternate_shows(store: Store) -> None:
    with pytest.raises(RefConflictError):
        store.record("tuning", T, "k", C, expected=id_of(B))
    store.record("tuning", T, "k", C, expected=id_of(A))
    assert store.lookup("tuning", T, "k") == C


def test_deleting_hides_what_the_alternate_has_and_a_new_ref_shows_again(
    store: Store, below: Store
) -> None:
    assert store.delete_ref("tuning", T, "k")
    assert store.get_ref("tuning", T, "k") is None
    assert store.lookup("tuning", T, "k") is None
    assert list(store.refs()) == []
    assert not store.delete_ref("tuning", T, "k")
    assert below.lookup("tuning", T, "k") == A
    path = store.root / ref.for_topology("tuning", T, "k").path
    assert path.read_bytes().startswith(b"object -\n")
    store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == B
    assert errors_in(store) == []


def test_two_creators_over_a_tombstone_conflict(store: Store) -> None:
    store.delete_ref("tuning", T, "k")
    store.record("tuning", T, "k", B)
    with pytest.raises(RefConflictError):
        store.record("tuning", T, "k", C)


def test_a_ref_to_an_object_of_an_alternate_copies_nothing(store: Store, below: Store) -> None:
    store.set_ref("tuning", T, "mine", id_of(A))
    store.record("tuning", T, "linked", manifest(4, base=Link(id_of(A))))
    assert not object_file(store.root, id_of(A)).exists()
    assert store.lookup("tuning", T, "mine") == A
    gc.apply(store, gc.plan(store, grace_s=0))
    assert store.lookup("tuning", T, "mine") == A
    assert errors_in(store) == []


def test_a_good_copy_in_an_alternate_stands_in_for_a_damaged_one(store: Store) -> None:
    store.put(A)
    path = object_file(store.root, id_of(A))
    path.chmod(0o644)
    path.write_bytes(b"junk")
    assert store.get(id_of(A)) == A
    assert store.lookup("tuning", T, "k") == A
    store.put(A)
    assert store.loose.find(id_of(A)) is not None


def test_a_damaged_copy_in_an_alternate_is_damage_and_a_local_put_heals(
    store: Store, below: Store
) -> None:
    path = object_file(below.root, id_of(A))
    path.chmod(0o644)
    path.write_bytes(frame_of(B))
    with pytest.raises(CorruptObjectError) as caught:
        store.get(id_of(A))
    assert str(below.root) in caught.value.path
    store.put(A)
    assert store.get(id_of(A)) == A
    assert path.read_bytes() == frame_of(B)


def test_a_damaged_ref_in_an_alternate_is_a_miss(store: Store, below: Store) -> None:
    (below.root / ref.for_topology("tuning", T, "k").path).write_bytes(b"junk")
    assert store.lookup("tuning", T, "k") is None
    assert list(store.refs()) == []
    store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == B


def test_the_first_of_several_alternates_counts(tmp_path: Path, below: Store) -> None:
    second = castore.open(tmp_path / "second")
    second.record("tuning", T, "k", B)
    store = castore.open(tmp_path / "s", alternates=[second.root, below.root])
    assert store.lookup("tuning", T, "k") == B
    assert [each.object for each in store.refs()] == [id_of(B)]


def test_a_tombstone_in_a_first_alternate_hides_a_second(tmp_path: Path, below: Store) -> None:
    second = castore.open(tmp_path / "second", alternates=[below.root])
    second.delete_ref("tuning", T, "k")
    store = castore.open(tmp_path / "s", alternates=[second.root, below.root])
    assert store.lookup("tuning", T, "k") is None
    assert list(store.refs()) == []


def test_castore_alternates_lists_stores_after_those_given(
    tmp_path: Path, below: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASTORE_ALTERNATES", os.pathsep.join([str(below.root), ""]))
    second = castore.open(tmp_path / "second")
    store = castore.open(tmp_path / "s", alternates=[second.root])
    assert store.alternates == (str(second.root), str(below.root))


def test_an_alternate_that_is_no_store_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = castore.open(tmp_path / "s", alternates=[tmp_path / "nothing"])
    assert store.alternates == ()
    assert "not a store" in caplog.text


def test_nothing_is_ever_written_to_an_alternate(store: Store, below: Store) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in below.root.rglob("*")
        }

    before = state()
    store.put(A)
    store.record("tuning", T, "k", B)
    store.set_ref("tuning", T, "k2", id_of(A))
    store.delete_ref("tuning", T, "k")
    with store.batch():
        store.put(A)
        store.record("tuning", T, "k3", manifest(9, base=Link(id_of(A))))
    gc.apply(store, gc.plan(store, grace_s=0))
    stats.collect(store)
    errors_in(store)
    assert state() == before


def test_a_damaged_copy_in_an_alternate_is_no_reason_to_do_without_one_of_our_own(
    store: Store, below: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gc took the store's own copy while set_ref looked, and the alternate's is damaged."""
    oid = below.put(B)
    store.loose.add(oid, encode(B))
    spoiled = object_file(below.root, oid)
    spoiled.chmod(0o644)
    spoiled.write_bytes(b"junk")
    sync_file = store.fs.sync_file

    def gc_comes(path: str) -> None:
        monkeypatch.setattr(store.fs, "sync_file", sync_file)
        store.fs.remove(layout.object_path(oid))
        sync_file(path)

    monkeypatch.setattr(store.fs, "sync_file", gc_comes)
    store.set_ref("tuning", T, "b", oid)
    assert store.lookup("tuning", T, "b") == B


def test_an_alternate_that_turns_unusable_is_left_out_with_one_warning(
    store: Store, below: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.record("tuning", T, "own", B)
    shutil.rmtree(below.root)
    below.root.write_text("no folder any more")
    assert store.lookup("tuning", T, "k") is None
    assert [each.kernel for each in store.refs()] == ["own"]
    assert store.delete_ref("tuning", T, "own")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert f"{below.root} cannot be read" in told[0]
