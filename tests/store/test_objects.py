"""Invariants 2, 3 and 6: objects are right, missing or a typed error; damage is loud and heals."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from typing import TYPE_CHECKING

import pytest
import zstandard

import castore
from castore.errors import (
    CorruptObjectError,
    MalformedError,
    NotRegularFileError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
)
from castore.format import layout
from castore.format.canonical import encode
from castore.store.store import Store
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    frame_of,
    id_of,
    leftovers,
    leftovers_on_disk,
    manifest,
    memory_store,
    new_disk,
    object_file,
    restat,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from castore.fs.protocol import Lock

A, B = manifest(1), manifest(2)
T = FOREIGN_TOPOLOGY


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return castore.open(tmp_path / "s")


def spoil(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_what_was_put_comes_back_equal_with_its_types(store: Store) -> None:
    value: castore.Value = {
        "none": None,
        "yes": True,
        "one": 1,
        "float": 1.0,
        "bytes": b"\0\xff",
        "list": [[], {}, -(2**63), 2**64 - 1],
        "link": castore.WeakLink(id_of(A)),
    }
    got = store.get(store.put(value))
    assert got == value
    assert isinstance(got, dict)
    assert [type(each) for each in got.values()] == [
        type(each)
        for _, each in sorted(value.items())  # type: ignore[union-attr]  # a dict
    ]


def test_an_id_that_is_not_there_is_not_found_and_says_where_it_was_searched(store: Store) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        store.get(id_of(A))
    assert isinstance(caught.value, KeyError)
    assert caught.value.searched == (str(store.root),)


def test_another_process_sees_what_is_put_after_it_opened_the_store(store: Store) -> None:
    other = castore.open(store.root)
    store.record("tuning", T, "k", A)
    assert other.lookup("tuning", T, "k") == A


def test_the_same_content_again_keeps_the_file_and_counts_as_fresh(store: Store) -> None:
    path = object_file(store.root, store.put(A))
    os.utime(path, (1, 1))
    inode, old = restat(path)
    store.put(A)
    assert restat(path)[0] == inode
    assert restat(path)[1] > old


def test_another_frame_of_the_same_content_is_adopted(store: Store) -> None:
    oid = id_of(A)
    path = object_file(store.root, oid)
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress(encode(A)))
    inode, _ = restat(path)
    store.put(A)
    assert restat(path)[0] == inode
    assert store.get(oid) == A


def test_a_copy_that_is_not_ours_to_touch_is_written_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = object_file(store.root, store.put(A))
    inode, _ = restat(path)

    touch = store.fs.touch

    def refuse_what_is_not_ours(name: str) -> None:
        if restat(store.root / name)[0] == inode:
            raise PermissionError(errno.EPERM, "not yours")
        touch(name)

    monkeypatch.setattr(store.fs, "touch", refuse_what_is_not_ours)
    assert store.put(A) == id_of(A)
    assert restat(path)[0] != inode
    assert os.listdir(store.root / "local/tmp") == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda frame: frame[:-3],
    "junk": lambda _: b"\x00junk\xff" * 9,
    "another object": lambda _: frame_of(B),
    "two frames": lambda frame: frame + frame,
    "a byte after": lambda frame: frame + b"\0",
    "no size": lambda _: zstandard.ZstdCompressor(write_content_size=False).compress(encode(A)),
    "a bomb": lambda _: bytes.fromhex("28b52ffde0000000001000000001000000"),
    "zeros": lambda _: zstandard.ZstdCompressor().compress(bytes(80 * 2**20)),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_copy_is_a_typed_error_and_the_next_put_heals_it(store: Store, kind: str) -> None:
    oid = store.put(A)
    path = object_file(store.root, oid)
    damaged = DAMAGE[kind](path.read_bytes())
    spoil(path, damaged)
    with pytest.raises(CorruptObjectError):
        store.get(oid)
    store.put(A)
    assert store.get(oid) == A
    (kept,) = (store.root / "local/quarantine").iterdir()
    assert kept.read_bytes() == damaged


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_plain_file_is_refused_at_once_and_healed(store: Store, kind: str) -> None:
    oid = id_of(A)
    path = object_file(store.root, oid)
    make_strange(path, kind)
    with pytest.raises(CorruptObjectError):
        store.get(oid)
    assert store.lookup("tuning", T, "k") is None
    store.put(A)
    assert store.get(oid) == A
    assert not path.is_symlink()


def make_strange(path: Path, kind: str) -> None:
    if kind == "link":
        target = path.parent.parent.parent.parent / "elsewhere"
        target.write_bytes(frame_of(A))
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_shard_directory_that_is_none_is_refused_not_followed(tmp_path: Path, kind: str) -> None:
    root = castore.open(tmp_path / "s").root
    shard = root / "objects" / id_of(A)[:2]
    shard.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / id_of(A)[2:]).write_bytes(frame_of(A))
    if kind == "link":
        shard.symlink_to(elsewhere)
    else:
        os.mkfifo(shard)
    store = castore.open(root)
    with pytest.raises(CorruptObjectError):
        store.get(id_of(A))
    assert not store.has(id_of(A))
    with pytest.raises(NotRegularFileError):
        store.put(A)
    store.put(B)
    assert store.get(id_of(B)) == B
    assert leftovers_on_disk(root) == []


def test_damage_behind_a_ref_is_a_miss_with_one_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    oid = store.record("tuning", T, "k", A)
    store.record("tuning", T, "other", B)
    spoil(object_file(store.root, oid), b"")
    with caplog.at_level(logging.WARNING, logger="castore"):
        assert store.lookup("tuning", T, "k") is None
        assert store.lookup("tuning", T, "k") is None
    assert len(caplog.records) == 1
    assert oid in caplog.text
    assert store.lookup("tuning", T, "other") == B


def test_readers_move_nothing(store: Store) -> None:
    oid = store.record("tuning", T, "k", A)
    spoil(object_file(store.root, oid), b"junk")
    store.lookup("tuning", T, "k")
    list(store.refs())
    assert object_file(store.root, oid).read_bytes() == b"junk"
    assert list((store.root / "local/quarantine").iterdir()) == []


def test_an_object_that_is_no_msgpack_of_known_types_is_damage(store: Store) -> None:
    content = b"\xca\x00\x00\x00\x00\xff\xff"
    oid = castore.object_id(content)
    object_file(store.root, oid).write_bytes(zstandard.ZstdCompressor().compress(content))
    with pytest.raises(CorruptObjectError):
        store.get(oid)


def test_an_object_in_the_trash_of_a_gc_at_work_is_still_read(store: Store) -> None:
    oid = store.put(A)
    store.fs.rename(layout.object_path(oid), layout.trash_path(oid))
    assert store.get(oid) == A
    assert store.has(oid)


def test_the_object_that_gc_takes_between_the_look_and_the_touch_is_written_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = store.put(A)
    touch = store.fs.touch

    def gone_first(path: str) -> None:
        store.fs.remove(path)
        touch(path)

    monkeypatch.setattr(store.fs, "touch", gone_first)
    store.put(A)
    assert store.loose.find(oid) == encode(A)


def before_the_rename_of(
    store: Store, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> None:
    """Let something happen once, right before a staged object is given its name."""
    rename_new = store.fs.rename_new

    def rename(source: str, target: str) -> None:
        monkeypatch.setattr(store.fs, "rename_new", rename_new)
        act()
        rename_new(source, target)

    monkeypatch.setattr(store.fs, "rename_new", rename)


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_copy_that_another_writer_made_durable_is_not_replaced_by_one_that_is_not(
    *, in_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = new_disk()
    careless = Store(fs, durable=False)
    before_the_rename_of(careless, monkeypatch, lambda: Store(fs).put(A))
    with careless.batch() if in_batch else contextlib.nullcontext():
        careless.put(A)
    after = Store(fs.after_power_loss(unsynced="dropped", unsynced_names="dropped"))
    assert after.get(id_of(A)) == A
    assert leftovers(fs) == []


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_durable_put_that_comes_second_makes_the_first_ones_copy_durable(
    *, in_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = new_disk()
    store = Store(fs)
    before_the_rename_of(store, monkeypatch, lambda: Store(fs, durable=False).put(A))
    with store.batch() if in_batch else contextlib.nullcontext():
        store.put(A)
    after = Store(fs.after_power_loss(unsynced="dropped", unsynced_names="dropped"))
    assert after.get(id_of(A)) == A
    assert leftovers(fs) == []


def test_a_copy_that_was_healed_since_it_was_seen_damaged_is_left_where_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = store.put(A)
    spoil(object_file(store.root, oid), b"junk")
    lock = store.fs.lock

    def heal_first(path: str, *, wait_s: float) -> Lock:
        monkeypatch.setattr(store.fs, "lock", lock)
        castore.open(store.root).put(A)
        return lock(path, wait_s=wait_s)

    monkeypatch.setattr(store.fs, "lock", heal_first)
    store.put(A)
    assert len(os.listdir(store.root / "local/quarantine")) == 1
    assert store.get(oid) == A


def test_a_name_that_others_keep_taking_and_dropping_ends_in_an_error_that_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(source: str, target: str) -> None:
        raise FileExistsError(target)

    monkeypatch.setattr(store.fs, "rename_new", taken)
    with pytest.raises(CorruptObjectError, match="coming and going"):
        store.put(A)
    assert leftovers_on_disk(store.root) == []


def test_fifty_threads_putting_one_object_make_one_object(store: Store) -> None:
    start = threading.Barrier(50)
    got: list[str] = []

    def put() -> None:
        start.wait()
        got.append(store.put(A))

    threads = [threading.Thread(target=put) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [id_of(A)] * 50
    assert list(store.ids()) == [id_of(A)]
    assert leftovers_on_disk(store.root) == []


def test_the_compressor_pool_survives_threads_that_read_and_write_at_once() -> None:
    store, _ = memory_store()
    values = [manifest(number, filling="x" * number) for number in range(200)]
    wrong: list[object] = []

    def work() -> None:
        wrong.extend(value for value in values if store.get(store.put(value)) != value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_store_is_usable_in_a_forked_child_and_in_its_parent(store: Store) -> None:
    store.put(A)
    child = os.fork()
    if child == 0:
        status = 9
        try:
            store.record("tuning", T, "child", B)
            status = 0 if store.get(id_of(A)) == A else 8
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.lookup("tuning", T, "child") == B
    store.record("tuning", T, "parent", A)
    assert leftovers_on_disk(store.root) == []


def test_nothing_is_stored_of_a_value_that_is_refused(store: Store) -> None:
    with pytest.raises(MalformedError):
        store.put({"kind": "x", "schema": 1, "tuple": (1, 2)})  # type: ignore[dict-item]  # on purpose
    with pytest.raises(MalformedError):
        store.record("tuning", T, "k", {"kind": "x", "n": {1, 2}})  # type: ignore[dict-item]  # on purpose
    assert list(store.ids()) == []
    assert list(store.refs()) == []
    store.put(A)


def test_a_read_only_store_reads_and_refuses_every_write(store: Store) -> None:
    oid = store.record("tuning", T, "k", A)
    reader = castore.open(store.root, read_only=True)
    assert reader.lookup("tuning", T, "k") == A
    writes: list[Callable[[], object]] = [
        lambda: reader.put(B),
        lambda: reader.set_ref("tuning", T, "k2", oid),
        lambda: reader.record("tuning", T, "k2", B),
        lambda: reader.delete_ref("tuning", T, "k"),
        lambda: reader.batch().__enter__(),
        lambda: reader.freshen(oid),
        lambda: reader.set_name("n", oid),
        lambda: reader.delete_name("n"),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyStoreError):
            write()
    assert list(store.ids()) == [oid]


BAD_IDS = [
    "../../x",
    "../" * 20 + "etc/passwd",
    "A" * 64,
    "a" * 63,
    "a" * 65,
    "a" * 64 + "\n",
    "",
    "a" * 63 + "\0",
    "a" * 63 + "\u0661",
]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_no_door_takes_a_wrong_id(bad: str) -> None:
    store, _ = memory_store()
    doors: list[Callable[[], object]] = [
        lambda: store.get(bad),
        lambda: store.has(bad),
        lambda: store.freshen(bad),
        lambda: store.set_ref("tuning", T, "k", bad),
        lambda: store.set_ref("tuning", bad, "k", id_of(A)),
        lambda: store.set_ref("by-key-tuning", key=bad, id=id_of(A)),
        lambda: store.set_ref("tuning", T, "k", id_of(A), expected=bad),
        lambda: store.record("tuning", bad, "k", A),
        lambda: store.record("by-key-tuning", key=bad, value=A),
        lambda: store.get_ref("tuning", bad, "k"),
        lambda: store.get_ref("by-key-tuning", key=bad),
        lambda: store.delete_ref("tuning", bad, "k"),
        lambda: store.ref_log("tuning", bad, "k"),
        lambda: store.lookup("by-key-tuning", key=bad),
        lambda: store.set_name("n", bad),
        lambda: castore.Link(bad),  # type: ignore[arg-type]  # on purpose
        lambda: castore.WeakLink(bad),  # type: ignore[arg-type]  # on purpose
        lambda: castore.topology_key(bad, "k"),
    ]
    for door in doors:
        with pytest.raises(MalformedError):
            door()
    assert list(store.ids()) == []


@pytest.mark.parametrize(
    "bad", ["../x", "..", "", "Tuning", "names", "layers", "base", "a" * 33, "a/b", "a\n", "-a"]
)
def test_no_door_takes_a_wrong_namespace(bad: str) -> None:
    store, _ = memory_store()
    doors: list[Callable[[], object]] = [
        lambda: store.set_ref(bad, T, "k", id_of(A)),
        lambda: store.record(bad, T, "k", A),
        lambda: store.get_ref(bad, T, "k"),
        lambda: store.delete_ref(bad, T, "k"),
        lambda: list(store.refs(bad)),
        lambda: store.ref_log(bad, T, "k"),
        lambda: store.lookup(bad, T, "k"),
    ]
    for door in doors:
        with pytest.raises(MalformedError):
            door()


@pytest.mark.parametrize("bad", ["../x", "..", ".", "", "A", "a/b", "a\n", "a" * 129, ".hidden"])
def test_no_door_takes_a_wrong_name(bad: str) -> None:
    store, _ = memory_store()
    doors: list[Callable[[], object]] = [
        lambda: store.set_name(bad, id_of(A)),
        lambda: store.get_name(bad),
        lambda: store.delete_name(bad),
        lambda: store.name_log(bad),
    ]
    for door in doors:
        with pytest.raises(MalformedError):
            door()
