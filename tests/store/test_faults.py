"""Invariant 2: any one call may fail; then the error comes through, and nothing is half done."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.errors import CastoreError, MalformedError
from castore.format import frame
from castore.store.store import Store
from tests.fs.faults import FaultyFileSystem
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    copy_of,
    errors_in,
    id_of,
    leftovers,
    leftovers_on_disk,
    manifest,
    memory_store,
    new_disk,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A, B = manifest(1), manifest(2)
T = FOREIGN_TOPOLOGY


def put(store: Store) -> None:
    store.put(B)


def put_again(store: Store) -> None:
    store.put(A)


def create(store: Store) -> None:
    store.set_ref("tuning", T, "new", id_of(A))


def record(store: Store) -> None:
    store.record("tuning", TOPOLOGY, "new", B)


def replace(store: Store) -> None:
    store.record("tuning", T, "k", B, on_conflict="replace")


def delete(store: Store) -> None:
    store.delete_ref("tuning", T, "k")


def batch(store: Store) -> None:
    with store.batch():
        store.put(A)
        for number in range(10, 14):
            store.record("tuning", T, f"k{number}", manifest(number))


def large_batch(store: Store) -> None:
    with store.batch():
        for number in range(10, 28):
            store.put(manifest(number))


WORK = [put, put_again, create, record, replace, delete, batch, large_batch]


def with_one_ref() -> Store:
    fs = new_disk()
    Store(fs).record("tuning", T, "k", A)
    return Store(copy_of(fs))


def count_of(work: Callable[[Store], None]) -> int:
    fs = FaultyFileSystem(with_one_ref().fs, fail_at=-1, error=OSError())
    work(Store(fs))
    return len(fs.calls)


def error_of(work: Callable[[Store], None], fs: FaultyFileSystem) -> OSError | CastoreError | None:
    try:
        work(Store(fs))
    except (OSError, CastoreError) as error:
        return error
    return None


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        pytest.param(errno.EIO, marks=pytest.mark.slow),
        pytest.param(errno.EDQUOT, marks=pytest.mark.slow),
        pytest.param(errno.EACCES, marks=pytest.mark.slow),
        pytest.param(errno.ESTALE, marks=pytest.mark.slow),
        pytest.param(errno.EROFS, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_whichever_call_fails_nothing_is_half_published(
    work: Callable[[Store], None], number: int, tried: Callable[[str, int], None]
) -> None:
    calls = count_of(work)
    tried("injected faults", calls)
    for fail_at in range(calls):
        sound = with_one_ref()
        fs = FaultyFileSystem(sound.fs, fail_at=fail_at, error=OSError(number, "made up"))
        error = error_of(work, fs)
        where = f"call {fail_at}: {fs.calls[-1]}"
        assert error is None or isinstance(error, CastoreError) or error.errno == number, where
        if error is not None and fs.calls[-1] not in {"sync_folders", "sync_folder"}:
            assert sound.lookup("tuning", T, "k") == A, where
        memory: Any = sound.fs
        assert leftovers(memory) == [], where
        assert errors_in(sound) == [], where
        assert sound.get(id_of(A)) == A, where
        assert sound.lookup("tuning", T, "k") in (A, B, None), where
        work(sound)


def test_a_sync_that_fails_once_fails_the_put_and_a_repetition_is_whole() -> None:
    """The kernel reports an error of writing once; the second fsync succeeds over lost data."""
    sound, disk = memory_store()
    names = FaultyFileSystem(copy_of(disk), fail_at=-1, error=OSError())
    Store(names).put(A)
    write = names.calls.index("write_new")
    fs = FaultyFileSystem(disk, fail_at=write, error=OSError(errno.EIO, "made up"))
    with pytest.raises(OSError, match="made up"):
        Store(fs).put(A)
    assert not sound.has(id_of(A))
    sound.put(A)
    assert Store(disk.after_power_loss(unsynced="dropped", unsynced_names="dropped")).has(id_of(A))


def test_on_disk_a_failing_fsync_leaves_no_object_and_no_temp_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = castore.open(tmp_path / "s")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "made up")

    with monkeypatch.context() as broken:
        broken.setattr("castore.fs.posix.fsync", fail)
        with pytest.raises(OSError, match="made up"):
            store.put(A)
    assert not store.has(id_of(A))
    assert leftovers_on_disk(tmp_path / "s") == []


def test_a_failing_syncfs_fails_a_large_batch_and_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = castore.open(tmp_path / "s")

    def fail(_: int) -> bool:
        raise OSError(errno.EIO, "made up")

    monkeypatch.setattr("castore.fs.posix.syncfs", fail)
    with pytest.raises(OSError, match="made up"):
        large_batch(store)
    assert list(store.ids()) == []
    assert leftovers_on_disk(tmp_path / "s") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs RLIMIT_FSIZE")
def test_a_file_size_limit_fails_the_put_and_leaves_nothing(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415 - Windows has no such module
    import signal  # noqa: PLC0415 - only this test needs it

    store = castore.open(tmp_path / "s")
    noise = os.urandom(20_000)
    child = os.fork()
    if child == 0:
        status = 9
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
            try:
                store.put({"noise": noise})
            except OSError as error:
                status = 0 if error.errno == errno.EFBIG else 8
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(store.ids()) == []
    assert leftovers_on_disk(tmp_path / "s") == []


@pytest.mark.parametrize("flavour", ["wrong content", "cut short", "not a frame"])
def test_a_compressor_that_returns_wrong_bytes_publishes_nothing(
    monkeypatch: pytest.MonkeyPatch, flavour: str
) -> None:
    store, fs = memory_store()
    compress = frame._make_compressor().compress
    outputs = {
        "wrong content": lambda content: compress(content + b"x"),
        "cut short": lambda content: compress(content)[:-2],
        "not a frame": lambda _: b"garbage",
    }

    class Broken:
        compress = staticmethod(outputs[flavour])

    with monkeypatch.context() as broken:
        broken.setattr(frame, "_make_compressor", Broken)
        broken.setattr(frame, "_compressors", [])
        with pytest.raises(MalformedError):
            store.put(A)
    assert list(store.ids()) == []
    assert leftovers(fs) == []
    store.put(A)
    assert store.get(id_of(A)) == A
