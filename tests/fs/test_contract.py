"""What every file system of castore promises, tried on each of them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from castore.errors import FileTooLargeError, LockTimeoutError, NotRegularFileError
from castore.fs.memory import MemoryFileSystem
from castore.fs.posix import PosixFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from castore.fs.protocol import FileSystem

LIMIT = 2**20
PATIENCE_S = 30.0


@pytest.fixture(params=["posix", "memory"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "posix":
        return PosixFileSystem(str(tmp_path))
    return MemoryFileSystem()


def make_old(fs: FileSystem, path: str) -> None:
    """Make the file's mtime lie in the past."""
    if isinstance(fs, MemoryFileSystem):
        fs.advance(10**9)
    else:
        os.utime(f"{fs.root}/{path}", ns=(10**9, 10**9))


def names(fs: FileSystem, folder: str = "") -> set[str]:
    return {entry.name for entry in fs.list_folder(folder)}


# --- read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"a", b"\x00\n\r\n\xff" * 1000])
def test_read_returns_the_whole_content(fs: FileSystem, data: bytes) -> None:
    fs.write_new("f", data)
    assert fs.read("f", limit_bytes_max=LIMIT) == data


def test_read_returns_a_file_of_exactly_the_limit(fs: FileSystem) -> None:
    fs.write_new("f", b"12345")
    assert fs.read("f", limit_bytes_max=5) == b"12345"


def test_read_refuses_a_file_beyond_the_limit(fs: FileSystem) -> None:
    fs.write_new("f", b"12345")
    with pytest.raises(FileTooLargeError) as caught:
        fs.read("f", limit_bytes_max=4)
    assert (caught.value.path, caught.value.size_bytes, caught.value.limit_bytes_max) == ("f", 5, 4)


def test_read_of_a_folder_is_refused(fs: FileSystem) -> None:
    fs.make_folder("d")
    with pytest.raises(NotRegularFileError) as caught:
        fs.read("d", limit_bytes_max=LIMIT)
    assert (caught.value.path, caught.value.found) == ("d", "folder")


@pytest.mark.parametrize("path", ["missing", "missing/f", "d/missing"])
def test_read_of_a_missing_file_is_a_file_not_found_error(fs: FileSystem, path: str) -> None:
    fs.make_folder("d")
    with pytest.raises(FileNotFoundError):
        fs.read(path, limit_bytes_max=LIMIT)


def test_a_file_is_no_folder_on_the_way(fs: FileSystem) -> None:
    fs.write_new("f", b"")
    with pytest.raises(NotRegularFileError):
        fs.read("f/g", limit_bytes_max=LIMIT)
    with pytest.raises(NotRegularFileError):
        fs.write_new("f/g", b"")


# --- stat, list_folder --------------------------------------------------------------------


def test_stat_tells_kind_and_size(fs: FileSystem) -> None:
    fs.make_folder("d")
    fs.write_new("d/f", b"123")
    assert (fs.stat("d/f").kind, fs.stat("d/f").size_bytes) == ("file", 3)
    assert fs.stat("d").kind == "folder"
    assert fs.stat("").kind == "folder"


def test_stat_tells_files_apart_by_inode(fs: FileSystem) -> None:
    fs.write_new("f", b"")
    fs.write_new("g", b"")
    assert fs.stat("f").inode == fs.stat("f").inode != fs.stat("g").inode


def test_stat_of_a_missing_file_is_a_file_not_found_error(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.stat("missing")


def test_list_folder_tells_every_name_and_its_kind(fs: FileSystem) -> None:
    fs.make_folder("d")
    fs.make_folder("d/e")
    fs.write_new("d/f", b"")
    assert {(entry.name, entry.kind) for entry in fs.list_folder("d")} == {
        ("e", "folder"),
        ("f", "file"),
    }
    assert fs.list_folder("d/e") == []


def test_list_folder_refuses_what_is_no_folder(fs: FileSystem) -> None:
    fs.write_new("f", b"")
    with pytest.raises(NotRegularFileError):
        fs.list_folder("f")
    with pytest.raises(FileNotFoundError):
        fs.list_folder("missing")


# --- write_new, append --------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_write_new_makes_a_file_that_holds_the_data(
    fs: FileSystem, *, read_only: bool, durable: bool
) -> None:
    fs.write_new("f", b"data", read_only=read_only, durable=durable)
    assert fs.read("f", limit_bytes_max=LIMIT) == b"data"


def test_write_new_leaves_a_taken_name_as_it_was(fs: FileSystem) -> None:
    fs.write_new("f", b"first")
    fs.make_folder("d")
    before = fs.stat("f")
    for path in ("f", "d"):
        with pytest.raises(FileExistsError):
            fs.write_new(path, b"second")
    assert fs.read("f", limit_bytes_max=LIMIT) == b"first"
    assert fs.stat("f") == before


def test_write_new_makes_no_folders(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.write_new("d/f", b"")
    assert names(fs) == set()


@pytest.mark.parametrize("durable", [False, True])
def test_append_makes_the_file_and_then_adds_at_its_end(fs: FileSystem, *, durable: bool) -> None:
    fs.append("log", b"one\n", durable=durable)
    fs.append("log", b"two\nthree\n", durable=durable)
    assert fs.read("log", limit_bytes_max=LIMIT) == b"one\ntwo\nthree\n"


def test_append_puts_a_line_end_after_a_torn_tail(fs: FileSystem) -> None:
    fs.write_new("log", b"one\ntw")
    fs.append("log", b"three\n")
    assert fs.read("log", limit_bytes_max=LIMIT) == b"one\ntw\nthree\n"


def test_append_to_a_folder_is_refused(fs: FileSystem) -> None:
    fs.make_folder("d")
    with pytest.raises(NotRegularFileError):
        fs.append("d", b"line\n")


def test_appends_of_many_threads_all_arrive_whole(fs: FileSystem) -> None:
    lines = [f"{n} ".encode() * 20 + b"\n" for n in range(100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda line: fs.append("log", line), lines))
    found = fs.read("log", limit_bytes_max=LIMIT).splitlines(keepends=True)
    assert sorted(found) == sorted(lines)


# --- sync ---------------------------------------------------------------------------------


def test_sync_of_a_missing_name_is_a_file_not_found_error(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.sync_file("missing")
    with pytest.raises(FileNotFoundError):
        fs.sync_folder("missing")


@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_scope_syncs_any_number_of_files_and_folders(fs: FileSystem, count: int) -> None:
    scope = fs.open_sync_scope()
    for n in range(count):
        fs.make_folder(f"d{n}")
        fs.write_new(f"d{n}/f", b"data")
    scope.sync_files([f"d{n}/f" for n in range(count)])
    scope.sync_folders([*(f"d{n}" for n in range(count)), ""])
    scope.close()
    scope.close()
    assert len(names(fs)) == count


# --- rename, rename_new, remove -----------------------------------------------------------


def test_rename_replaces_what_has_the_name(fs: FileSystem) -> None:
    fs.make_folder("d")
    fs.write_new("new", b"new")
    fs.write_new("d/f", b"old")
    inode = fs.stat("new").inode
    fs.rename("new", "d/f")
    assert fs.read("d/f", limit_bytes_max=LIMIT) == b"new"
    assert fs.stat("d/f").inode == inode
    assert names(fs) == {"d"}


def test_rename_to_its_own_name_changes_nothing(fs: FileSystem) -> None:
    fs.write_new("f", b"data")
    fs.rename("f", "f")
    assert fs.read("f", limit_bytes_max=LIMIT) == b"data"


def test_rename_never_replaces_a_folder(fs: FileSystem) -> None:
    fs.write_new("f", b"")
    fs.make_folder("d")
    with pytest.raises(IsADirectoryError):
        fs.rename("f", "d")
    assert names(fs) == {"f", "d"}


@pytest.mark.parametrize("target", ["free", "d/free"])
def test_rename_of_a_missing_file_is_a_file_not_found_error(fs: FileSystem, target: str) -> None:
    fs.make_folder("d")
    with pytest.raises(FileNotFoundError):
        fs.rename("missing", target)
    with pytest.raises(FileNotFoundError):
        fs.rename_new("missing", target)


def test_rename_is_atomic_for_readers(fs: FileSystem) -> None:
    versions = [bytes([n]) * 5000 for n in range(100)]
    fs.write_new("f", versions[0])
    done = threading.Event()

    def replace_again_and_again() -> None:
        for n, version in enumerate(versions):
            fs.write_new(f"tmp{n}", version)
            fs.rename(f"tmp{n}", "f")
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(replace_again_and_again)
        while not done.is_set() and not writer.done():
            assert fs.read("f", limit_bytes_max=LIMIT) in versions
        writer.result()


def test_rename_new_gives_a_free_name(fs: FileSystem) -> None:
    fs.make_folder("d")
    fs.write_new("f", b"data")
    inode = fs.stat("f").inode
    fs.rename_new("f", "d/g")
    assert fs.read("d/g", limit_bytes_max=LIMIT) == b"data"
    assert fs.stat("d/g").inode == inode
    assert names(fs) == {"d"}


@pytest.mark.parametrize("taken", ["file", "folder"])
def test_rename_new_to_a_taken_name_changes_nothing(fs: FileSystem, taken: str) -> None:
    fs.write_new("f", b"new")
    if taken == "file":
        fs.write_new("t", b"old")
    else:
        fs.make_folder("t")
    before = fs.stat("t"), fs.stat("f").inode
    with pytest.raises(FileExistsError):
        fs.rename_new("f", "t")
    assert (fs.stat("t"), fs.stat("f").inode) == before
    assert fs.read("f", limit_bytes_max=LIMIT) == b"new"


def test_rename_new_has_exactly_one_winner(fs: FileSystem) -> None:
    def contend(n: int) -> bool:
        try:
            fs.rename_new(f"tmp{n}", "f")
        except FileExistsError:
            return False
        return True

    for n in range(16):
        fs.write_new(f"tmp{n}", b"%d" % n)
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(contend, range(16)))
    assert won.count(True) == 1
    assert fs.read("f", limit_bytes_max=LIMIT) == b"%d" % won.index(True)


def test_remove_takes_the_name_away(fs: FileSystem) -> None:
    fs.write_new("f", b"")
    fs.remove("f")
    assert names(fs) == set()
    with pytest.raises(FileNotFoundError):
        fs.remove("f")


def test_remove_leaves_folders(fs: FileSystem) -> None:
    fs.make_folder("d")
    with pytest.raises((IsADirectoryError, PermissionError)):
        fs.remove("d")
    assert names(fs) == {"d"}


# --- make_folder, touch -------------------------------------------------------------------


def test_make_folder_leaves_a_folder_that_is_there(fs: FileSystem) -> None:
    fs.make_folder("d")
    fs.write_new("d/f", b"")
    fs.make_folder("d")
    assert names(fs, "d") == {"f"}


def test_make_folder_makes_no_parents(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.make_folder("d/e")


def test_touch_moves_the_mtime_forward_and_nothing_else(fs: FileSystem) -> None:
    fs.write_new("f", b"data", read_only=True)
    make_old(fs, "f")
    before = fs.stat("f")
    fs.touch("f")
    after = fs.stat("f")
    assert after.mtime_ns > before.mtime_ns
    assert (after.inode, after.size_bytes) == (before.inode, before.size_bytes)


def test_touch_of_a_missing_file_makes_none(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.touch("missing")
    assert names(fs) == set()


def test_append_moves_the_mtime_forward(fs: FileSystem) -> None:
    fs.append("log", b"one\n")
    make_old(fs, "log")
    before_ns = fs.stat("log").mtime_ns
    fs.append("log", b"two\n")
    assert fs.stat("log").mtime_ns > before_ns


def test_the_clock_is_the_one_that_files_get_their_mtime_from(fs: FileSystem) -> None:
    fs.write_new("earlier", b"")
    now_ns = fs.clock_ns("clock")
    fs.write_new("later", b"")
    assert fs.stat("earlier").mtime_ns <= now_ns <= fs.stat("later").mtime_ns
    assert fs.stat("clock").mtime_ns == now_ns


def test_the_clock_can_be_asked_again(fs: FileSystem) -> None:
    first_ns = fs.clock_ns("clock")
    make_old(fs, "clock")
    assert fs.clock_ns("clock") >= first_ns
    assert names(fs) == {"clock"}


# --- locks --------------------------------------------------------------------------------


def test_a_lock_excludes_and_its_timeout_names_the_holder(fs: FileSystem) -> None:
    with fs.lock("lock", wait_s=0), pytest.raises(LockTimeoutError) as caught:
        fs.lock("lock", wait_s=0.01)
    assert caught.value.path == "lock"
    assert caught.value.waited_s >= 0.01
    assert f"process {os.getpid()}" in caught.value.holder


def test_a_failed_contender_releases_nothing(fs: FileSystem) -> None:
    with fs.lock("lock", wait_s=0):
        for _ in range(2):
            with pytest.raises(LockTimeoutError):
                fs.lock("lock", wait_s=0)


def test_locks_on_two_files_do_not_exclude_each_other(fs: FileSystem) -> None:
    with fs.lock("a", wait_s=0), fs.lock("b", wait_s=0):
        assert names(fs) == {"a", "b"}


def test_a_released_lock_can_be_taken_again(fs: FileSystem) -> None:
    lock = fs.lock("lock", wait_s=0)
    lock.release()
    second = fs.lock("lock", wait_s=0)
    lock.release()
    with pytest.raises(LockTimeoutError):
        fs.lock("lock", wait_s=0)
    second.release()


def test_a_lock_is_released_when_its_block_raises(fs: FileSystem) -> None:
    with pytest.raises(KeyError), fs.lock("lock", wait_s=0):
        raise KeyError
    fs.lock("lock", wait_s=0).release()


def test_release_can_remove_the_lock_file(fs: FileSystem) -> None:
    fs.lock("lock", wait_s=0).release(remove=True)
    assert names(fs) == set()


def test_release_with_remove_survives_that_the_file_is_gone(fs: FileSystem) -> None:
    lock = fs.lock("lock", wait_s=0)
    fs.remove("lock")
    lock.release(remove=True)
    fs.lock("lock", wait_s=0).release()


def test_release_with_remove_leaves_the_lock_file_of_another(fs: FileSystem) -> None:
    lock = fs.lock("lock", wait_s=0)
    fs.remove("lock")
    with fs.lock("lock", wait_s=0):
        lock.release(remove=True)
        with pytest.raises(LockTimeoutError):
            fs.lock("lock", wait_s=0)


def test_taking_a_lock_touches_its_file(fs: FileSystem) -> None:
    fs.lock("lock", wait_s=0).release()
    make_old(fs, "lock")
    before_ns = fs.stat("lock").mtime_ns
    fs.lock("lock", wait_s=0).release()
    assert fs.stat("lock").mtime_ns > before_ns


@pytest.mark.parametrize("remove", [False, True])
def test_a_waiter_gets_a_live_lock_when_the_holder_lets_go(fs: FileSystem, *, remove: bool) -> None:
    """With `remove` the waiter has the removed file open: a lock on that excludes nobody."""
    held = fs.lock("lock", wait_s=0)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(fs.lock, "lock", wait_s=PATIENCE_S)
        held.release(remove=remove)
        lock = waiter.result()
    with pytest.raises(LockTimeoutError):
        fs.lock("lock", wait_s=0)
    lock.release()


def test_twenty_threads_hold_a_lock_one_at_a_time(fs: FileSystem) -> None:
    inside: list[int] = []
    most: list[int] = []

    def contend(n: int) -> None:
        for round_ in range(3):
            lock = fs.lock("lock", wait_s=PATIENCE_S)
            inside.append(n)
            most.append(len(inside))
            inside.remove(n)
            lock.release(remove=round_ == 1)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(contend, range(20)))
    assert most == [1] * 60


def test_locks_are_found_to_work(fs: FileSystem) -> None:
    assert fs.do_locks_work("lock") is True
    fs.lock("lock", wait_s=0).release()


def test_asking_whether_locks_work_takes_no_held_lock(fs: FileSystem) -> None:
    with fs.lock("lock", wait_s=0), pytest.raises(LockTimeoutError):
        fs.do_locks_work("lock")


def test_a_lock_needs_its_folder(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.lock("missing/lock", wait_s=0)
