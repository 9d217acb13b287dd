"""What only a real file system has: links, FIFOs, modes, short writes, failing syncs."""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from castore.errors import FileTooLargeError, LockTimeoutError, NotRegularFileError
from castore.fs import posix, syscalls
from castore.fs.posix import PosixFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT = 2**20
PATIENCE_S = 30.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder beside it that no path may lead to."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(b"secret")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def fs(root: Path) -> PosixFileSystem:
    return PosixFileSystem(str(root))


def run(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def fail(number: int) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_make_folder_leaves_what_is_no_folder_to_whoever_enters_it(
    fs: PosixFileSystem, root: Path, kind: str
) -> None:
    outside = root.parent / "outside"
    if kind == "link":
        (root / "d").symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(root / "d")
    else:
        (root / "d").write_bytes(b"")
    before = outside.stat().st_mode
    root.chmod(0o700)
    PosixFileSystem(str(root)).make_folder("d")
    assert outside.stat().st_mode == before
    with pytest.raises(NotRegularFileError):
        fs.write_new("d/f", b"")


# --- what is no plain file ----------------------------------------------------------------


def test_a_symbolic_link_is_never_read_or_written_through(fs: PosixFileSystem, root: Path) -> None:
    (root / "link").symlink_to("../outside/f")
    for call in (
        lambda: fs.read("link", limit_bytes_max=LIMIT),
        lambda: fs.append("link", b"line\n"),
        lambda: fs.sync_file("link"),
        lambda: fs.lock("link", wait_s=0),
        lambda: fs.clock_ns("link"),
    ):
        with pytest.raises(NotRegularFileError) as caught:
            call()
        assert (caught.value.path, caught.value.found) == ("link", "a symbolic link")
    with pytest.raises(FileExistsError):
        fs.write_new("link", b"data")
    assert fs.stat("link").kind == "a symbolic link"
    assert (root / "../outside/f").read_bytes() == b"secret"


def test_touch_of_a_symbolic_link_leaves_its_target(fs: PosixFileSystem, root: Path) -> None:
    (root / "link").symlink_to("../outside/f")
    os.utime(root / "../outside/f", ns=(1, 1))
    fs.touch("link")
    assert (root / "../outside/f").stat().st_mtime_ns == 1


def test_rename_and_remove_take_a_symbolic_link_itself(fs: PosixFileSystem, root: Path) -> None:
    for name in ("a", "b", "c"):
        (root / name).symlink_to("../outside/f")
    fs.write_new("f", b"data")
    fs.rename("f", "a")
    fs.remove("b")
    with pytest.raises(FileExistsError):
        fs.rename_new("a", "c")
    assert (root / "../outside/f").read_bytes() == b"secret"
    assert fs.read("a", limit_bytes_max=LIMIT) == b"data"


def test_a_fifo_is_refused_without_blocking(fs: PosixFileSystem, root: Path) -> None:
    os.mkfifo(root / "fifo")
    for call in (
        lambda: fs.read("fifo", limit_bytes_max=LIMIT),
        lambda: fs.append("fifo", b"line\n"),
        lambda: fs.lock("fifo", wait_s=0),
        lambda: fs.clock_ns("fifo"),
    ):
        with pytest.raises(NotRegularFileError) as caught:
            call()
        assert (caught.value.path, caught.value.found) == ("fifo", "a FIFO")
    assert fs.stat("fifo").kind == "a FIFO"


def test_a_socket_is_refused(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name of a socket may have 108 bytes only, so it is given from near by.
    monkeypatch.chdir(root)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    try:
        with pytest.raises(NotRegularFileError):
            fs.read("socket", limit_bytes_max=LIMIT)
        assert fs.stat("socket").kind == "a socket"
    finally:
        listener.close()


def test_list_folder_names_what_is_no_file(fs: PosixFileSystem, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "link").symlink_to("../outside")
    kinds = {entry.name: entry.kind for entry in fs.list_folder("")}
    assert kinds == {"fifo": "neither a file nor a folder", "link": "a symbolic link"}


CALLS_IN_A_FOLDER: dict[str, Callable[[PosixFileSystem, str], object]] = {
    "read": lambda fs, d: fs.read(f"{d}/f", limit_bytes_max=LIMIT),
    "stat": lambda fs, d: fs.stat(f"{d}/f"),
    "list_folder": lambda fs, d: fs.list_folder(d),
    "write_new": lambda fs, d: fs.write_new(f"{d}/new", b""),
    "append": lambda fs, d: fs.append(f"{d}/f", b"line\n"),
    "sync_file": lambda fs, d: fs.sync_file(f"{d}/f"),
    "sync_folder": lambda fs, d: fs.sync_folder(d),
    "rename from": lambda fs, d: fs.rename(f"{d}/f", "f"),
    "rename to": lambda fs, d: fs.rename("mine", f"{d}/f"),
    "rename_new from": lambda fs, d: fs.rename_new(f"{d}/f", "f"),
    "rename_new to": lambda fs, d: fs.rename_new("mine", f"{d}/new"),
    "remove": lambda fs, d: fs.remove(f"{d}/f"),
    "make_folder": lambda fs, d: fs.make_folder(f"{d}/new"),
    "touch": lambda fs, d: fs.touch(f"{d}/f"),
    "clock_ns": lambda fs, d: fs.clock_ns(f"{d}/f"),
    "lock": lambda fs, d: fs.lock(f"{d}/f", wait_s=0),
}


@pytest.mark.parametrize("call", CALLS_IN_A_FOLDER)
@pytest.mark.parametrize("folder", ["d", "d/e"])
def test_a_folder_that_is_a_symbolic_link_is_refused(
    fs: PosixFileSystem, root: Path, call: str, folder: str
) -> None:
    fs.write_new("mine", b"mine")
    (root / "../outside/e").mkdir()
    (root / "../outside/e/f").write_bytes(b"secret")
    (root / "d").symlink_to("../outside")
    with pytest.raises(NotRegularFileError) as caught:
        CALLS_IN_A_FOLDER[call](fs, folder)
    assert (caught.value.path, caught.value.found) == ("d", "a symbolic link")
    assert sorted(os.listdir(root / "../outside")) == ["e", "f"]
    assert sorted(os.listdir(root / "../outside/e")) == ["f"]
    assert (root / "../outside/f").read_bytes() == b"secret"


# --- modes --------------------------------------------------------------------------------


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize(
    ("root_mode", "file_mode", "object_mode"),
    [(0o755, 0o644, 0o444), (0o700, 0o600, 0o400), (0o2775, 0o664, 0o664)],
)
def test_modes_come_from_the_root_and_not_from_the_umask(
    root: Path, umask: int, root_mode: int, file_mode: int, object_mode: int
) -> None:
    root.chmod(root_mode)
    before = os.umask(umask)
    try:
        fs = PosixFileSystem(str(root))
        fs.make_folder("folder")
        fs.write_new("folder/file", b"")
        fs.write_new("object", b"", read_only=True)
        fs.append("log", b"line\n")
        fs.lock("lock", wait_s=0).release()
        fs.clock_ns("clock")
    finally:
        os.umask(before)
    modes = {name: mode_of(root / name) for name in ("folder/file", "log", "lock", "clock")}
    assert modes == dict.fromkeys(modes, file_mode)
    assert mode_of(root / "object") == object_mode
    assert mode_of(root / "folder") == root_mode


# --- reads and writes that come in pieces, or fail -----------------------------------------


def test_a_file_that_is_read_in_pieces_is_read_whole(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.write_new("f", b"a whole file")
    read = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: read(fd, min(size, 1)))
    assert fs.read("f", limit_bytes_max=12) == b"a whole file"


def test_a_file_that_grows_beyond_the_limit_while_it_is_read_is_refused(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.write_new("f", b"1234")
    fstat = os.fstat

    def fstat_then_grow(fd: int) -> os.stat_result:
        found = fstat(fd)
        with open(root / "f", "ab") as file:
            file.write(b"5" * 100)
        return found

    monkeypatch.setattr(os, "fstat", fstat_then_grow)
    with pytest.raises(FileTooLargeError):
        fs.read("f", limit_bytes_max=10)


def test_a_write_that_goes_in_pieces_writes_everything(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:1]))
    fs.write_new("f", b"a whole file")
    fs.append("f", b" and a line\n")
    monkeypatch.undo()
    assert fs.read("f", limit_bytes_max=LIMIT) == b"a whole file\n and a line\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_half_way_leaves_nothing(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write = os.write
    written: list[int] = []

    def write_one_byte_then_fail(fd: int, data: bytes) -> int:
        if written:
            raise OSError(number, os.strerror(number))
        written.append(write(fd, bytes(data)[:1]))
        return 1

    monkeypatch.setattr(os, "write", write_one_byte_then_fail)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        fs.write_new("f", b"data")
    assert caught.value.errno == number
    assert os.listdir(root) == []


def test_a_write_that_writes_nothing_is_an_error(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(OSError, match="wrote nothing"):
        fs.write_new("f", b"data")
    assert os.listdir(root) == []


def test_a_real_file_size_limit_leaves_nothing(root: Path) -> None:
    script = """
        import resource, sys
        from castore.fs.posix import PosixFileSystem
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            PosixFileSystem(sys.argv[1]).write_new("f", bytes(100_000))
        except OSError as error:
            print(error.errno)
    """
    output, _ = run(script, str(root)).communicate(timeout=PATIENCE_S)
    assert output.strip() == str(errno.EFBIG)
    assert os.listdir(root) == []


def test_an_interrupted_write_leaves_nothing(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fd: int, data: bytes) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fs.write_new("f", b"data")
    assert os.listdir(root) == []


def test_an_error_of_close_is_an_error_of_the_write(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def close_and_fail(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", close_and_fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.write_new("f", b"data")
    assert os.listdir(root) == []


def test_a_failed_sync_of_new_content_leaves_nothing(
    fs: PosixFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a failed write once: a second fsync would say that all is well."""
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.write_new("f", b"data", durable=True)
    assert os.listdir(root) == []


def test_a_failed_sync_of_a_file_is_an_error(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.write_new("f", b"data")
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    scope = fs.open_sync_scope()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.sync_file("f")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.append("f", b"line\n", durable=True)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        scope.sync_files(["f"])
    scope.close()


# --- folders that cannot be synced ----------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_folder_that_cannot_be_synced_warns_once(
    fs: PosixFileSystem,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    fs.make_folder("d")
    monkeypatch.setattr(os, "fsync", fail(number))
    with caplog.at_level(logging.WARNING, logger="castore"):
        fs.sync_folder("d")
        fs.sync_folder("d")
    assert [record.name for record in caplog.records] == ["castore"]
    assert "folders cannot be synced" in caplog.text


def test_a_failed_sync_of_a_folder_is_an_error(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fs.make_folder("d")
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.sync_folder("d")
    assert caplog.records == []


# --- systems without hard links, renameat2, syncfs -------------------------------------------


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_rename_new_works_without_hard_links(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fs.write_new("f", b"new")
    fs.write_new("taken", b"old")
    monkeypatch.setattr(os, "link", fail(number))
    with pytest.raises(FileExistsError):
        fs.rename_new("f", "taken")
    fs.rename_new("f", "free")
    assert fs.read("taken", limit_bytes_max=LIMIT) == b"old"
    assert fs.read("free", limit_bytes_max=LIMIT) == b"new"


def test_rename_new_works_and_warns_without_renameat2_too(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fs.write_new("f", b"new")
    fs.write_new("taken", b"old")
    monkeypatch.setattr(os, "link", fail(errno.EPERM))
    monkeypatch.setattr(syscalls, "_libc", lambda name: None)
    with pytest.raises(FileExistsError):
        fs.rename_new("f", "taken")
    fs.rename_new("f", "free")
    assert fs.read("taken", limit_bytes_max=LIMIT) == b"old"
    assert fs.read("free", limit_bytes_max=LIMIT) == b"new"
    assert [record.name for record in caplog.records] == ["castore"]
    assert "no hard links here" in caplog.text


def test_rename_new_passes_other_errors_on(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.write_new("f", b"")
    monkeypatch.setattr(os, "link", fail(errno.EIO))
    monkeypatch.setattr(syscalls, "_libc", lambda name: None)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.rename_new("f", "free")
    assert fs.stat("f").kind == "file"


def libc_call(number: int) -> Callable[..., int]:
    """Return a C function that fails with this error."""
    import ctypes  # noqa: PLC0415 - only here

    def call(*arguments: object) -> int:
        ctypes.set_errno(number)
        return -1

    return call


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_a_system_that_knows_no_flag_of_renameat2_is_no_error(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(syscalls, "_libc", lambda name: libc_call(number))
    assert syscalls.rename_no_replace("a", "b") is False


def test_another_error_of_renameat2_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_libc", lambda name: libc_call(errno.EXDEV))
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        syscalls.rename_no_replace("a", "b")


def test_an_error_of_syncfs_is_an_error_of_the_scope(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "_libc", lambda name: libc_call(errno.EIO))
    scope = fs.open_sync_scope()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        scope.sync_files([f"f{n}" for n in range(100)])
    scope.close()


@pytest.mark.parametrize("lacks", ["the call", "reports of errors"])
def test_every_file_is_synced_where_syncfs_cannot_be_trusted(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    if lacks == "the call":
        monkeypatch.setattr(syscalls, "_libc", lambda name: None)
    else:
        monkeypatch.setattr(syscalls, "_kernel", lambda: (5, 7))
    synced: list[int] = []
    monkeypatch.setattr(posix, "fsync", synced.append)
    paths = [f"f{n}" for n in range(100)]
    for path in paths:
        fs.write_new(path, b"")
    scope = fs.open_sync_scope()
    scope.sync_files(paths)
    scope.sync_folders([""] * 50)
    scope.close()
    assert len(synced) == 150


def test_many_files_are_synced_by_one_call(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def libc(name: str) -> Callable[..., int]:
        calls.append(name)
        return lambda fd: 0

    monkeypatch.setattr(syscalls, "_libc", libc)
    monkeypatch.setattr(syscalls, "_kernel", lambda: (5, 8))
    monkeypatch.setattr(posix, "fsync", fail(errno.EIO))
    scope = fs.open_sync_scope()
    scope.sync_files([f"f{n}" for n in range(100)])
    scope.close()
    assert calls == ["syncfs"]


@pytest.mark.parametrize(
    ("release", "version"), [("5.8", (5, 8)), ("6.1.0-13-amd64", (6, 1)), ("5.10-rc1", (5, 10))]
)
def test_the_version_of_the_kernel_is_read(
    monkeypatch: pytest.MonkeyPatch, release: str, version: tuple[int, int]
) -> None:
    syscalls._kernel.cache_clear()
    uname = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*uname[:2], release, *uname[3:])))
    assert syscalls._kernel() == version
    syscalls._kernel.cache_clear()


# --- locks of other processes ---------------------------------------------------------------

HOLD = """
    import sys
    from castore.fs.posix import PosixFileSystem
    lock = PosixFileSystem(sys.argv[1]).lock("lock", wait_s=0)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_of_a_killed_process_is_free_at_once(fs: PosixFileSystem) -> None:
    holder = run(HOLD, fs.root)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockTimeoutError) as caught:
            fs.lock("lock", wait_s=0)
        assert f"process {holder.pid} on {socket.gethostname()}" in caught.value.holder
    finally:
        holder.kill()
        holder.communicate()
    fs.lock("lock", wait_s=0).release()


def test_release_frees_a_lock_that_a_forked_child_has_open(fs: PosixFileSystem) -> None:
    script = """
        import os, sys
        from castore.fs.posix import PosixFileSystem
        lock = PosixFileSystem(sys.argv[1]).lock("lock", wait_s=0)
        if os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
        lock.release()
        print("released", flush=True)
        os.wait()
    """
    parent = run(script, fs.root)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "released\n"
        fs.lock("lock", wait_s=0).release()
    finally:
        parent.communicate(timeout=PATIENCE_S)


def test_a_holder_with_control_characters_is_shown_without_them(
    fs: PosixFileSystem, root: Path
) -> None:
    with fs.lock("lock", wait_s=0):
        (root / "lock").write_bytes(b"evil\x1b[2J\nholder\xff")
        with pytest.raises(LockTimeoutError) as caught:
            fs.lock("lock", wait_s=0)
    assert caught.value.holder.isprintable()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_locks_that_do_not_exist_are_found_not_to_work(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import fcntl  # noqa: PLC0415 - Windows has none

    monkeypatch.setattr(fcntl, "flock", fail(number))
    assert fs.do_locks_work("lock") is False
    with fs.lock("lock", wait_s=0):
        fs.lock("lock", wait_s=0).release()


def test_locks_that_everybody_gets_are_found_not_to_work(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl  # noqa: PLC0415 - Windows has none

    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    assert fs.do_locks_work("lock") is False


def test_another_error_of_a_lock_is_one_and_leaks_no_descriptor(
    fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl  # noqa: PLC0415 - Windows has none

    monkeypatch.setattr(fcntl, "flock", fail(errno.EIO))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.lock("lock", wait_s=0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_stops_no_lock(fs: PosixFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.lock("lock", wait_s=0).release()
    monkeypatch.setattr(os, "write", fail(errno.ENOSPC))
    monkeypatch.setattr(os, "ftruncate", fail(errno.ENOSPC))
    os.utime(f"{fs.root}/lock", ns=(1, 1))
    fs.lock("lock", wait_s=0).release()
    assert fs.stat("lock").mtime_ns > 1


def test_no_call_leaves_a_descriptor_open(fs: PosixFileSystem) -> None:
    before = len(os.listdir("/proc/self/fd"))
    fs.write_new("f", b"data", durable=True)
    fs.read("f", limit_bytes_max=LIMIT)
    fs.append("log", b"line\n")
    fs.sync_folder("")
    fs.clock_ns("clock")
    fs.lock("lock", wait_s=0).release()
    with fs.lock("lock", wait_s=0), pytest.raises(LockTimeoutError):
        fs.lock("lock", wait_s=0)
    assert len(os.listdir("/proc/self/fd")) == before
