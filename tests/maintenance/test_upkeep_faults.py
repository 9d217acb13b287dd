"""Any one call of upkeep may fail: the error comes through, nothing is lost, a repetition works."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import CastoreError
from castore.format import layout, ref
from castore.fs import posix
from castore.maintenance import auto_gc, forget, fsck, gc, log_expiry, restore, stats
from castore.maintenance.pins import pin, unpin
from castore.store.store import Store
from tests.fs.faults import FaultyFileSystem
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    copy_of,
    errors_in,
    id_of,
    manifest,
    new_disk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

A, B, C, RUBBISH = manifest(1), manifest(2), manifest(3), manifest(4)
T = FOREIGN_TOPOLOGY
NAME = ref.for_topology("tuning", T, "k")


@pytest.fixture(autouse=True)
def _without_warnings() -> Iterator[None]:
    logging.getLogger("castore").disabled = True
    yield
    logging.getLogger("castore").disabled = False


def prepared() -> Store:
    """Return a store with a ref, its log, a deleted ref, a pin, and something unreachable."""
    fs = new_disk()
    store = Store(fs)
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "k", B, on_conflict="replace")
    store.record("tuning", T, "gone", A)
    store.delete_ref("tuning", T, "gone")
    pin(store, store.put(C))
    store.put(RUBBISH)
    fs.advance(100 * DAY_NS)
    return Store(copy_of(fs))


def collect(store: Store) -> None:
    with gc.locked(store):
        gc.apply(store, gc.plan(store, grace_s=0))
    auto_gc.note_done(store)


def trim(store: Store) -> None:
    log_expiry.trim(store, expiry_s=0)


def forget_refs(store: Store) -> None:
    forget.apply(store, forget.plan(store, older_than_s=0, unused_since_s=0))


def shorten_logs(store: Store) -> None:
    planned = forget.plan_history(store, forget.plan(store), keep_last=1)
    forget.apply_history(store, planned)


def restore_ref(store: Store) -> None:
    restore.restore(store, NAME, to=id_of(A))


def make_pin(store: Store) -> None:
    pin(store, id_of(B), reason="for this test")


def remove_pin(store: Store) -> None:
    unpin(store, id_of(C))


def check(store: Store) -> None:
    fsck.check(store)


def count(store: Store) -> None:
    stats.collect(store)


def look_up(store: Store) -> None:
    assert store.lookup("tuning", T, "k") in (A, B, None)


WORK = [
    *(collect, trim, forget_refs, shorten_logs, restore_ref),
    *(make_pin, remove_pin, check, count, look_up),
]
NUMBERS = [
    errno.EIO,
    *(
        pytest.param(number, marks=pytest.mark.slow)
        for number in (errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EACCES, errno.EROFS)
    ),
]


def error_of(work: Callable[[Store], None], fs: FaultyFileSystem) -> OSError | CastoreError | None:
    try:
        work(Store(fs))
    except (OSError, CastoreError) as error:
        return error
    return None


def sampled(calls: int) -> list[int]:
    """Return which of so many calls to let fail: a loop over 256 folders has them all alike."""
    step = max(1, calls // 150)
    return [*range(0, calls, step), *range(max(0, calls - 20), calls)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_whichever_call_of_upkeep_fails_nothing_is_lost_and_it_can_be_repeated(
    work: Callable[[Store], None], number: int, tried: Callable[[str, int], None]
) -> None:
    counting = FaultyFileSystem(prepared().fs, fail_at=-1, error=OSError())
    assert error_of(work, counting) is None
    fail_at_each = sampled(len(counting.calls))
    tried("injected faults", len(fail_at_each))
    for fail_at in fail_at_each:
        sound = prepared()
        fs = FaultyFileSystem(sound.fs, fail_at=fail_at, error=OSError(number, "made up"))
        error = error_of(work, fs)
        where = f"call {fail_at}: {fs.calls[-1]}"
        assert error is None or isinstance(error, CastoreError) or error.errno == number, where
        again = Store(sound.fs)
        assert errors_in(again) == [], where
        # Kept by a ref or by the log of one: the entries are younger than their expiry.
        assert again.get(id_of(B)) == B, where
        assert again.get(id_of(C)) == C, where
        assert again.lookup("tuning", T, "k") in (A, B, None), where
        if again.lookup("tuning", T, "k") is None:
            assert work is forget_refs, where
            assert restore.restore(again, NAME).object == id_of(B), where
        work(again)
        assert errors_in(again) == [], where


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """write(2) may write less than it was given, and say so."""
    real = os.write
    short = 0

    def writes_little(fd: int, data: bytes) -> int:
        nonlocal short
        short += len(data) > 7
        return real(fd, bytes(data)[:7])

    monkeypatch.setattr(posix.os, "write", writes_little)
    store = castore.open(tmp_path / "s")
    with store.batch():
        for number in range(20):
            store.record("tuning", T, f"k{number}", manifest(number))
    pin(store, store.put(A), reason="for this test")
    store.delete_ref("tuning", T, "k1")
    shorten_logs(store)
    collect(store)
    assert short > 40
    monkeypatch.undo()
    store = castore.open(store.root)
    assert errors_in(store) == []
    assert [store.lookup("tuning", T, f"k{n}") for n in (0, 19)] == [manifest(0), manifest(19)]
    assert restore.restore(store, ref.for_topology("tuning", T, "k1")).object == id_of(manifest(1))
    assert store.fs.stat(layout.pin_path(id_of(A))).size_bytes == len("for this test")


@pytest.mark.parametrize("written", [0, 7])
def test_a_disk_that_fills_after_a_short_write_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "k", A)
    real = os.write
    calls = 0

    def fills(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 1 and written:
            return real(fd, bytes(data)[:written])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(posix.os, "write", fills)
    with pytest.raises(OSError, match="No space"):
        store.put(B)
    monkeypatch.undo()
    assert not store.has(id_of(B))
    assert list((tmp_path / "s/local/tmp").iterdir()) == []
    assert errors_in(store) == []
    assert store.get(store.put(B)) == B
