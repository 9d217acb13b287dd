"""What only the file system in memory does: lose power, count its calls, keep a clock."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.fs import memory
from castore.fs.memory import MemoryFileSystem, PowerLossError
from castore.fs.memory_tree import Content, Names

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 2**20
PATIENCE_S = 30.0
DATA = b"some content"


def reboot(
    fs: MemoryFileSystem, unsynced: Content = "dropped", unsynced_names: Names = "dropped"
) -> MemoryFileSystem:
    return fs.after_power_loss(unsynced=unsynced, unsynced_names=unsynced_names)


def names(fs: MemoryFileSystem, folder: str = "") -> set[str]:
    return {entry.name for entry in fs.list_folder(folder)}


def read(fs: MemoryFileSystem, path: str) -> bytes:
    return fs.read(path, limit_bytes_max=LIMIT)


def with_folders(*folders: str) -> MemoryFileSystem:
    """Return a file system whose folders survive."""
    fs = MemoryFileSystem()
    for folder in folders:
        fs.make_folder(folder)
    fs.sync_folder("")
    return fs


# --- content --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unsynced", "left"), [("kept", DATA), ("dropped", b""), ("torn", DATA[:6])]
)
def test_content_that_was_not_synced_is_lost_as_asked(unsynced: Content, left: bytes) -> None:
    fs = MemoryFileSystem()
    fs.write_new("f", DATA)
    fs.sync_folder("")
    assert read(reboot(fs, unsynced), "f") == left


@pytest.mark.parametrize("unsynced", get_args(Content))
@pytest.mark.parametrize("how", ["write_new", "append", "sync_file", "sync_files"])
def test_content_that_was_synced_survives(unsynced: Content, how: str) -> None:
    fs = MemoryFileSystem()
    if how == "append":
        fs.append("f", DATA, durable=True)
    else:
        fs.write_new("f", DATA, durable=how == "write_new")
    if how == "sync_file":
        fs.sync_file("f")
    if how == "sync_files":
        fs.open_sync_scope().sync_files(["f"])
    fs.sync_folder("")
    assert read(reboot(fs, unsynced), "f") == DATA


@pytest.mark.parametrize(
    ("unsynced", "left"),
    [("kept", b"one\ntwo\n"), ("dropped", b"one\n"), ("torn", b"one\ntw")],
)
def test_an_unsynced_line_takes_no_synced_one_with_it(unsynced: Content, left: bytes) -> None:
    fs = MemoryFileSystem()
    fs.append("log", b"one\n", durable=True)
    fs.sync_folder("")
    fs.append("log", b"two\n")
    assert read(reboot(fs, unsynced), "log") == left


def test_a_sync_of_content_syncs_no_name() -> None:
    fs = MemoryFileSystem()
    fs.write_new("f", DATA, durable=True)
    assert names(reboot(fs)) == set()


def test_a_sync_of_names_syncs_no_content() -> None:
    fs = MemoryFileSystem()
    fs.write_new("f", DATA)
    fs.sync_folder("")
    assert read(reboot(fs), "f") == b""


# --- names ----------------------------------------------------------------------------------


def test_a_file_in_a_folder_that_was_not_synced_is_lost_with_it() -> None:
    fs = MemoryFileSystem()
    fs.make_folder("d")
    fs.write_new("d/f", DATA, durable=True)
    fs.sync_folder("d")
    assert names(reboot(fs)) == set()
    fs.sync_folder("")
    assert read(reboot(fs), "d/f") == DATA


def test_a_folder_that_survives_keeps_only_its_synced_names() -> None:
    fs = MemoryFileSystem()
    fs.make_folder("d")
    fs.write_new("d/f", DATA, durable=True)
    fs.sync_folder("")
    assert names(reboot(fs), "d") == set()


@pytest.mark.parametrize(
    ("synced", "left"),
    [([], {"a/f"}), (["a"], set()), (["b"], {"a/f", "b/f"}), (["a", "b"], {"b/f"})],
)
@pytest.mark.parametrize("call", ["rename", "rename_new"])
def test_a_rename_across_folders_is_durable_in_each_by_itself(
    synced: list[str], left: set[str], call: str
) -> None:
    fs = with_folders("a", "b")
    fs.write_new("a/f", DATA, durable=True)
    fs.sync_folder("a")
    getattr(fs, call)("a/f", "b/f")
    for folder in synced:
        fs.sync_folder(folder)
    after = reboot(fs)
    found = {f"{folder}/{name}" for folder in ("a", "b") for name in names(after, folder)}
    assert found == left
    assert all(read(after, path) == DATA for path in left)


def test_a_replaced_file_is_back_when_the_rename_was_not_durable() -> None:
    fs = MemoryFileSystem()
    fs.write_new("f", b"old", durable=True)
    fs.sync_folder("")
    fs.write_new("tmp", b"new", durable=True)
    fs.rename("tmp", "f")
    assert read(reboot(fs), "f") == b"old"
    assert read(reboot(fs, unsynced_names="kept"), "f") == b"new"
    fs.sync_folder("")
    assert read(reboot(fs), "f") == b"new"


def test_a_removed_file_is_back_when_the_removal_was_not_durable() -> None:
    fs = MemoryFileSystem()
    fs.write_new("f", DATA, durable=True)
    fs.sync_folder("")
    fs.remove("f")
    assert names(reboot(fs)) == {"f"}
    assert names(reboot(fs, unsynced_names="kept")) == set()
    fs.sync_folder("")
    assert names(reboot(fs)) == set()


def test_a_name_that_was_reused_is_durable_as_it_was_last_synced() -> None:
    fs = MemoryFileSystem()
    fs.write_new("f", b"first", durable=True)
    fs.sync_folder("")
    fs.remove("f")
    fs.write_new("f", b"second", durable=True)
    assert read(reboot(fs), "f") == b"first"


def test_two_names_that_a_crash_left_are_one_file_and_a_rename_keeps_both() -> None:
    fs = with_folders("a", "b")
    fs.write_new("a/f", DATA, durable=True)
    fs.sync_folder("a")
    fs.rename_new("a/f", "b/f")
    fs.sync_folder("b")
    after = reboot(fs)
    assert after.stat("a/f").inode == after.stat("b/f").inode
    after.rename("a/f", "b/f")
    assert read(after, "a/f") == read(after, "b/f") == DATA


# --- power ----------------------------------------------------------------------------------


def publish(fs: MemoryFileSystem) -> None:
    fs.write_new("tmp/f", DATA, durable=True)
    fs.rename_new("tmp/f", "home/f")
    fs.sync_folder("home")


@pytest.mark.parametrize("unsynced", get_args(Content))
@pytest.mark.parametrize("unsynced_names", get_args(Names))
@pytest.mark.parametrize("power_ops", range(3, 8))
def test_a_publish_leaves_the_file_whole_or_absent(
    power_ops: int, unsynced: Content, unsynced_names: Names
) -> None:
    fs = MemoryFileSystem(power_ops=power_ops)
    returned = False
    try:
        for folder in ("tmp", "home"):
            fs.make_folder(folder)
        fs.sync_folder("")
        publish(fs)
        returned = True
    except PowerLossError:
        pass
    after = reboot(fs, unsynced, unsynced_names)
    try:
        assert read(after, "home/f") == DATA
    except FileNotFoundError:
        assert not returned
    assert returned == (power_ops > 5)


EVERY_CALL: dict[str, Callable[[MemoryFileSystem], object]] = {
    "read": lambda fs: fs.read("f", limit_bytes_max=LIMIT),
    "stat": lambda fs: fs.stat("f"),
    "list_folder": lambda fs: fs.list_folder(""),
    "write_new": lambda fs: fs.write_new("g", DATA),
    "append": lambda fs: fs.append("f", DATA),
    "sync_file": lambda fs: fs.sync_file("f"),
    "sync_folder": lambda fs: fs.sync_folder(""),
    "sync_files": lambda fs: fs.open_sync_scope().sync_files(["f"]),
    "sync_folders": lambda fs: fs.open_sync_scope().sync_folders([""]),
    "rename": lambda fs: fs.rename("f", "g"),
    "rename_new": lambda fs: fs.rename_new("f", "g"),
    "remove": lambda fs: fs.remove("f"),
    "make_folder": lambda fs: fs.make_folder("d"),
    "touch": lambda fs: fs.touch("f"),
    "clock_ns": lambda fs: fs.clock_ns("clock"),
    "lock": lambda fs: fs.lock("lock", wait_s=PATIENCE_S),
    "do_locks_work": lambda fs: fs.do_locks_work("lock"),
}


@pytest.mark.parametrize("call", EVERY_CALL)
def test_without_power_every_call_raises_and_changes_nothing(call: str) -> None:
    fs = MemoryFileSystem(power_ops=1)
    fs.write_new("f", DATA)
    for _ in range(2):
        with pytest.raises(PowerLossError):
            EVERY_CALL[call](fs)
    after = reboot(fs, "kept", "kept")
    assert names(after) == {"f"}
    assert read(after, "f") == DATA


def test_power_loss_is_no_os_error() -> None:
    """Code that tolerates an `OSError` must not go on without power."""
    assert not issubclass(PowerLossError, OSError)


def test_a_lock_that_loses_power_stays_and_is_free_after_the_reboot() -> None:
    fs = MemoryFileSystem(power_ops=1)
    fs.lock("lock", wait_s=0).release(remove=True)
    after = reboot(fs, "kept", "kept")
    assert names(after) == {"lock"}
    after.lock("lock", wait_s=0).release()


def test_a_waiter_learns_that_the_power_went() -> None:
    fs = MemoryFileSystem(power_ops=2)
    held = fs.lock("lock", wait_s=0)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            fs.lock("lock", wait_s=PATIENCE_S)
        except PowerLossError as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    fs.write_new("f", DATA)
    held.release()
    waiter.join(PATIENCE_S)
    assert len(errors) == 1


def test_a_reboot_is_a_copy() -> None:
    fs = with_folders("d")
    fs.append("d/log", b"one\n")
    after = reboot(fs, "kept", "kept")
    fs.append("d/log", b"two\n")
    after.append("d/log", b"three\n")
    assert read(fs, "d/log") == b"one\ntwo\n"
    assert read(after, "d/log") == b"one\nthree\n"
    assert read(reboot(after), "d/log") == b"one\n"


PATHS = [f"{folder}/{name}" for folder in ("a", "b") for name in ("f", "g")]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write_new"), st.sampled_from(PATHS), st.binary(max_size=8)),
        st.tuples(st.just("append"), st.sampled_from(PATHS), st.binary(max_size=8)),
        st.tuples(st.just("rename"), st.sampled_from(PATHS), st.sampled_from(PATHS)),
        st.tuples(st.just("rename_new"), st.sampled_from(PATHS), st.sampled_from(PATHS)),
        st.tuples(st.just("remove"), st.sampled_from(PATHS)),
        st.tuples(st.just("sync_file"), st.sampled_from(PATHS)),
        st.tuples(st.just("sync_folder"), st.sampled_from(["a", "b"])),
    ),
    max_size=20,
)


@given(steps=STEPS)
def test_whatever_is_synced_at_the_end_is_what_a_reboot_finds(
    steps: list[tuple[str, str | bytes, str | bytes]],
) -> None:
    fs = with_folders("a", "b")
    for call, *arguments in steps:
        try:
            getattr(fs, call)(*arguments)
        except OSError:
            assert call in ("write_new", "rename", "rename_new", "remove", "sync_file")
    everything = {path for path in PATHS if path[2:] in names(fs, path[:1])}
    scope = fs.open_sync_scope()
    scope.sync_files(sorted(everything))
    scope.sync_folders(["a", "b"])
    after = reboot(fs)
    assert {path for path in PATHS if path[2:] in names(after, path[:1])} == everything
    assert all(read(after, path) == read(fs, path) for path in everything)


# --- calls, clock, threads ------------------------------------------------------------------


def test_the_calls_are_written_down() -> None:
    fs = MemoryFileSystem()
    fs.make_folder("d")
    fs.write_new("d/f", DATA, read_only=True, durable=True)
    fs.append("d/log", b"one\n", durable=True)
    fs.read("d/f", limit_bytes_max=LIMIT)
    fs.rename("d/f", "d/g")
    fs.rename_new("d/g", "d/h")
    fs.touch("d/h")
    fs.clock_ns("d/clock")
    fs.lock("d/lock", wait_s=0).release(remove=True)
    fs.remove("d/h")
    scope = fs.open_sync_scope()
    scope.sync_files(["d/log"])
    scope.sync_folders(["d", ""])
    assert fs.calls == [
        "make_folder d",
        "write_new d/f 12 read_only durable",
        "append d/log 4 durable",
        "rename d/f d/g",
        "rename_new d/g d/h",
        "touch d/h",
        "clock_ns d/clock",
        "lock d/lock",
        "unlock d/lock remove",
        "remove d/h",
        "sync_file d/log",
        "sync_folder d",
        "sync_folder .",
    ]
    assert fs.ops == len(fs.calls)


def test_old_calls_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CALLS_MAX", 10)
    fs = MemoryFileSystem()
    for n in range(25):
        fs.append("log", b"%d" % n)
    assert len(fs.calls) <= 10
    assert fs.ops == 25


def test_the_clock_moves_with_each_change_and_by_hand() -> None:
    fs = MemoryFileSystem()
    fs.write_new("a", b"")
    fs.write_new("b", b"")
    fs.advance(10**9)
    fs.write_new("c", b"")
    a_ns, b_ns, c_ns = (fs.stat(name).mtime_ns for name in "abc")
    assert a_ns < b_ns < c_ns - 10**9
    assert fs.now_ns == c_ns
    assert reboot(fs, "kept", "kept").stat("b").mtime_ns == b_ns


def test_the_clock_never_goes_back() -> None:
    fs = MemoryFileSystem()
    with pytest.raises(ValueError, match="never goes back"):
        fs.advance(-1)


def test_a_waiting_thread_is_woken_and_does_not_poll() -> None:
    fs = MemoryFileSystem()
    held = fs.lock("lock", wait_s=0)
    started = threading.Event()
    cpu_s: list[float] = []

    def wait() -> None:
        started.set()
        before_s = time.thread_time()
        fs.lock("lock", wait_s=PATIENCE_S).release()
        cpu_s.append(time.thread_time() - before_s)

    waiter = threading.Thread(target=wait)
    waiter.start()
    started.wait(PATIENCE_S)
    waiter.join(0.2)
    assert waiter.is_alive()
    held.release()
    waiter.join(PATIENCE_S)
    assert cpu_s[0] < 0.1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns of any fork
def test_a_forked_child_is_not_stopped_by_locks_of_threads_it_does_not_have() -> None:
    fs = MemoryFileSystem()
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with fs.lock("lock", wait_s=0):
            taken.set()
            done.wait(PATIENCE_S)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fs.lock("lock", wait_s=0).release()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    done.set()
    holder.join(PATIENCE_S)
    assert os.waitstatus_to_exitcode(status) == 0
