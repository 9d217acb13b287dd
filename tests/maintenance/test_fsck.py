"""Invariant 6: fsck names every damage, and nothing that only vanished while it looked."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest
import zstandard

import castore
from castore.errors import CastoreError, CorruptObjectError, ObjectNotFoundError
from castore.format import layout, ref, version
from castore.format.value import Link, WeakLink
from castore.maintenance import fsck
from castore.maintenance.findings import FINDINGS, Finding
from castore.maintenance.pins import pin
from tests.maintenance.test_fsck_levels import STRICT_DAMAGE
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    copy_of,
    frame_of,
    id_of,
    manifest,
    memory_store,
    object_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _pytest.mark import ParameterSet

    from castore.store.store import Store

A, B, C = manifest(1), manifest(2), manifest(3)
T = FOREIGN_TOPOLOGY


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a clean store with an object of each role."""
    store = castore.open(tmp_path / "s")
    store.put(A)
    store.record("tuning", TOPOLOGY, "k", manifest(5, part=Link(id_of(A))))
    store.set_name("best", store.put(B))
    pin(store, store.put(C))
    return store


def spoil(path: Path, data: bytes) -> None:
    if path.exists():
        path.chmod(0o644)
    path.write_bytes(data)


def ref_file(store: Store) -> Path:
    return store.root / ref.for_topology("tuning", id_of(TOPOLOGY), "k").path


def misname_object(store: Store) -> None:
    spoil(object_file(store.root, id_of(A)), frame_of(B))


def cut_object(store: Store) -> None:
    path = object_file(store.root, id_of(A))
    spoil(path, path.read_bytes()[:-1])


def link_object(store: Store) -> None:
    path = object_file(store.root, id_of(A))
    path.rename(store.root.parent / "elsewhere")
    path.symlink_to(store.root.parent / "elsewhere")


def malform_object(store: Store) -> None:
    content = b"\xc1"
    oid = castore.object_id(content)
    spoil(object_file(store.root, oid), zstandard.ZstdCompressor().compress(content))


def lose_target(store: Store) -> None:
    object_file(store.root, id_of(A)).unlink()


def foreign_in_shard(store: Store) -> None:
    spoil(store.root / "objects/00/README", b"hello")


def link_shard(store: Store) -> None:
    (store.root / "objects/00").rmdir()
    (store.root / "objects/00").symlink_to("/tmp")  # noqa: S108 - a folder that exists


def junk_ref(store: Store) -> None:
    spoil(ref_file(store), b"junk")


def misplace_ref(store: Store) -> None:
    path = ref_file(store)
    path.rename(path.with_name("0" * 62))


def foreign_name(store: Store) -> None:
    spoil(store.root / "refs/names/UPPER", b"object " + id_of(A).encode() + b"\n")


def lose_ref_target(store: Store) -> None:
    object_file(store.root, id_of(manifest(5, part=Link(id_of(A))))).unlink()


def foreign_topology(store: Store) -> None:
    store.record("tuning", T, "k", A)


def tear_log(store: Store) -> None:
    log = next((store.root / "local/logs/tuning").iterdir())
    spoil(log, log.read_bytes() + b"torn")


def lose_pinned(store: Store) -> None:
    object_file(store.root, id_of(C)).unlink()


def foreign_files(store: Store) -> None:
    spoil(store.root / "notes.txt", b"")


def foreign_in_refs(store: Store) -> None:
    spoil(store.root / "refs/Stray", b"")


def file_for_namespace(store: Store) -> None:
    spoil(store.root / "refs/stray", b"")


def foreign_in_namespace(store: Store) -> None:
    (store.root / "refs/tuning/zz").mkdir()


def foreign_in_objects(store: Store) -> None:
    (store.root / "objects/elsewhere").symlink_to("/tmp")  # noqa: S108 - a folder that exists


def foreign_in_local(store: Store) -> None:
    spoil(store.root / "local/notes", b"")


def link_log(store: Store) -> None:
    log = next((store.root / "local/logs/tuning").iterdir())
    log.rename(store.root.parent / "log")
    log.symlink_to(store.root.parent / "log")


def leave_trash(store: Store) -> None:
    store.fs.rename(layout.object_path(id_of(B)), layout.trash_path(id_of(B)))


def leave_temp(store: Store) -> None:
    spoil(store.root / "local/tmp/half", b"")
    os.utime(store.root / "local/tmp/half", (1, 1))


def heal(store: Store) -> None:
    misname_object(store)
    store.put(A)


DAMAGE: list[tuple[Callable[[Store], None], str]] = [
    (misname_object, "object-damaged"),
    (cut_object, "object-damaged"),
    (link_object, "object-damaged"),
    (malform_object, "object-malformed"),
    (lose_target, "object-link-missing"),
    (foreign_in_shard, "object-foreign-file"),
    (link_shard, "object-foreign-file"),
    (junk_ref, "ref-damaged"),
    (misplace_ref, "ref-damaged"),
    (foreign_name, "ref-damaged"),
    (lose_ref_target, "ref-object-missing"),
    (foreign_topology, "ref-topology-foreign"),
    (tear_log, "log-damaged"),
    (lose_pinned, "pin-object-missing"),
    (foreign_files, "foreign-file"),
    (foreign_in_refs, "foreign-file"),
    (file_for_namespace, "ref-unreadable"),
    (foreign_in_namespace, "foreign-file"),
    (foreign_in_objects, "foreign-file"),
    (foreign_in_local, "foreign-file"),
    (link_log, "foreign-file"),
    (leave_trash, "trash-leftover"),
    (leave_temp, "temp-leftover"),
    (heal, "quarantined"),
]
ALSO = {"object-damaged": ("object-link-missing",), "object-foreign-file": ("foreign-file",)}
UNREADABLE = {"object-unreadable": "objects/", "ref-unreadable": "refs/tuning"}


def test_a_sound_store_is_clean_and_counted(store: Store) -> None:
    report = fsck.check(store)
    assert report.findings == ()
    assert (report.objects, report.refs, report.is_complete) == (5, 3, True)


def name_of(each: object) -> str:
    return str(getattr(each, "__name__", each))


@pytest.mark.parametrize(("damage", "finding_id"), DAMAGE, ids=name_of)
def test_each_damage_is_named_and_fsck_changes_nothing(
    store: Store, damage: Callable[[Store], None], finding_id: str
) -> None:
    damage(store)
    before = state(store.root)
    named = {found.id for found in fsck.check(castore.open(store.root)).findings}
    # What is no plain file is both foreign and missing.
    assert {finding_id} <= named <= {finding_id, *ALSO.get(finding_id, ())}
    assert state(store.root) == before


def state(root: Path) -> dict[str, int]:
    return {
        str(path): path.lstat().st_mtime_ns
        for path in root.rglob("*")
        if not path.is_dir() and path.name != "clock"
    }


@pytest.mark.parametrize("finding_id", UNREADABLE)
def test_what_cannot_be_read_is_told_apart_from_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch, finding_id: str
) -> None:
    read, list_folder = store.fs.read, store.fs.list_folder

    def broken_read(path: str, *, limit_bytes_max: int) -> bytes:
        if path.startswith(UNREADABLE[finding_id]):
            raise OSError(errno.EIO, "the disk")
        return read(path, limit_bytes_max=limit_bytes_max)

    monkeypatch.setattr(store.fs, "read", broken_read)
    report = fsck.check(store)
    assert {found.id for found in report.findings} == {finding_id}
    assert not report.is_complete

    def broken_list(path: str) -> object:
        if path.startswith(UNREADABLE[finding_id]):
            raise OSError(errno.EIO, "the disk")
        return list_folder(path)

    monkeypatch.setattr(store.fs, "read", read)
    monkeypatch.setattr(store.fs, "list_folder", broken_list)
    report = fsck.check(store)
    assert finding_id in {found.id for found in report.findings}
    assert not report.is_complete


def test_every_finding_of_the_table_is_made_by_a_test() -> None:
    made = {finding_id for _, finding_id in (*DAMAGE, *STRICT_DAMAGE)}
    assert made | set(UNREADABLE) == set(FINDINGS)
    assert {Finding(each, "", "").severity for each in FINDINGS} == {"error", "warning", "info"}


@pytest.mark.parametrize("folder", ["refs", "objects"])
@pytest.mark.parametrize("kind", ["link", "fifo", "missing"])
def test_a_strange_top_folder_is_a_finding_not_an_accident(
    store: Store, folder: str, kind: str
) -> None:
    elsewhere = store.root.parent / "elsewhere"
    (store.root / folder).rename(elsewhere)
    if kind == "link":
        (store.root / folder).symlink_to(elsewhere)
    elif kind == "fifo":
        os.mkfifo(store.root / folder)
    report = fsck.check(castore.open(store.root))
    if (folder, kind) == ("refs", "missing"):
        assert report.refs == 0
    else:
        assert report.findings


def test_a_missing_weak_target_is_no_finding(store: Store) -> None:
    store.put(manifest(6, evidence=WeakLink("ab" * 32)))  # type: ignore[arg-type]  # hex does
    assert fsck.check(store).findings == ()


def test_what_vanishes_while_it_is_looked_at_is_no_finding(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_folder = store.fs.list_folder

    def gone_after_listing(path: str) -> object:
        found = list_folder(path)
        if path == f"objects/{id_of(A)[:2]}":
            object_file(store.root, id_of(A)).unlink(missing_ok=True)
            object_file(store.root, id_of(manifest(5, part=Link(id_of(A))))).unlink()
        if path.startswith("refs/tuning/"):
            ref_file(store).unlink(missing_ok=True)
        if path == layout.TMP:
            shutil.rmtree(store.root / "local/tmp")
        return found

    (store.root / "local/tmp/half").write_bytes(b"")
    monkeypatch.setattr(store.fs, "list_folder", gone_after_listing)
    shards = sorted({id_of(A)[:2], id_of(manifest(5, part=Link(id_of(A))))[:2]})
    assert len(shards) == 2
    assert fsck.check(store).findings == ()


def test_what_looks_damaged_once_and_is_healed_meanwhile_is_no_finding(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    misname_object(store)
    read = store.fs.read

    def heal_after(path: str, *, limit_bytes_max: int) -> bytes:
        found = read(path, limit_bytes_max=limit_bytes_max)
        if path == layout.object_path(id_of(A)):
            monkeypatch.setattr(store.fs, "read", read)
            store.put(A)
        return found

    monkeypatch.setattr(store.fs, "read", heal_after)
    assert {found.id for found in fsck.check(store).findings} == {"quarantined"}


def test_progress_and_a_read_only_store(store: Store) -> None:
    seen: list[int] = []
    reader = castore.open(store.root, read_only=True)
    fsck.check(reader, progress=lambda done, _: seen.append(done))
    assert seen == [1, 2, 3, 4, 5]


# --- every bit and every length ---------------------------------------------------------------


def tiny() -> tuple[Store, dict[str, bytes]]:
    """Return a store with one ref, one named ref, one log, and its files."""
    store, fs = memory_store()
    store.record("tuning", T, "k", A)
    store.set_name("n", id_of(A))
    name = ref.for_topology("tuning", T, "k")
    paths = [
        layout.object_path(id_of(A)),
        name.path,
        ref.for_name("n").path,
        layout.log_path(name.namespace, name.key),
    ]
    return store, {path: fs.read(path, limit_bytes_max=9999) for path in paths}


def variants(data: bytes) -> list[tuple[str, bytes]]:
    cut = [(f"cut to {size}", data[:size]) for size in range(len(data))]
    flipped = [
        (f"bit {bit} of byte {at}", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        for at in range(len(data))
        for bit in range(8)
    ]
    return cut + flipped


def slowly(which: str) -> ParameterSet:
    return pytest.param(which, marks=pytest.mark.slow)


def replaced(store: Store, path: str, data: bytes) -> Store:
    fs = copy_of(store.fs)  # type: ignore[arg-type]  # it is in memory
    fs.remove(path)
    fs.write_new(path, data)
    return type(store)(fs)


@pytest.mark.parametrize("which", ["object", "name", *map(slowly, ["ref", "log"])])
def test_every_flipped_bit_and_every_cut_is_named_and_never_other_content(
    which: str, tried: Callable[[str, int], None]
) -> None:
    store, files = tiny()
    path = list(files)[["object", "ref", "name", "log"].index(which)]
    tried("damages", len(variants(files[path])))
    silent: list[str] = []
    for what, data in variants(files[path]):
        damaged = replaced(store, path, data)
        assert damaged.lookup("tuning", T, "k") in (A, None), what
        try:
            assert damaged.get(id_of(A)) == A, what
        except (CorruptObjectError, ObjectNotFoundError):
            assert which == "object"
        bad = {"object-damaged", "ref-damaged", "ref-object-missing", "log-damaged"}
        if not bad & {found.id for found in fsck.check(damaged).findings}:
            silent.append(what)
    harmless = {"object": frame_is_the_same, "log": log_lines_are_whole}.get(which, never)
    made = dict(variants(files[path]))
    assert [what for what in silent if not harmless(files[path], made[what])] == []


def never(_: bytes, __: bytes) -> bool:
    return False


def frame_is_the_same(good: bytes, data: bytes) -> bool:
    """Tell whether the frame still is one of the same content."""
    content = zstandard.ZstdDecompressor().decompress(data)
    return content == zstandard.ZstdDecompressor().decompress(good)


def log_lines_are_whole(good: bytes, data: bytes) -> bool:
    """Tell whether only the last line end is missing, or nothing is left at all."""
    return data in (b"", good[:-1])


def test_every_flipped_bit_of_the_format_file_is_refused(tmp_path: Path) -> None:
    root = castore.open(tmp_path / "s").root
    for what, data in variants(version.VERSION_1):
        (root / "format").write_bytes(data)
        with pytest.raises(CastoreError):
            castore.open(root)
        assert what
    (root / "format").write_bytes(version.VERSION_1)
    assert castore.open(root).put(A)
