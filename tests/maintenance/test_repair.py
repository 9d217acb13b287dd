"""Repair mends what fsck finds, deletes nothing, and may be stopped anywhere."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, get_args

import pytest

import castore
from castore.format import layout, ref
from castore.format.canonical import encode
from castore.format.value import Link
from castore.fs.memory import MemoryFileSystem, PowerLossError
from castore.fs.memory_tree import Content, Names
from castore.maintenance import gc, repair
from castore.maintenance.pins import pin, pins
from castore.store.store import Store
from tests.fs.faults import FaultyFileSystem
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    copy_of,
    errors_in,
    finding_ids,
    frame_of,
    id_of,
    manifest,
    memory_store,
    object_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from castore.format.value import Value

T = FOREIGN_TOPOLOGY
PART = manifest(1)
WHOLE = manifest(2, part=Link(id_of(PART)))
OLDER, NEWER, OTHER = manifest(3), manifest(4), manifest(5)
GOOD = [PART, WHOLE, OLDER, NEWER, OTHER]
NAME = ref.for_topology("tuning", T, "k")
BROKEN_NAME = ref.for_topology("tuning", T, "broken")


def spoil(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    fs.remove(path)
    fs.write_new(path, data, durable=True)


def lose(fs: MemoryFileSystem, value: Value) -> None:
    fs.remove(layout.object_path(id_of(value)))


def good_store() -> tuple[Store, MemoryFileSystem]:
    """Return a store with refs that were replaced, links, and a pin."""
    store, fs = memory_store()
    for value in (PART, WHOLE):
        store.put(value)
    store.record("tuning", T, "k", OLDER)
    store.record("tuning", T, "k", NEWER, on_conflict="replace")
    store.record("tuning", T, "broken", OTHER)
    store.set_name("best", id_of(WHOLE))
    pin(store, id_of(WHOLE))
    return store, fs


def damaged_store() -> tuple[Store, MemoryFileSystem]:
    """Return the same with a damage of each kind that repair mends."""
    _, fs = good_store()
    spoil(fs, layout.object_path(id_of(WHOLE)), frame_of(OTHER))
    lose(fs, PART)
    lose(fs, NEWER)
    spoil(fs, BROKEN_NAME.path, b"junk")
    fs.rename(layout.object_path(id_of(OTHER)), layout.trash_path(id_of(OTHER)))
    fs.write_new(f"{layout.TMP}/half", b"x", durable=True)
    fs.advance(2 * DAY_NS)
    fs = copy_of(fs)
    return Store(fs), fs


def mend(store: Store, *donors: Store, restore_refs: bool = True) -> repair.Report:
    plan = repair.plan(store, donors=donors, restore_refs=restore_refs)
    return repair.apply(store, plan, donors=donors)


def quarantined(store: Store) -> list[str]:
    return sorted(entry.name for entry in store.fs.list_folder(layout.QUARANTINE))


def test_a_sound_store_needs_no_repair() -> None:
    store, fs = good_store()
    plan = repair.plan(store, restore_refs=True)
    assert plan.is_empty
    assert (plan.lost, plan.is_complete) == ((), True)
    before = fs.ops
    repair.plan(store)
    assert fs.ops == before


def test_a_plan_changes_nothing() -> None:
    store, fs = damaged_store()
    donor, _ = good_store()
    before = fs.after_power_loss(unsynced="kept", unsynced_names="kept")
    repair.plan(store, donors=[donor], restore_refs=True)
    for folder in (layout.TMP, layout.TRASH, layout.QUARANTINE):
        assert fs.list_folder(folder) == before.list_folder(folder)
    assert finding_ids(store) == finding_ids(Store(before))


def test_damaged_missing_and_dangling_is_mended_from_another_store() -> None:
    store, _ = damaged_store()
    donor, _ = good_store()
    report = mend(store, donor)
    assert report == repair.Report(
        quarantined=1, copied=3, put_back=1, refs_moved=0, refs_restored=1, swept=1
    )
    assert errors_in(store) == []
    assert [store.get(id_of(value)) for value in GOOD] == GOOD
    # The donor had what the ref names, so the ref was left alone.
    assert store.lookup("tuning", T, "k") == NEWER
    assert store.lookup("tuning", T, "broken") == OTHER
    assert repair.plan(store, donors=[donor], restore_refs=True).is_empty


def test_without_another_store_refs_name_the_newest_sound_object_of_their_log() -> None:
    store, _ = damaged_store()
    mend(store)
    assert store.lookup("tuning", T, "k") == OLDER
    assert store.ref_log("tuning", T, "k")[0].reason == "repair"
    assert store.lookup("tuning", T, "broken") == OTHER
    # What nobody has stays named by fsck.
    assert finding_ids(store) >= {"ref-object-missing", "pin-object-missing"}


def test_refs_are_restored_on_request_only() -> None:
    store, _ = damaged_store()
    report = mend(store, restore_refs=False)
    assert (report.refs_restored, report.refs_moved) == (0, 1)
    assert store.get_ref("tuning", T, "broken") is None
    assert reads_of(store, NAME.path) == reads_of(damaged_store()[0], NAME.path)


def reads_of(store: Store, path: str) -> bytes:
    return store.fs.read(path, limit_bytes_max=9999)


def test_what_is_damaged_is_moved_and_never_deleted() -> None:
    store, _ = damaged_store()
    mend(store, restore_refs=False)
    names = quarantined(store)
    assert [name[:64] for name in names if not name.startswith("ref-")] == [id_of(WHOLE)]
    moved = [name for name in names if name.startswith("ref-")]
    assert reads_of(store, f"{layout.QUARANTINE}/{moved[0]}") == b"junk"
    kept = next(name for name in names if not name.startswith("ref-"))
    assert reads_of(store, f"{layout.QUARANTINE}/{kept}") == frame_of(OTHER)


def test_what_a_moved_ref_may_have_named_is_kept_from_gc() -> None:
    store, fs = memory_store()
    store.record("tuning", T, "broken", OTHER)
    store.record("tuning", T, "k", OLDER)
    fs.remove(layout.log_path(BROKEN_NAME.namespace, BROKEN_NAME.key))
    spoil(fs, BROKEN_NAME.path, b"object " + id_of(OTHER).encode() + b"\nto")
    mend(store)
    assert [each.oid for each in pins(store)] == [id_of(OTHER)]
    fs.advance(100 * DAY_NS)
    gc.apply(store, gc.plan(store, grace_s=0))
    assert store.get(id_of(OTHER)) == OTHER


@pytest.mark.parametrize("restore_refs", [False, True])
def test_a_damaged_ref_to_what_an_alternate_has_damaged_is_moved_all_the_same(
    tmp_path: Path, *, restore_refs: bool
) -> None:
    below = castore.open(tmp_path / "below")
    oid = below.put(OTHER)
    store = castore.open(tmp_path / "s", alternates=[below.root])
    store.record("tuning", T, "kept", OLDER)
    store.set_ref("tuning", T, "broken", oid)
    path = store.root / BROKEN_NAME.path
    path.write_bytes(path.read_bytes()[:-3])
    spoiled = object_file(below.root, oid)
    spoiled.chmod(0o644)
    spoiled.write_bytes(b"junk")
    repair.apply(store, repair.plan(store, restore_refs=restore_refs))
    assert not path.exists()
    assert finding_ids(store) <= {"quarantined", "ref-topology-foreign"}


def test_a_copy_comes_from_an_alternate(tmp_path: Path) -> None:
    below = castore.open(tmp_path / "below")
    store = castore.open(tmp_path / "s", alternates=[below.root])
    oid = store.put(PART)
    below.put(PART)
    path = object_file(store.root, oid)
    path.chmod(0o600)
    path.write_bytes(b"junk")
    assert mend(store).copied == 1
    below_file = object_file(below.root, oid)
    below_file.unlink()
    assert store.get(oid) == PART


class Liar:
    """A store that gives other values than it was asked for."""

    def __init__(self, store: Store) -> None:
        self.fs = store.fs

    def get(self, _: str) -> Value:
        return OTHER


def test_a_donor_that_lies_is_not_believed() -> None:
    store, _ = damaged_store()
    liar: Store = Liar(store)  # type: ignore[assignment]  # it has what repair asks for
    plan = repair.plan(store, donors=[liar])
    assert plan.copies == ()
    assert set(plan.lost) == {id_of(WHOLE), id_of(NEWER)}
    donor, _ = good_store()
    repair.apply(store, repair.plan(store, donors=[donor]), donors=[liar])
    assert not store.has(id_of(NEWER))


def test_a_donor_that_is_damaged_itself_is_passed_over() -> None:
    store, _ = damaged_store()
    damaged, _ = damaged_store()
    donor, _ = good_store()
    mend(store, damaged, donor)
    assert errors_in(store) == []


def test_what_a_writer_has_mended_since_the_plan_is_left_alone() -> None:
    store, _ = damaged_store()
    plan = repair.plan(store, restore_refs=True)
    store.put(PART)
    store.put(WHOLE)
    store.record("tuning", T, "broken", PART)
    store.record("tuning", T, "k", PART)
    held = quarantined(store)
    report = repair.apply(store, plan)
    assert (report.quarantined, report.refs_restored) == (0, 0)
    assert quarantined(store) == held
    assert store.lookup("tuning", T, "k") == PART
    assert store.lookup("tuning", T, "broken") == PART


def test_files_that_castore_did_not_make_are_left_alone(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.set_name("best", store.put(PART))
    strays = [
        store.root / "notes",
        store.root / "objects/00/README",
        store.root / "refs/names/UPPER",
        store.root / "local/quarantine/mine",
    ]
    for stray in strays:
        stray.write_bytes(b"mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (store.root / "objects/link").symlink_to(elsewhere)
    mend(store)
    assert all(stray.read_bytes() == b"mine" for stray in strays)
    assert (store.root / "objects/link").is_symlink()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_under_an_objects_or_a_refs_name_is_moved_as_it_is(
    tmp_path: Path, kind: str
) -> None:
    store = castore.open(tmp_path / "s")
    donor = castore.open(tmp_path / "donor")
    store.record("tuning", T, "k", OLDER)
    donor.put(OLDER)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"somebody's")
    for path in (object_file(store.root, id_of(OLDER)), store.root / NAME.path):
        path.unlink()
        if kind == "link":
            path.symlink_to(elsewhere)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()
    mend(store, donor)
    assert elsewhere.read_bytes() == b"somebody's"
    assert errors_in(store) == []
    assert store.lookup("tuning", T, "k") == OLDER
    assert len(quarantined(store)) == 2


def test_a_young_temp_file_and_one_that_a_batch_may_need_are_left() -> None:
    store, fs = memory_store()
    with store.batch():
        store.put(PART)
        fs.advance(3 * DAY_NS)
        assert repair.plan(Store(fs)).sweep == ()
    fs.write_new(f"{layout.TMP}/young", b"")
    assert repair.plan(store).sweep == ()
    fs.advance(3 * DAY_NS)
    assert repair.plan(store).sweep == (f"{layout.TMP}/young",)


def test_without_working_locks_only_the_grace_period_makes_a_temp_file_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, fs = memory_store()
    fs.write_new(f"{layout.TMP}/half", b"")
    fs.advance(3 * DAY_NS)
    monkeypatch.setattr(fs, "do_locks_work", lambda _: False)
    assert repair.plan(store).sweep == ()
    fs.advance(12 * DAY_NS)
    assert repair.plan(store).sweep == (f"{layout.TMP}/half",)


def test_a_ref_that_was_moved_is_restored_later_unless_it_was_deleted_since() -> None:
    store, _ = damaged_store()
    mend(store, restore_refs=False)
    assert mend(store).refs_restored == 2
    assert store.lookup("tuning", T, "broken") == OTHER
    store.delete_ref("tuning", T, "broken")
    assert mend(store).refs_restored == 0
    assert store.get_ref("tuning", T, "broken") is None


# --- stopped anywhere -------------------------------------------------------------------------


def ends_well(fs: MemoryFileSystem) -> None:
    """A second run completes; all that was good is there, and what was damaged is kept."""
    store = Store(fs)
    donor, _ = good_store()
    mend(store, donor)
    assert errors_in(store) == []
    assert [store.get(id_of(value)) for value in GOOD] == GOOD
    assert store.lookup("tuning", T, "k") == NEWER
    assert store.lookup("tuning", T, "broken") == OTHER
    assert repair.plan(store, donors=[donor], restore_refs=True).is_empty
    kept = [reads_of(store, f"{layout.QUARANTINE}/{name}") for name in quarantined(store)]
    assert frame_of(OTHER) in kept


@pytest.mark.parametrize("unsynced", get_args(Content))
@pytest.mark.parametrize("names", get_args(Names))
def test_power_lost_anywhere_in_a_repair_loses_nothing_and_a_second_run_completes(
    unsynced: Content, names: Names
) -> None:
    donor, _ = good_store()
    _, base = damaged_store()
    for power_ops in range(1000):
        fs = copy_of(base, power_ops=power_ops)
        try:
            mend(Store(fs), donor)
        except PowerLossError:
            ends_well(fs.after_power_loss(unsynced=unsynced, unsynced_names=names))
        else:
            break
    else:
        pytest.fail("it never ended")
    assert power_ops > 30


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_whichever_call_of_a_repair_fails_a_second_run_completes(number: int) -> None:
    donor, _ = good_store()
    _, base = damaged_store()
    for fail_at in range(1000):
        memory = copy_of(base)
        fs = FaultyFileSystem(memory, fail_at=fail_at, error=OSError(number, "made up"))
        with contextlib.suppress(OSError):
            mend(Store(fs), donor)
        ends_well(memory)
        if len(fs.calls) <= fail_at:
            break
    else:
        pytest.fail("it never ended")
    assert fail_at > 100


def test_an_unreachable_object_is_fetched_after_a_crash_between_moving_and_copying() -> None:
    """Nothing names it, so only the file in quarantine tells that it was there."""
    store, fs = memory_store()
    donor, _ = good_store()
    store.put(OTHER)
    spoil(fs, layout.object_path(id_of(OTHER)), b"junk")
    store.loose.quarantine(id_of(OTHER))
    assert mend(store, donor).copied == 1
    assert store.get(id_of(OTHER)) == OTHER


def test_an_object_of_the_right_id_that_is_no_msgpack_is_moved() -> None:
    store, _ = memory_store()
    content = b"\xc1"
    oid = castore.object_id(content)
    store.loose.add(oid, content)
    assert mend(store).quarantined == 1
    assert errors_in(store) == []


def test_contents_are_respelled_before_they_are_believed() -> None:
    """A donor's object that is not canonical has another id when it is spelled anew."""
    store, fs = memory_store()
    donor, _ = memory_store()
    content = b"\xd9\x01x"
    oid = castore.object_id(content)
    assert encode("x") != content
    donor.loose.add(oid, content)
    store.loose.add(oid, content)
    spoil(fs, layout.object_path(oid), b"junk")
    assert repair.plan(store, donors=[donor]).lost == (oid,)
