"""Invariants 4 and 6: refs are made once, swapped by comparison, logged, and heal."""

from __future__ import annotations

import contextlib
import logging
import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import (
    CorruptObjectError,
    LockTimeoutError,
    MalformedError,
    NotRegularFileError,
    ObjectNotFoundError,
    RefConflictError,
)
from castore.format import layout, ref
from castore.format.canonical import encode
from castore.format.value import Link, WeakLink
from castore.fs import flock
from castore.refs import transaction
from castore.refs.transaction import PreviousValue
from castore.store.freshening import freshen_reachable
from castore.store.store import Store
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    errors_in,
    id_of,
    leftovers_on_disk,
    manifest,
    memory_store,
    object_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from castore.format.value import ObjectId

A, B, C = manifest(1), manifest(2), manifest(3)
T = FOREIGN_TOPOLOGY
KEY = "c0" * 32


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return castore.open(tmp_path / "s")


def ref_file(store: Store, kernel: str = "k") -> Path:
    return store.root / ref.for_topology("tuning", T, kernel).path


# --- creating ---------------------------------------------------------------------------------


def test_creating_a_ref_with_another_object_is_a_conflict_that_names_both() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    with pytest.raises(RefConflictError) as caught:
        store.record("tuning", T, "k", B)
    assert (caught.value.existing, caught.value.wanted) == (id_of(A), id_of(B))
    assert store.lookup("tuning", T, "k") == A


def test_creating_a_ref_with_the_same_object_succeeds_and_logs_once() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    made = store.set_ref("tuning", T, "k", id_of(A))
    assert made.object == id_of(A)
    assert len(store.ref_log("tuning", T, "k")) == 1


def test_keep_returns_what_the_ref_named_before() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    assert store.record("tuning", T, "k", B, on_conflict="keep") == id_of(A)
    assert store.set_ref("tuning", T, "k", id_of(B), on_conflict="keep").object == id_of(A)


def test_a_ref_says_what_it_is() -> None:
    store, _ = memory_store()
    made = store.set_ref("tuning", T, "k", store.put(A))
    assert made == store.get_ref("tuning", T, "k") == next(store.refs())
    assert (made.namespace, made.topology, made.kernel) == ("tuning", T, "k")
    assert made.key == castore.topology_key(T, "k")


def test_a_topology_manifest_is_put_and_known() -> None:
    store, _ = memory_store()
    made = store.set_ref("tuning", TOPOLOGY, "k", store.put(A))
    assert made.topology == id_of(TOPOLOGY)
    assert store.get(id_of(TOPOLOGY)) == TOPOLOGY
    assert store.lookup("topology", id_of(TOPOLOGY), "topology") == TOPOLOGY
    assert store.lookup("tuning", TOPOLOGY, "k") == A


def test_set_ref_asks_for_its_object_and_all_that_it_links_to() -> None:
    store, _ = memory_store()
    with pytest.raises(ObjectNotFoundError):
        store.set_ref("tuning", T, "k", id_of(A))
    deep = store.put(manifest(5, down=Link(store.put(manifest(6, down=Link(id_of(A)))))))
    with pytest.raises(ObjectNotFoundError) as caught:
        store.set_ref("tuning", T, "k", deep)
    assert caught.value.oid == id_of(A)
    with pytest.raises(ObjectNotFoundError):
        store.record("tuning", T, "k", manifest(7, down=Link(id_of(A))))
    assert store.get_ref("tuning", T, "k") is None
    store.put(A)
    store.set_ref("tuning", T, "k", deep)


@pytest.mark.parametrize("part_is_gone", [False, True])
def test_what_gc_took_is_not_written_anew_without_what_it_links_to(
    *, part_is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent came back first; its child could not, and the parent was left dangling."""
    store, fs = memory_store()
    part = store.put(A)
    whole = store.put(manifest(4, part=Link(part)))
    sync_file = fs.sync_file

    def gc_comes(path: str) -> None:
        monkeypatch.setattr(fs, "sync_file", sync_file)
        for oid in (whole, part)[: 1 + part_is_gone]:
            fs.remove(layout.object_path(oid))
        sync_file(path)

    monkeypatch.setattr(fs, "sync_file", gc_comes)
    kept = None
    with contextlib.suppress(ObjectNotFoundError):
        kept = store.set_ref("tuning", T, "k", whole)
    assert errors_in(store) == []
    if kept is not None:
        assert store.get(part) == A


def test_a_walk_keeps_children_before_their_parents() -> None:
    contents = {id_of(A): encode(A), id_of(B): encode(B)}
    middle = manifest(5, part=Link(id_of(A)), other=Link(id_of(B)))
    top = manifest(6, part=Link(id_of(middle)), again=Link(id_of(A)))
    contents |= {id_of(each): encode(each) for each in (middle, top)}
    kept: list[ObjectId] = []
    freshen_reachable([id_of(top)], contents.__getitem__, lambda oid, _: kept.append(oid))
    assert sorted(kept) == sorted(contents)
    assert kept[2:] == [id_of(middle), id_of(top)]


def test_a_chain_of_large_objects_is_not_held_in_memory() -> None:
    """A store of a few KB can hold sixty linked objects of 20 MiB of zeros each."""
    contents: dict[ObjectId, bytes] = {}
    tip: ObjectId | None = None
    for number in range(30):
        value = manifest(number, padding=bytes(2**22), **({"part": Link(tip)} if tip else {}))
        tip = id_of(value)
        contents[tip] = encode(value)
    assert tip is not None
    kept: list[ObjectId] = []
    tracemalloc.start()
    freshen_reachable(
        [tip], lambda oid: bytes(memoryview(contents[oid])), lambda oid, _: kept.append(oid)
    )
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept == list(contents)
    assert peak_bytes < 64 * 2**20


def test_a_weak_link_to_what_is_no_msgpack_stops_nothing(store: Store) -> None:
    malformed = castore.object_id(b"\xc1")
    store.loose.add(malformed, b"\xc1")
    store.record("tuning", T, "k", manifest(4, evidence=WeakLink(malformed)))
    with pytest.raises(CorruptObjectError):
        store.record("tuning", T, "k2", manifest(4, part=Link(malformed)))


def test_nobody_has_to_have_what_a_weak_link_names() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", manifest(5, evidence=WeakLink(id_of(A))))
    assert store.get_ref("tuning", T, "k") is not None


def test_set_ref_refuses_a_damaged_object(store: Store) -> None:
    oid = store.put(A)
    path = object_file(store.root, oid)
    path.chmod(0o644)
    path.write_bytes(b"junk")
    with pytest.raises(CorruptObjectError):
        store.set_ref("tuning", T, "k", oid)
    assert store.get_ref("tuning", T, "k") is None


def test_a_damaged_topology_manifest_is_not_fatal_to_the_refs_on_it(store: Store) -> None:
    """A damaged copy under the topology's id made every new ref on it fail."""
    path = object_file(store.root, store.put(TOPOLOGY))
    path.chmod(0o644)
    path.write_bytes(b"junk")
    store.record("tuning", id_of(TOPOLOGY), "k", A)
    assert store.lookup("tuning", id_of(TOPOLOGY), "k") == A
    store.record("tuning", TOPOLOGY, "k2", B)
    assert store.lookup("topology", id_of(TOPOLOGY), "topology") == TOPOLOGY


# --- swapping ---------------------------------------------------------------------------------


def test_a_swap_goes_ahead_only_over_what_was_expected() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    with pytest.raises(RefConflictError):
        store.record("tuning", T, "k", C, expected=id_of(B))
    with pytest.raises(RefConflictError):
        store.record("tuning", T, "k", C, expected=PreviousValue.MUST_NOT_EXIST)
    store.record("tuning", T, "k", B, expected=id_of(A))
    assert store.lookup("tuning", T, "k") == B


def test_a_swap_of_a_ref_that_is_not_there_is_a_conflict() -> None:
    store, _ = memory_store()
    with pytest.raises(RefConflictError) as caught:
        store.record("tuning", T, "k", B, expected=id_of(A))
    assert caught.value.existing == "-"
    with pytest.raises(RefConflictError):
        store.delete_ref("tuning", T, "k", expected=id_of(A))


def test_a_deleted_ref_is_gone_and_its_log_tells_what_it_named() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    assert store.delete_ref("tuning", T, "k", reason="wrong driver")
    assert not store.delete_ref("tuning", T, "k")
    assert store.get_ref("tuning", T, "k") is None
    newest = store.ref_log("tuning", T, "k")[0]
    assert (newest.old, newest.new, newest.reason) == (id_of(A), None, "wrong driver")


def test_the_log_tells_every_change_newest_first() -> None:
    store, fs = memory_store()
    store = Store(fs, clock_ns=iter(range(100)).__next__)
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "other", C)
    store.record("tuning", T, "k", B, on_conflict="replace", reason="twice\nas fast")
    entries = store.ref_log("tuning", T, "k")
    assert [(e.old, e.new) for e in entries] == [(id_of(A), id_of(B)), (None, id_of(A))]
    assert entries[0].reason == "twice as fast"
    assert entries[0].time_ns > entries[1].time_ns
    assert (entries[0].topology, entries[0].kernel) == (T, "k")
    assert f"process {os.getpid()}" in entries[0].writer


def test_by_key_namespaces_take_a_key_and_others_do_not() -> None:
    store, _ = memory_store()
    oid = store.record("by-key-tuning", key=KEY, value=A)
    assert store.lookup("by-key-tuning", key=KEY) == A
    assert store.set_ref("by-key-tuning", key=KEY, id=oid).topology is None
    assert store.ref_log("by-key-tuning", key=KEY)[0].new == oid
    doors: list[Callable[[], object]] = [
        lambda: store.set_ref("tuning", key=KEY, id=oid),
        lambda: store.set_ref("by-key-tuning", T, "k", oid),
        lambda: store.set_ref("by-key-tuning", T, "k", oid, key=KEY),
        lambda: store.set_ref("by-key-tuning", id=oid),
        lambda: store.set_ref("tuning", T, "k"),
    ]
    for door in doors:
        with pytest.raises(MalformedError):
            door()
    assert store.delete_ref("by-key-tuning", key=KEY)


def test_the_log_of_a_ref_tells_nothing_of_others_in_the_same_shard() -> None:
    store, _ = memory_store()
    store.record("by-key-tuning", key=KEY, value=A)
    store.record("by-key-tuning", key=KEY[:-1] + "1", value=B)
    assert [each.new for each in store.ref_log("by-key-tuning", key=KEY)] == [id_of(A)]


def test_named_refs_are_set_listed_logged_and_deleted() -> None:
    store, _ = memory_store()
    oid = store.put(A)
    store.set_name("release-1.0", oid)
    with pytest.raises(RefConflictError):
        store.set_name("release-1.0", store.put(B))
    assert [(each.key, each.object) for each in store.names()] == [("release-1.0", oid)]
    assert store.delete_name("release-1.0")
    assert store.get_name("release-1.0") is None
    assert store.name_log("release-1.0")[0].old == oid


# --- keys -------------------------------------------------------------------------------------


ODD_KERNELS = [
    "k",
    "K",
    "Intel(R) Arc(TM)",
    "caf\u00e9",
    "cafe\u0301",
    '["a|b","c"]',
    '["a","b|c"]',
    '["","",""]',
    " ",
    "..",
    "../../x",
    "/etc/passwd",
    "a/b",
    "gemm_f32[m=512,n=512,k=512]",
    "x" * 1024,
    "\u0131\u0130 \u1e9e",
    "\U0001f600",
]


def test_kernel_texts_that_look_alike_are_different_refs_and_never_paths() -> None:
    store, fs = memory_store()
    before = {entry.name for entry in fs.list_folder("")}
    for number, kernel in enumerate(ODD_KERNELS):
        store.record("tuning", T, kernel, manifest(number))
    for number, kernel in enumerate(ODD_KERNELS):
        assert store.lookup("tuning", T, kernel) == manifest(number)
    assert sorted(each.kernel or "" for each in store.refs("tuning")) == sorted(ODD_KERNELS)
    assert {entry.name for entry in fs.list_folder("")} == before


@pytest.mark.parametrize("bad", ["", "x" * 1025, "\u00e9" * 513, "a\nb", "a\tb", "\0", "\ud800"])
def test_kernel_texts_that_no_ref_can_hold_are_refused(bad: str) -> None:
    store, _ = memory_store()
    with pytest.raises(MalformedError):
        store.record("tuning", T, bad, A)
    with pytest.raises(MalformedError):
        store.get_ref("tuning", T, bad)


# --- damage -----------------------------------------------------------------------------------


JUNK = {
    "empty": b"",
    "binary": b"\x00\xff\xfe" * 40,
    "cut": b"object " + b"a" * 64 + b"\ntopology ",
    "upper": b"object " + b"A" * 64 + b"\n",
    "outside": b"object ../../x\ntopology x\nkernel k\n",
    "other ref": ref.encode_ref(ref.for_topology("tuning", T, "other"), id_of(A)),
    "newline": ref.encode_ref(ref.for_topology("tuning", T, "k"), id_of(A)) + b"\n",
    "huge": b"object " * 10_000,
}


@pytest.mark.parametrize("kind", JUNK)
def test_a_damaged_ref_is_a_miss_with_one_warning_and_the_next_set_heals_it(
    store: Store, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "other", B)
    ref_file(store).write_bytes(JUNK[kind])
    with caplog.at_level(logging.WARNING, logger="castore"):
        assert store.lookup("tuning", T, "k") is None
        assert store.get_ref("tuning", T, "k") is None
    assert len(caplog.records) == 1
    assert [each.kernel for each in store.refs("tuning")] == ["other"]
    store.record("tuning", T, "k", C)
    assert store.lookup("tuning", T, "k") == C
    (kept,) = (store.root / "local/quarantine").iterdir()
    assert kept.read_bytes() == JUNK[kind]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_plain_file_in_place_of_a_ref_is_a_miss_at_once_and_heals(
    store: Store, kind: str
) -> None:
    store.record("tuning", T, "k", A)
    path = ref_file(store)
    content = path.read_bytes()
    path.unlink()
    if kind == "link":
        (store.root.parent / "elsewhere").write_bytes(content)
        path.symlink_to(store.root.parent / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert store.lookup("tuning", T, "k") is None
    assert list(store.refs("tuning")) == []
    store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == B


@pytest.mark.parametrize("depth", ["namespace", "shard"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_ref_folder_that_is_none_is_refused_and_the_others_work(
    tmp_path: Path, depth: str, kind: str
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "k", A)
    store.record("config", T, "k", B)
    shard = ref_file(store).parent
    folder = shard if depth == "shard" else shard.parent
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    if kind == "link":
        folder.symlink_to(elsewhere)
    else:
        os.mkfifo(folder)
    reader = castore.open(store.root)
    assert reader.lookup("tuning", T, "k") is None
    assert reader.lookup("config", T, "k") == B
    assert [each.namespace for each in reader.refs()] == ["config"]
    with pytest.raises(NotRegularFileError):
        reader.record("tuning", T, "k", C)


def test_a_ref_whose_object_is_missing_conflicts_with_nothing(store: Store) -> None:
    oid = store.record("tuning", T, "k", A)
    object_file(store.root, oid).unlink()
    assert store.lookup("tuning", T, "k") is None
    assert store.record("tuning", T, "k", B, on_conflict="keep") == id_of(B)
    assert store.lookup("tuning", T, "k") == B


def test_a_ref_whose_object_is_damaged_conflicts_with_nothing(store: Store) -> None:
    path = object_file(store.root, store.record("tuning", T, "k", A))
    path.chmod(0o644)
    path.write_bytes(b"junk")
    store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == B


def test_a_missing_object_is_a_miss_without_a_warning_as_it_may_be_on_its_way(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    object_file(store.root, store.record("tuning", T, "k", A)).unlink()
    assert store.lookup("tuning", T, "k") is None
    assert caplog.records == []


def test_a_torn_log_line_takes_no_other_with_it(store: Store) -> None:
    store.record("tuning", T, "k", A)
    name = ref.for_topology("tuning", T, "k")
    log = store.root / layout.log_path(name.namespace, name.key)
    log.write_bytes(log.read_bytes() + log.read_bytes()[:50])
    store.record("tuning", T, "k", B, on_conflict="replace")
    assert [each.new for each in store.ref_log("tuning", T, "k")] == [id_of(B), id_of(A)]


def test_a_lock_that_another_holds_is_waited_for_a_bounded_time_and_its_holder_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LOCK_WAIT_S", 0.02)
    name = ref.for_topology("tuning", T, "k")
    with castore.open(store.root).fs.lock(layout.ref_lock_path(name.namespace, name.key), wait_s=0):
        with pytest.raises(LockTimeoutError) as caught:
            store.record("tuning", T, "k", A)
        assert f"process {os.getpid()}" in caught.value.holder
        assert store.get_ref("tuning", T, "k") is None
        assert leftovers_on_disk(store.root) == []
    store.record("tuning", T, "k", A)


# --- where locks do nothing -------------------------------------------------------------------


def test_two_creators_collide_even_where_locks_do_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that publishes a new ref fails when the name is taken."""
    monkeypatch.setattr(flock, "_flock", lambda *_: None)
    other = castore.open(store.root)
    rename_new = store.fs.rename_new

    def after_the_other(source: str, target: str) -> None:
        monkeypatch.setattr(store.fs, "rename_new", rename_new)
        other.record("tuning", T, "k", B)
        rename_new(source, target)

    monkeypatch.setattr(store.fs, "rename_new", after_the_other)
    with pytest.raises(RefConflictError) as caught:
        store.record("tuning", T, "k", A)
    assert (caught.value.existing, caught.value.wanted) == (id_of(B), id_of(A))
    assert store.lookup("tuning", T, "k") == B


def test_two_creators_of_the_same_object_both_succeed_where_locks_do_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flock, "_flock", lambda *_: None)
    rename_new = store.fs.rename_new

    def after_the_other(source: str, target: str) -> None:
        monkeypatch.setattr(store.fs, "rename_new", rename_new)
        castore.open(store.root).record("tuning", T, "k", A)
        rename_new(source, target)

    monkeypatch.setattr(store.fs, "rename_new", after_the_other)
    assert store.record("tuning", T, "k", A) == id_of(A)


def test_a_ref_can_be_made_where_there_are_no_hard_links(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "no links")

    monkeypatch.setattr("castore.fs.posix.os.link", refuse)
    store.record("tuning", T, "k", A)
    with pytest.raises(RefConflictError):
        store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == A
