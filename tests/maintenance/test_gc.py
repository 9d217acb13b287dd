"""Invariant 5: gc takes what nothing reaches and is old enough, and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import (
    CorruptObjectError,
    LockTimeoutError,
    MaintenanceRefusedError,
    NotRegularFileError,
    ReadOnlyStoreError,
)
from castore.format import layout, ref
from castore.format.value import Link, WeakLink
from castore.fs import flock
from castore.maintenance import fsck, gc
from castore.maintenance.pins import pin, pins, unpin
from castore.store.lease import lease
from castore.store.store import Store
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    errors_in,
    id_of,
    leftovers,
    manifest,
    memory_store,
    object_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from castore.fs.memory import MemoryFileSystem

A, B, C, KEPT = manifest(1), manifest(2), manifest(3), manifest(99)
T = FOREIGN_TOPOLOGY
DAY_S = 24 * 3600.0


def store_with_a_ref() -> tuple[Store, MemoryFileSystem]:
    store, fs = memory_store()
    store.record("tuning", T, "kept", KEPT)
    return store, fs


def age(store: Store, oid: str) -> None:
    """Let an object on disk be old: two calls in one tick of its clock are equally young."""
    os.utime(object_file(store.root, oid), (1, 1))


def run(
    store: Store, *, grace_s: float = gc.GRACE_S, log_expiry_s: float = gc.LOG_EXPIRY_S
) -> gc.Report:
    with gc.locked(store):
        return gc.apply(store, gc.plan(store, grace_s=grace_s, log_expiry_s=log_expiry_s))


def test_what_nothing_reaches_and_is_old_goes() -> None:
    store, fs = store_with_a_ref()
    oid = store.put(A)
    fs.advance(15 * DAY_NS)
    report = run(store)
    assert (report.removed, report.spared) == (1, 0)
    assert report.freed_bytes > 0
    assert not store.has(oid)
    assert store.lookup("tuning", T, "kept") == KEPT


def test_what_is_younger_than_the_grace_period_stays_with_all_it_reaches() -> None:
    store, fs = store_with_a_ref()
    old = [store.put(A), store.put(B)]
    fs.advance(15 * DAY_NS)
    young = store.put(manifest(5, part=Link(old[0]), evidence=WeakLink(old[1])))
    fs.advance(13 * DAY_NS)
    planned = gc.plan(store)
    assert planned.prune == ()
    assert planned.recent == 3
    fs.advance(2 * DAY_NS)
    assert set(gc.plan(store).prune) == {young, *old}


def test_a_put_of_what_is_there_makes_it_young_again() -> None:
    store, fs = store_with_a_ref()
    oid = store.put(A)
    fs.advance(15 * DAY_NS)
    store.put(A)
    assert run(store).removed == 0
    assert store.has(oid)


@pytest.mark.parametrize("holder", ["ref", "log", "pin", "name", "topology", "deleted"])
def test_what_a_holder_reaches_stays_links_of_both_kinds_included(holder: str) -> None:
    store, fs = store_with_a_ref()
    part = store.put(manifest(6, deeper=Link(store.put(A))))
    evidence = store.put(manifest(7, deeper=WeakLink(store.put(B))))
    top = store.put(manifest(8, part=Link(part), evidence=WeakLink(evidence)))
    if holder == "ref":
        store.set_ref("tuning", T, "k", top)
    elif holder == "log":
        store.set_ref("tuning", T, "k", top)
        store.record("tuning", T, "k", C, on_conflict="replace")
    elif holder == "deleted":
        store.set_ref("tuning", T, "k", top)
        store.delete_ref("tuning", T, "k")
    elif holder == "pin":
        pin(store, top)
    elif holder == "name":
        store.set_name("best", top)
    else:
        store.set_ref("tuning", top, "k", id_of(KEPT))
        (store.fs.remove(ref.for_topology("topology", top, "topology").path))
    fs.advance(15 * DAY_NS)
    assert run(store, grace_s=0).removed == 0
    assert store.get(id_of(A)) == A
    assert store.get(id_of(B)) == B


def test_a_log_entry_keeps_its_object_until_it_expires() -> None:
    _, fs = store_with_a_ref()
    store = Store(fs, clock_ns=lambda: fs.now_ns)
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "k", B, on_conflict="replace")
    fs.advance(89 * DAY_NS)
    assert run(store, grace_s=0).removed == 0
    fs.advance(2 * DAY_NS)
    assert run(store, grace_s=0).removed == 1
    assert not store.has(id_of(A))
    assert store.lookup("tuning", T, "k") == B


def test_a_log_entry_of_a_computer_whose_clock_is_behind_is_as_young_as_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, fs = store_with_a_ref()
    behind = Store(fs, clock_ns=lambda: fs.now_ns - 100 * DAY_NS)
    old = behind.record("tuning", T, "k", A)
    fs.advance(20 * DAY_NS)
    behind.record("tuning", T, "k", B, on_conflict="replace")
    run(store)
    assert store.has(old)
    fs.advance(89 * DAY_NS)
    run(store)
    assert store.has(old)
    fs.advance(2 * DAY_NS)
    run(store)
    assert not store.has(old)


def test_unpinning_lets_go() -> None:
    store, fs = store_with_a_ref()
    oid = store.put(A)
    pin(store, oid)
    fs.advance(1)
    assert run(store, grace_s=0).removed == 0
    assert unpin(store, oid)
    assert not unpin(store, oid)
    assert run(store, grace_s=0).removed == 1


def test_a_plan_changes_nothing_and_apply_does_what_it_says() -> None:
    store, fs = store_with_a_ref()
    store.put(A)
    store.put(manifest(4, part=Link(id_of(A))))
    fs.advance(DAY_NS)
    planned = gc.plan(store, grace_s=0)
    assert set(store.ids()) == {id_of(KEPT), *planned.prune}
    assert planned.prune_bytes > 0
    assert list(fs.list_folder(layout.TRASH)) == []
    assert leftovers(fs) == []
    report = gc.apply(store, planned)
    assert (report.removed, report.freed_bytes) == (2, planned.prune_bytes)


def test_parents_go_before_what_they_link_to() -> None:
    store, fs = store_with_a_ref()
    oid = store.put(A)
    chain = [oid]
    for number in range(100, 110):
        oid = store.put(manifest(number, part=Link(oid), evidence=WeakLink(chain[0])))
        chain.append(oid)
    fs.advance(DAY_NS)
    assert gc.plan(store, grace_s=0).prune == tuple(reversed(chain))


def test_what_a_writer_freshens_after_the_plan_is_spared_with_all_it_links_to() -> None:
    store, fs = store_with_a_ref()
    part = store.put(A)
    top = store.put(manifest(4, part=Link(part)))
    fs.advance(DAY_NS)
    planned = gc.plan(store, grace_s=0)
    store.put(manifest(4, part=Link(part)))
    report = gc.apply(store, planned)
    assert (report.removed, report.spared) == (0, 2)
    assert store.get(top)
    assert store.get(part) == A


def test_what_is_written_under_a_lease_is_kept_however_long_ago_it_was() -> None:
    store, fs = store_with_a_ref()
    store.put(B)
    fs.advance(DAY_NS)
    with lease(fs):
        oid = store.put(A)
        fs.advance(20 * DAY_NS)
        planned = gc.plan(store, grace_s=0)
        assert any("a writer is at work" in note for note in planned.notes)
        assert planned.prune == (id_of(B),)
        gc.apply(store, planned)
    assert store.has(oid)
    assert run(store, grace_s=0).removed == 1


def test_the_now_that_counts_is_taken_before_the_leases_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taken after, a writer that begins in between loses what it has just written."""
    store, fs = store_with_a_ref()
    oid = store.put(A)
    fs.advance(DAY_NS)
    look = gc.oldest_lease_ns

    def look_then_a_writer_begins(looked_at: Store) -> int | None:
        found = look(looked_at)
        fs.lock(f"{layout.LEASES}/writer", wait_s=0)
        Store(fs).put(A)
        fs.advance(1)
        return found

    monkeypatch.setattr(gc, "oldest_lease_ns", look_then_a_writer_begins)
    gc.apply(store, gc.plan(store, grace_s=0))
    assert store.has(oid)


def test_a_lease_that_nobody_holds_keeps_nothing_and_is_swept() -> None:
    store, fs = store_with_a_ref()
    fs.write_new(f"{layout.LEASES}/dead", b"process 1 on elsewhere\n")
    store.put(A)
    fs.advance(1)
    assert run(store, grace_s=0).removed == 1
    assert leftovers(fs) == []


def test_gc_refuses_where_there_are_objects_but_no_refs() -> None:
    store, _ = memory_store()
    store.put(A)
    with pytest.raises(MaintenanceRefusedError, match="mount"):
        gc.plan(store, grace_s=0)
    assert store.has(id_of(A))


def test_gc_refuses_where_refs_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "k", A)
    (store.root / "refs").rename(tmp_path / "unmounted")
    with pytest.raises(MaintenanceRefusedError):
        gc.plan(store, grace_s=0)
    (store.root / "refs").mkdir()
    with pytest.raises(MaintenanceRefusedError):
        gc.plan(store, grace_s=0)
    shutil.copytree(tmp_path / "unmounted", store.root / "refs", dirs_exist_ok=True)
    list_folder = store.fs.list_folder

    def refuse(path: str) -> object:
        if path.startswith("refs/tuning"):
            raise PermissionError(errno.EACCES, "not yours")
        return list_folder(path)

    monkeypatch.setattr(store.fs, "list_folder", refuse)
    with pytest.raises(PermissionError):
        gc.plan(store, grace_s=0)
    assert store.has(id_of(A))


def test_an_empty_store_has_nothing_to_collect() -> None:
    store, _ = memory_store()
    assert run(store).removed == 0


@pytest.mark.parametrize("what", ["a namespace", "names", "a shard", "a ref", "a huge ref"])
def test_gc_refuses_where_refs_may_hide_behind_what_cannot_be_read(
    tmp_path: Path, what: str
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    store.set_name("best", store.record("tuning", T, "k", A))
    age(store, id_of(A))
    shutil.rmtree(store.root / "local/logs")
    path = store.root / ref.for_topology("tuning", T, "k").path
    hidden = {
        "a namespace": path.parent.parent,
        "names": store.root / "refs/names",
        "a shard": path.parent,
    }.get(what, path)
    if what == "a huge ref":
        path.write_bytes(path.read_bytes() + b"#" * 2**21)
    else:
        hidden.rename(tmp_path / "elsewhere")
        hidden.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((MaintenanceRefusedError, NotRegularFileError), match="refs"):
        gc.plan(castore.open(store.root), grace_s=0)
    assert store.has(id_of(A))


def test_a_file_among_the_refs_that_castore_did_not_name_stops_nothing(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    for path in ("refs/README", "refs/tuning/note", "refs/names/.hidden"):
        (store.root / path).parent.mkdir(exist_ok=True)
        (store.root / path).symlink_to(tmp_path / "nowhere")
    age(store, store.put(A))
    assert run(store, grace_s=0).removed == 1


@pytest.mark.parametrize("kind", ["huge", "link", "fifo", "folder"])
def test_a_pin_counts_whatever_its_file_is(tmp_path: Path, kind: str) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    oid = store.put(A)
    age(store, oid)
    path = store.root / layout.pin_path(oid)
    path.parent.mkdir(exist_ok=True)
    if kind == "huge":
        path.write_bytes(b"x" * 2**21)
    elif kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert run(store, grace_s=0).removed == 0
    assert [each.oid for each in pins(store)] == [oid]


@pytest.mark.parametrize("depth", ["named by the ref", "linked to"])
def test_a_damaged_object_that_must_be_followed_stops_gc_and_nothing_goes(
    tmp_path: Path, depth: str
) -> None:
    store = castore.open(tmp_path / "s")
    store.put(B)
    part = store.put(A)
    top = store.record("tuning", T, "k", manifest(4, part=Link(part)))
    path = object_file(store.root, top if depth == "named by the ref" else part)
    path.chmod(0o644)
    path.write_bytes(b"junk")
    before = list(store.ids())
    with pytest.raises(CorruptObjectError):
        gc.plan(store, grace_s=0)
    assert list(store.ids()) == before


def test_what_a_damaged_ref_or_log_line_may_have_named_stays(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "log", B)
    store.record("tuning", T, "log", C, on_conflict="replace")
    damaged = store.root / ref.for_topology("tuning", T, "k").path
    damaged.write_bytes(damaged.read_bytes()[:-4])
    for path in (store.root / "local/logs/tuning").iterdir():
        path.write_bytes(path.read_bytes().replace(b"process", b"PROCESS"))
    assert run(store, grace_s=0).removed == 0


def test_a_ref_whose_object_is_missing_stops_nothing(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    object_file(store.root, store.record("tuning", T, "k", A)).unlink()
    age(store, store.put(B))
    assert run(store, grace_s=0).removed == 1


def test_what_a_killed_gc_left_in_the_trash_is_put_back_by_the_next() -> None:
    store, fs = store_with_a_ref()
    oid = store.put(A)
    kept = id_of(KEPT)
    for each in (oid, kept):
        fs.rename(layout.object_path(each), layout.trash_path(each))
    assert store.lookup("tuning", T, "kept") == KEPT
    report = run(store, grace_s=DAY_S)
    assert report.removed == 0
    assert store.loose.find(oid) is not None
    assert store.loose.find(kept) is not None
    assert list(fs.list_folder(layout.TRASH)) == []


@pytest.mark.parametrize("is_young", [False, True])
def test_what_a_killed_gc_left_in_the_trash_never_comes_back_without_what_it_links_to(
    *, is_young: bool
) -> None:
    """It was put back after the plan was made, and its child then removed by the plan."""
    store, fs = store_with_a_ref()
    part = store.put(A)
    fs.advance(15 * DAY_NS * is_young)
    whole = store.put(manifest(5, part=Link(part)))
    fs.rename(layout.object_path(whole), layout.trash_path(whole))
    fs.advance(DAY_NS)
    report = run(store, grace_s=2 * DAY_S if is_young else 0)
    assert report.removed == (0 if is_young else 2)
    assert (store.has(whole), store.has(part)) == (is_young, is_young)
    assert errors_in(store) == []


def test_trash_of_an_object_that_was_written_anew_is_dropped() -> None:
    store, fs = store_with_a_ref()
    oid = store.put(A)
    fs.rename(layout.object_path(oid), layout.trash_path(oid))
    store.put(A)
    run(store, grace_s=DAY_S)
    assert store.get(oid) == A
    assert list(fs.list_folder(layout.TRASH)) == []


def test_a_good_copy_in_the_trash_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    """It was dropped for the damaged file's sake, and was the only good copy."""
    store = castore.open(tmp_path / "s")
    oid = store.record("tuning", T, "k", A)
    store.fs.rename(layout.object_path(oid), layout.trash_path(oid))
    object_file(store.root, oid).write_bytes(b"")
    run(store, grace_s=0)
    assert castore.open(store.root).loose.find(oid) is not None
    assert store.get(oid) == A
    assert len(os.listdir(store.root / "local/quarantine")) == 1
    assert os.listdir(store.root / "local/trash") == []


def test_a_good_copy_in_the_trash_stays_when_another_moves_the_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = castore.open(tmp_path / "s")
    oid = store.record("tuning", T, "k", A)
    store.fs.rename(layout.object_path(oid), layout.trash_path(oid))
    object_file(store.root, oid).write_bytes(b"")
    quarantine = store.loose.quarantine

    def another_first(which: str) -> bool:
        monkeypatch.setattr(store.loose, "quarantine", quarantine)
        castore.open(store.root).loose.quarantine(oid)
        return quarantine(oid)

    monkeypatch.setattr(store.loose, "quarantine", another_first)
    run(store, grace_s=0)
    assert store.get(oid) == A


def test_a_folder_where_an_object_should_go_leaves_both(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    oid, other = store.put(A), store.put(B)
    for each in (oid, other):
        age(store, each)
    (store.root / layout.trash_path(oid)).mkdir()
    assert run(store, grace_s=0).removed == 1
    assert (store.has(oid), store.has(other)) == (True, False)


def test_what_castore_did_not_name_is_never_removed_nor_followed(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    oid = store.put(A)
    age(store, oid)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    foreign = [
        "notes.txt",
        "objects/README",
        f"objects/{oid[:2]}/{'x' * 62}",
        f"objects/{oid[:2]}/{oid[2:]}.bak",
        "refs/tuning/zz",
        "local/trash/mine",
        "local/notes",
    ]
    for name in foreign:
        (store.root / name).write_text("precious")
    (store.root / "objects/00" / ("0" * 62)).symlink_to(elsewhere)
    assert run(store, grace_s=0).removed == 1
    for name in foreign:
        assert (store.root / name).read_text() == "precious"
    assert elsewhere.read_text() == "precious"
    assert (store.root / "objects/00" / ("0" * 62)).is_symlink()


@pytest.mark.parametrize("grace_s", [0, gc.GRACE_S])
def test_leftovers_are_swept_after_a_day_whatever_the_grace_period(grace_s: float) -> None:
    store, fs = store_with_a_ref()
    fs.write_new(f"{layout.TMP}/old", b"half a frame")
    fs.advance(25 * 3600 * 10**9)
    fs.write_new(f"{layout.TMP}/young", b"half a frame")
    assert run(store, grace_s=grace_s).leftovers == 1
    assert leftovers(fs) == [f"{layout.TMP}/young"]


def test_the_temp_files_of_a_batch_at_work_are_no_leftovers() -> None:
    store, fs = store_with_a_ref()
    with store.batch():
        oid = store.put(A)
        fs.advance(3 * DAY_NS)
        gc.apply(Store(fs), gc.plan(Store(fs), grace_s=0))
    assert store.get(oid) == A


def test_the_clock_that_counts_is_that_of_the_file_system() -> None:
    """The computer's clock may be 20 days ahead of the file server's."""
    _, fs = store_with_a_ref()
    store = Store(fs, clock_ns=lambda: fs.now_ns + 20 * DAY_NS)
    oid = store.put(A)
    fs.advance(13 * DAY_NS)
    assert run(store).removed == 0
    assert store.has(oid)


def test_the_age_of_an_object_on_disk_is_not_told_by_the_computers_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    store.put(A)
    monkeypatch.setattr("time.time", lambda: 2e10)
    monkeypatch.setattr("time.time_ns", lambda: 2 * 10**19)
    assert run(store).removed == 0


def test_where_locks_do_nothing_the_grace_period_is_raised_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    store.put(A)
    monkeypatch.setattr(flock, "_flock", lambda *_: None)
    planned = gc.plan(store, grace_s=0)
    assert planned.prune == ()
    assert any("locks" in note for note in planned.notes)


def test_where_there_are_no_locks_at_all_everything_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(flock, "_flock", refuse)
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    store.put(A)
    assert run(store, grace_s=0).removed == 0
    assert errors_in(store) == []


def test_another_gc_is_waited_for_a_bounded_time_and_named() -> None:
    store, fs = store_with_a_ref()
    with (
        gc.locked(store),
        pytest.raises(LockTimeoutError) as caught,
        gc.locked(Store(fs), wait_s=0.01),
    ):
        pass
    assert caught.value.holder
    with gc.locked(Store(fs), wait_s=0):
        pass


def test_plans_of_two_processes_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    """Each tries whether locks work by locking one file twice; the other's try made it fail."""
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "kept", KEPT)
    store.put(A)
    with castore.open(store.root).fs.lock(layout.PROBE, wait_s=0):
        assert gc.plan(store, grace_s=0).notes == ()


def test_a_read_only_store_is_not_collected(tmp_path: Path) -> None:
    castore.open(tmp_path / "s").record("tuning", T, "k", A)
    store = castore.open(tmp_path / "s", read_only=True)
    with pytest.raises(ReadOnlyStoreError):
        gc.apply(store, gc.plan(store))
    with pytest.raises(ReadOnlyStoreError), gc.locked(store):
        pass


def test_a_reader_that_holds_an_old_id_still_gets_its_object_after_a_replacement() -> None:
    store, fs = store_with_a_ref()
    store.record("tuning", T, "k", A)
    held = store.get_ref("tuning", T, "k")
    assert held is not None
    store.record("tuning", T, "k", B, on_conflict="replace")
    fs.advance(1)
    run(store, grace_s=0)
    assert store.get(held.object) == A


def test_a_topology_manifest_stays_as_long_as_a_ref_is_on_it() -> None:
    store, fs = store_with_a_ref()
    store.record("tuning", TOPOLOGY, "k", A)
    fs.advance(100 * DAY_NS)
    run(store, grace_s=0, log_expiry_s=0)
    assert store.get(id_of(TOPOLOGY)) == TOPOLOGY


def test_progress_is_told() -> None:
    store, fs = store_with_a_ref()
    store.put(A)
    fs.advance(1)
    seen: list[tuple[int, int | None]] = []
    planned = gc.plan(store, grace_s=0, progress=lambda *counts: seen.append(counts))
    gc.apply(store, planned, progress=lambda *counts: seen.append(counts))
    assert seen == [(1, None), (1, 1)]
    assert fsck.check(store).objects == 1
