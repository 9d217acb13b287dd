"""Logs are trimmed under their writers' locks, and `--auto` collects only when it is worth it."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castore.format import layout, ref
from castore.fs.memory import MemoryFileSystem, PowerLossError
from castore.fs.memory_tree import Content, Names
from castore.maintenance import auto_gc, gc, log_expiry, shards
from castore.maintenance.auto_gc import decide, note_done
from castore.store.store import Store
from tests.fs.faults import FaultyFileSystem
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    copy_of,
    errors_in,
    id_of,
    leftovers,
    manifest,
    memory_store,
    new_disk,
)

if TYPE_CHECKING:
    from castore.format.reflog import LogEntry

T = FOREIGN_TOPOLOGY
DAY_S = 24 * 3600.0
KEY, OTHER_KEY = "ab" * 32, "ab" * 31 + "cd"
LOG = layout.log_path("by-key-tuning", KEY)


def clocked_store() -> tuple[Store, MemoryFileSystem]:
    """Return a store whose writers' clock is that of its file system."""
    fs = new_disk()
    return Store(fs, clock_ns=lambda: fs.now_ns), fs


def set_to(store: Store, number: int, key: str = KEY) -> None:
    store.record("by-key-tuning", key=key, value=manifest(number), on_conflict="replace")


def old_and_new() -> tuple[Store, MemoryFileSystem]:
    """Return a store with two expired changes of a ref, and one that is not."""
    store, fs = clocked_store()
    set_to(store, 1)
    set_to(store, 2)
    fs.advance(100 * DAY_NS)
    set_to(store, 3)
    return store, fs


def news(store: Store, key: str = KEY) -> list[str | None]:
    return [entry.new for entry in store.ref_log("by-key-tuning", key=key)]


def test_expired_entries_are_dropped_and_the_others_stay() -> None:
    store, fs = old_and_new()
    assert log_expiry.trim(store) == log_expiry.Trimmed(2, ())
    assert news(store) == [id_of(manifest(3))]
    before = fs.ops
    assert log_expiry.trim(store).entries == 0
    assert [call for call in fs.calls[before - fs.ops :] if "rename" in call] == []


def test_the_newest_entry_of_a_ref_stays_while_it_tells_what_the_ref_names() -> None:
    store, fs = clocked_store()
    set_to(store, 1)
    set_to(store, 2)
    set_to(store, 1, OTHER_KEY)
    store.delete_ref("by-key-tuning", key=OTHER_KEY)
    fs.advance(100 * DAY_NS)
    assert log_expiry.trim(store).entries == 3
    assert news(store) == [id_of(manifest(2))]
    assert news(store, OTHER_KEY) == []


def test_damaged_lines_stay_for_what_can_be_read_in_them() -> None:
    store, fs = old_and_new()
    fs.append(LOG, b"torn")
    set_to(store, 4)
    log_expiry.trim(store)
    assert b"\ntorn\n" in fs.read(LOG, limit_bytes_max=9999)


def test_nothing_is_trimmed_where_locks_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store, fs = old_and_new()
    monkeypatch.setattr(fs, "do_locks_work", lambda _: False)
    trimmed = log_expiry.trim(store)
    assert trimmed.entries == 0
    assert "locks" in trimmed.notes[0]
    assert len(news(store)) == 3


def test_a_log_whose_writer_is_at_work_is_left_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, fs = old_and_new()
    monkeypatch.setattr(log_expiry, "_LOCK_WAIT_S", 0)
    with fs.lock(layout.ref_lock_path("by-key-tuning", KEY), wait_s=0):
        trimmed = log_expiry.trim(store)
    assert LOG in trimmed.notes[0]
    assert len(news(store)) == 3


def test_an_entry_that_is_appended_while_a_log_is_looked_at_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, fs = old_and_new()
    lock = fs.lock

    def late(path: str, *, wait_s: float) -> object:
        if path == layout.ref_lock_path("by-key-tuning", KEY):
            monkeypatch.setattr(fs, "lock", lock)
            set_to(Store(fs, clock_ns=lambda: fs.now_ns), 4)
        return lock(path, wait_s=wait_s)

    monkeypatch.setattr(fs, "lock", late)
    log_expiry.trim(store)
    assert news(store) == [id_of(manifest(4)), id_of(manifest(3))]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_whichever_call_of_a_trimming_fails_the_log_is_the_old_or_the_new_one(number: int) -> None:
    _, base = old_and_new()
    for fail_at in range(100):
        memory = copy_of(base)
        fs = FaultyFileSystem(memory, fail_at=fail_at, error=OSError(number, "made up"))
        with contextlib.suppress(OSError):  # asking for the time, and for the locks, may fail
            log_expiry.trim(Store(fs))
        assert len(news(Store(memory))) in (1, 3), fs.calls[-1]
        assert leftovers(memory) == [], fs.calls[-1]
        assert errors_in(Store(memory)) == []
        if len(fs.calls) <= fail_at:
            return
    pytest.fail("it never ended")


@pytest.mark.parametrize("unsynced", get_args(Content))
@pytest.mark.parametrize("names", get_args(Names))
def test_power_lost_anywhere_in_a_trimming_leaves_the_old_log_or_the_new_one(
    unsynced: Content, names: Names
) -> None:
    _, base = old_and_new()
    for power_ops in range(100):
        fs = copy_of(base, power_ops=power_ops)
        try:
            log_expiry.trim(Store(fs))
        except PowerLossError:
            store = Store(fs.after_power_loss(unsynced=unsynced, unsynced_names=names))
            assert len(news(store)) in (1, 3)
            assert errors_in(store) == []
        else:
            return
    pytest.fail("it never ended")


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=12))
def test_trimming_never_takes_what_gc_counts_as_a_root(steps: list[tuple[int, int]]) -> None:
    store, fs = clocked_store()
    for number, days in steps:
        if number:
            set_to(store, number)
        else:
            store.delete_ref("by-key-tuning", key=KEY)
        fs.advance(days * DAY_NS)
    kept = set(gc.plan(store, grace_s=0).prune)
    log_expiry.trim(store)
    assert set(gc.plan(store, grace_s=0).prune) == kept
    log: list[LogEntry] = store.ref_log("by-key-tuning", key=KEY)
    found = store.get_ref("by-key-tuning", key=KEY)
    assert found is None or log[0].new == found.object


# --- whether a gc is worth it -----------------------------------------------------------------


def test_a_small_store_that_never_saw_a_gc_needs_none() -> None:
    store, _ = memory_store()
    set_to(store, 1)
    assert not decide(store).is_due


def test_a_large_one_does_and_once_it_has_seen_one_it_takes_growth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, fs = memory_store()
    count = 20_000
    monkeypatch.setattr(auto_gc, "estimated_objects", lambda _: count)
    assert decide(store).is_due
    note_done(store)
    assert "less than a day" in decide(store).reason
    fs.advance(2 * DAY_NS)
    assert not decide(store).is_due
    count += 2000  # more than 1,000, but a tenth
    assert not decide(store).is_due
    count += 2000
    assert decide(store).is_due


def test_after_a_month_one_is_due_though_nothing_changed() -> None:
    store, fs = memory_store()
    note_done(store)
    fs.advance(29 * DAY_NS)
    assert not decide(store).is_due
    fs.advance(2 * DAY_NS)
    assert decide(store) == auto_gc.Decision(is_due=True, reason="the last gc ended 31 days ago")


def test_a_clock_that_went_back_does_not_stop_gc_for_good() -> None:
    store, fs = memory_store()
    fs.append(layout.GC_DONE, f"time_ns {fs.now_ns + 10**18}\nobjects 0\n".encode())
    for number in range(1100):
        store.loose.add(id_of(manifest(number)), b"x")
    assert decide(store).is_due


@pytest.mark.parametrize("junk", [b"", b"junk\n", b"time_ns 1\nobjects x\n", b"x" * 9999])
def test_a_damaged_note_of_the_last_gc_counts_as_none(junk: bytes) -> None:
    store, fs = memory_store()
    fs.append(layout.GC_DONE, junk)
    assert "no gc yet" in decide(store).reason


def test_deciding_reads_no_object_and_lists_few_folders() -> None:
    fs = FaultyFileSystem(new_disk(), fail_at=-1, error=OSError())
    decide(Store(fs))
    assert set(fs.calls) == {"list_folder", "read"}
    assert len(fs.calls) <= 10


def test_the_estimate_is_near_the_number_of_objects() -> None:
    store, _ = memory_store()
    for number in range(3000):
        fs_path = layout.object_path(id_of(manifest(number)))
        store.fs.write_new(fs_path, b"x")
    assert 2000 < shards.estimated_objects(store.fs) < 4000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_loses_only_the_note(number: int) -> None:
    for fail_at in range(20):
        memory = new_disk()
        fs = FaultyFileSystem(memory, fail_at=fail_at, error=OSError(number, "made up"))
        note_done(Store(fs))
        assert leftovers(memory) == []
        if len(fs.calls) <= fail_at:
            assert "less than a day" in decide(Store(memory)).reason
            return
    pytest.fail("it never ended")


def test_lock_paths_of_a_log_are_those_of_its_refs() -> None:
    name = ref.for_key("by-key-tuning", KEY)
    assert layout.ref_lock_path("by-key-tuning", LOG.rpartition("/")[2]) == layout.ref_lock_path(
        name.namespace, name.key
    )
    assert layout.ref_lock_path("names", "names") == layout.ref_lock_path("names", "best")
