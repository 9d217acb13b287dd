"""A file system in memory that can lose power.

It keeps what the protocol promises and no more: content survives only once its
file was synced, a name only once its folder was, a rename across folders only once
both were. That is less than most real file systems keep, so code that survives
here needs no particular one. A program whose folder cannot be used runs on it, too.

No call costs more in a large store than in a small one.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from castore.errors import FileTooLargeError, LockTimeoutError, NotRegularFileError
from castore.fs.memory_tree import File, Folder, folder_after_power_loss
from castore.fs.protocol import Entry, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from castore.fs.memory_tree import Content, Names

_START_NS = 1_700_000_000 * 10**9
# A program may run on this for months: the oldest half of the calls is then forgotten.
_CALLS_MAX = 20_000


class PowerLossError(Exception):
    """The power is off: nothing happens any more. Not an `OSError`, so that nobody handles it."""


class MemoryFileSystem:
    """`castore.fs.protocol.FileSystem` in memory; thread-safe.

    Attributes:
        ops: How many mutating calls there were; a scope counts each path that it syncs.
        calls: The latest mutating calls, oldest first, a short line each.
        now_ns: The clock that files get their mtime from: a nanosecond further with each
            mutating call.
    """

    def __init__(self, *, power_ops: int | None = None) -> None:
        """Make an empty one; after `power_ops` mutating calls every call raises PowerLossError."""
        self.ops = 0
        self.calls: list[str] = []
        self.now_ns = _START_NS
        self._power_ops = power_ops
        self._inodes = 1
        self._top = Folder(self._inodes, self.now_ns)
        self._held: set[MemoryLock] = set()
        self._condition = threading.Condition(threading.Lock())
        self._process = os.getpid()

    @property
    def root(self) -> str:
        """The root, as shown to people."""
        return "(memory)"

    def advance(self, ns: int) -> None:
        """Let `ns` nanoseconds pass on the clock, which never goes back."""
        if ns < 0:
            raise ValueError(f"the clock never goes back: {ns} ns")
        with self._mutex():
            self.now_ns += ns

    def after_power_loss(self, *, unsynced: Content, unsynced_names: Names) -> MemoryFileSystem:
        """Return the file system that a reboot would find, if the power went now.

        Args:
            unsynced: What is left of content that was not synced: all, nothing, or half.
            unsynced_names: Whether changes of names since the last sync of their folder are
                left or undone.
        """
        reboot = MemoryFileSystem()
        with self._mutex():
            reboot.now_ns = self.now_ns
            reboot._inodes = self._inodes
            survivors: dict[int, File] = {}
            reboot._top = folder_after_power_loss(self._top, unsynced, unsynced_names, survivors)
        return reboot

    def read(self, path: str, *, limit_bytes_max: int) -> bytes:
        """See the protocol."""
        with self._powered():
            file = self._file(path)
            if len(file.content) > limit_bytes_max:
                raise FileTooLargeError(path, len(file.content), limit_bytes_max)
            return bytes(file.content)

    def stat(self, path: str) -> Status:
        """See the protocol."""
        with self._powered():
            node = self._node(path)
            if isinstance(node, Folder):
                return Status("folder", 0, node.mtime_ns, node.inode)
            return Status("file", len(node.content), node.mtime_ns, node.inode)

    def list_folder(self, path: str) -> list[Entry]:
        """See the protocol."""
        with self._powered():
            names = self._folder(path).names
            return [
                Entry(name, "file" if isinstance(node, File) else "folder")
                for name, node in names.items()
            ]

    def write_new(
        self, path: str, data: bytes, *, read_only: bool = False, durable: bool = False
    ) -> None:
        """See the protocol; there are no rights here, so `read_only` is only noted."""
        how = " read_only" * read_only + " durable" * durable
        with self._mutating(f"write_new {path} {len(data)}{how}"):
            folder, name = self._place(path)
            if name in folder.names:
                raise _os_error(errno.EEXIST, path)
            file = self._make_file(folder, name)
            file.content += data
            file.synced_bytes = len(data) if durable else 0

    def append(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """See the protocol."""
        with self._mutating(f"append {path} {len(data)}{' durable' * durable}"):
            file = self._file_or_new(path)
            if file.content and not file.content.endswith(b"\n"):
                file.content += b"\n"
            file.content += data
            file.mtime_ns = self.now_ns
            if durable:
                file.synced_bytes = len(file.content)

    def sync_file(self, path: str) -> None:
        """See the protocol."""
        with self._mutating(f"sync_file {path}"):
            self._sync_file(path)

    def sync_folder(self, path: str) -> None:
        """See the protocol."""
        with self._mutating(f"sync_folder {path or '.'}"):
            self._folder(path).sync()

    def open_sync_scope(self) -> MemorySyncScope:
        """See the protocol."""
        return MemorySyncScope(self)

    def rename(self, source: str, target: str) -> None:
        """See the protocol."""
        with self._mutating(f"rename {source} {target}"):
            file = self._file(source)
            folder, name = self._place(target)
            there = folder.names.get(name)
            if isinstance(there, Folder):
                raise _os_error(errno.EISDIR, target)
            # Two names of one file: rename(2) then does nothing, and both stay.
            if there is not file:
                self._move(source, folder, name, file)

    def rename_new(self, source: str, target: str) -> None:
        """See the protocol."""
        with self._mutating(f"rename_new {source} {target}"):
            file = self._file(source)
            folder, name = self._place(target)
            if name in folder.names:
                raise _os_error(errno.EEXIST, target)
            self._move(source, folder, name, file)

    def remove(self, path: str) -> None:
        """See the protocol."""
        with self._mutating(f"remove {path}"):
            if isinstance(self._node(path), Folder):
                raise _os_error(errno.EISDIR, path)
            self._drop(path)

    def make_folder(self, path: str) -> None:
        """See the protocol."""
        with self._mutating(f"make_folder {path}"):
            parent, name = self._place(path)
            if name not in parent.names:
                self._inodes += 1
                parent.set(name, Folder(self._inodes, self.now_ns))

    def touch(self, path: str) -> None:
        """See the protocol."""
        with self._mutating(f"touch {path}"):
            self._node(path).mtime_ns = self.now_ns

    def clock_ns(self, path: str) -> int:
        """See the protocol."""
        with self._mutating(f"clock_ns {path}"):
            file = self._file_or_new(path)
            file.content[:1] = b"\n"
            file.synced_bytes = 0
            file.mtime_ns = self.now_ns
            return file.mtime_ns

    def lock(self, path: str, *, wait_s: float) -> MemoryLock:
        """See the protocol; it excludes the threads of this process."""
        start_s = time.monotonic()
        lock = MemoryLock(self, path)
        with self._powered():
            # Looked up anew each time: the file may be removed while somebody waits for it.
            while (holder := self._holder(path)) is not None:
                waited_s = time.monotonic() - start_s
                if waited_s >= wait_s:
                    raise LockTimeoutError(path, round(waited_s, 3), holder.shown)
                self._condition.wait(wait_s - waited_s)
                self._check_power()
            self._note(f"lock {path}")
            self._take(lock, path)
        return lock

    def do_locks_work(self, path: str) -> bool:
        """See the protocol."""
        with self.lock(path, wait_s=0):
            try:
                self.lock(path, wait_s=0).release()
            except LockTimeoutError:
                return True
        return False  # pragma: no cover - only a bug leads here

    def _release(self, lock: MemoryLock, *, remove: bool) -> None:
        """Let go. A machine without power releases nothing, and says nothing about it."""
        with self._mutex():
            file = lock.file
            if file is None or file.holder is not lock:
                return
            if self._power_ops is None or self.ops < self._power_ops:
                self._note(f"unlock {lock.path}{' remove' * remove}")
                if remove and self._node_or_none(lock.path) is file:
                    self._drop(lock.path)
            file.holder = lock.file = None
            self._held.discard(lock)
            self._condition.notify_all()

    def _holder(self, path: str) -> MemoryLock | None:
        folder, name = self._place(path)
        node = folder.names.get(name)
        if isinstance(node, Folder):
            raise _os_error(errno.EISDIR, path)
        return None if node is None else node.holder

    def _take(self, lock: MemoryLock, path: str) -> None:
        file = self._file_or_new(path)
        file.content[:] = f"{lock.shown}\n".encode()
        file.synced_bytes = 0
        file.mtime_ns = self.now_ns
        file.holder = lock
        lock.file = file
        self._held.add(lock)

    @contextmanager
    def _powered(self) -> Iterator[None]:
        with self._mutex():
            self._check_power()
            yield

    @contextmanager
    def _mutating(self, line: str) -> Iterator[None]:
        with self._powered():
            self._note(line)
            yield

    def _check_power(self) -> None:
        if self._power_ops is not None and self.ops >= self._power_ops:
            raise PowerLossError(f"the power went after {self.ops} calls")

    def _note(self, line: str) -> None:
        self.ops += 1
        self.now_ns += 1
        self.calls.append(line)
        if len(self.calls) > _CALLS_MAX:
            del self.calls[: _CALLS_MAX // 2]

    def _mutex(self) -> threading.Condition:
        if self._process != os.getpid():
            self._start_after_fork()
        return self._condition

    def _start_after_fork(self) -> None:
        """Free, in a forked child, what threads that exist only in the parent hold."""
        self._process = os.getpid()
        self._condition = threading.Condition(threading.Lock())
        for lock in [lock for lock in self._held if lock.thread != threading.get_ident()]:
            self._release(lock, remove=False)

    def _node_or_none(self, path: str) -> File | Folder | None:
        try:
            return self._node(path)
        except FileNotFoundError:
            return None

    def _node(self, path: str) -> File | Folder:
        if path in ("", "."):
            return self._top
        folder, name = self._place(path)
        node = folder.names.get(name)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        """Return the folder that a name is in, or would be in, and the last part of the name."""
        *parts, name = path.split("/")
        folder = self._top
        for depth, part in enumerate(parts, start=1):
            node = folder.names.get(part)
            if node is None:
                raise _os_error(errno.ENOENT, path)
            if isinstance(node, File):
                raise NotRegularFileError("/".join(parts[:depth]), "file")
            folder = node
        return folder, name

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        if isinstance(node, File):
            raise NotRegularFileError(path, "file")
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if isinstance(node, Folder):
            raise NotRegularFileError(path, "folder")
        return node

    def _file_or_new(self, path: str) -> File:
        folder, name = self._place(path)
        return self._file(path) if name in folder.names else self._make_file(folder, name)

    def _make_file(self, folder: Folder, name: str) -> File:
        self._inodes += 1
        file = File(self._inodes, self.now_ns)
        folder.set(name, file)
        return file

    def _move(self, source: str, folder: Folder, name: str, file: File) -> None:
        folder.set(name, file)
        self._drop(source)

    def _drop(self, path: str) -> None:
        folder, name = self._place(path)
        folder.drop(name)

    def _sync_file(self, path: str) -> None:
        file = self._file(path)
        file.synced_bytes = len(file.content)


class MemoryLock:
    """A lock in a `MemoryFileSystem`, held until it is released.

    Attributes:
        path: The lock file.
        thread: The thread that took it.
        shown: Who holds it, as shown to people.
        file: What it locks; None while it is not held.
    """

    def __init__(self, fs: MemoryFileSystem, path: str) -> None:
        """Prepare a lock that nobody holds yet."""
        self._fs = fs
        self.path = path
        self.thread = threading.get_ident()
        self.shown = f"thread {self.thread} of process {os.getpid()}"
        self.file: File | None = None

    def release(self, *, remove: bool = False) -> None:
        """Let go; with `remove`, delete the lock file first, while it is still held."""
        self._fs._release(self, remove=remove)  # noqa: SLF001 - the two are one

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go."""
        self.release()


class MemorySyncScope:
    """`castore.fs.protocol.SyncScope` in memory: the power may go between any two paths."""

    def __init__(self, fs: MemoryFileSystem) -> None:
        """Sync the files and folders of `fs`."""
        self._fs = fs

    def sync_files(self, paths: Sequence[str]) -> None:
        """See the protocol."""
        for path in paths:
            self._fs.sync_file(path)

    def sync_folders(self, paths: Sequence[str]) -> None:
        """See the protocol."""
        for path in paths:
            self._fs.sync_folder(path)

    def close(self) -> None:
        """See the protocol."""


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
