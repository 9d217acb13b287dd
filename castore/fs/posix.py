"""A real file system, through the `os` module.

No file is opened through a symbolic link: the last part of a path by O_NOFOLLOW,
the folders above it by looking at each once per process. Owners and modes come from
the store's root, not from the process (`rights`). Nothing stays open between calls,
which is what makes a store usable after a fork.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat as stat_module
import time
from typing import TYPE_CHECKING, TypeVar

from castore.errors import FileTooLargeError, NotRegularFileError
from castore.fs.flock import FileLock, acquire
from castore.fs.protocol import Entry, Status, kind_of
from castore.fs.rights import HAS_MODES, rights_of
from castore.fs.syscalls import fsync, rename_no_replace, syncfs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")

_log = logging.getLogger("castore")

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# A FIFO without a writer would block an open that waits.
_READ |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_CREATE |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITE |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
_APPEND |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)

_LOCK = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_LOCK |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER |= getattr(os, "O_CLOEXEC", 0)

# Windows can touch only what a link leads to, and links only what is no link.
_TOUCHES_LINKS = os.utime in os.supports_follow_symlinks
_LINKS_LINKS = os.link in os.supports_follow_symlinks  # noqa: TID251 - not called here
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_CANNOT_SYNC_FOLDER = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EBADF}
# Measured on ext4: from about this many files on, one syncfs costs less than an fsync each.
_SYNC_ONE_BY_ONE_MAX = 16
# In a shared store: how long another user may take between making a file and giving it its mode.
_RIGHTS_WAIT_S = 2.0
_RIGHTS_PAUSE_S = 0.005


class PosixFileSystem:
    """`castore.fs.protocol.FileSystem` over a folder of a real file system."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._real_folders: set[str] = set()
        self._renames_new = True
        self._warned: set[str] = set()
        self._rights = rights_of(os.stat(self._root))
        self._waits_for_rights = self._rights.is_shared

    @property
    def root(self) -> str:
        """The root, as shown to people."""
        return self._root

    def is_writable(self) -> bool:
        """Tell whether this process may write the root (False on a read-only file system)."""
        effective = os.access in os.supports_effective_ids
        return os.access(self._root, os.W_OK | os.X_OK, effective_ids=effective)

    def read(self, path: str, *, limit_bytes_max: int) -> bytes:
        """See the protocol."""
        fd = self._open(path, _READ)
        try:
            found = _plain_file(fd, path)
            if found.st_size > limit_bytes_max:
                raise FileTooLargeError(path, found.st_size, limit_bytes_max)
            # One byte more than there should be: a whole file takes a single call.
            data = os.read(fd, found.st_size + 1)
            return (
                data if len(data) == found.st_size else _read_rest(fd, path, data, limit_bytes_max)
            )
        finally:
            os.close(fd)

    def stat(self, path: str) -> Status:
        """See the protocol."""
        self._check_folders(path)
        found = os.lstat(f"{self._root}/{path}")
        return Status(kind_of(found.st_mode), found.st_size, found.st_mtime_ns, found.st_ino)

    def list_folder(self, path: str) -> list[Entry]:
        """See the protocol."""
        self._check_folders(f"{path}/")
        with os.scandir(f"{self._root}/{path}") as found:
            return [Entry(entry.name, _entry_kind(entry)) for entry in found]

    def write_new(
        self, path: str, data: bytes, *, read_only: bool = False, durable: bool = False
    ) -> None:
        """See the protocol."""
        mode = self._rights.object_mode if read_only else self._rights.file_mode
        fd = self._open(path, _CREATE, mode)
        try:
            try:
                self._rights.give(fd, os.fstat(fd), mode)
                _write_all(fd, data)
                if durable:
                    fsync(fd)
            finally:
                # An error of close is an error of the write.
                os.close(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(f"{self._root}/{path}")
            raise

    def append(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """See the protocol."""
        mode = self._rights.file_mode
        fd = self._open(path, _APPEND, mode)
        try:
            found = _plain_file(fd, path)
            self._rights.give(fd, found, mode)
            if found.st_size and not _ends_a_line(fd, found.st_size):
                data = b"\n" + data
            _write_all(fd, data)
            if durable:
                fsync(fd)
        finally:
            os.close(fd)

    def sync_file(self, path: str) -> None:
        """See the protocol."""
        fd = self._open(path, _READ)
        try:
            fsync(fd)
        finally:
            os.close(fd)

    def sync_folder(self, path: str) -> None:
        """See the protocol."""
        self._check_folders(f"{path}/")
        if os.name == "nt":
            return  # Windows has no such call
        fd = self._open(path, _FOLDER)
        try:
            fsync(fd)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC_FOLDER:
                raise
            self._warn_once("folders cannot be synced here: names may be lost with the power")
        finally:
            os.close(fd)

    def open_sync_scope(self) -> PosixSyncScope:
        """See the protocol."""
        return PosixSyncScope(self)

    def rename(self, source: str, target: str) -> None:
        """See the protocol."""
        self._check_folders(source)
        self._check_folders(target)
        old, new = f"{self._root}/{source}", f"{self._root}/{target}"
        try:
            os.replace(old, new)  # noqa: TID251 - this is castore.fs
        except PermissionError:
            self._again(lambda: os.replace(old, new))  # noqa: TID251 - this is castore.fs

    def rename_new(self, source: str, target: str) -> None:
        """See the protocol."""
        self._check_folders(source)
        self._check_folders(target)
        old, new = f"{self._root}/{source}", f"{self._root}/{target}"
        if os.name == "nt":
            os.rename(old, new)  # noqa: TID251 - this is castore.fs; there it replaces nothing
            return
        # One call where the system has it; a link and an unlink are two.
        try:
            if self._renames_new and rename_no_replace(old, new):
                return
        except PermissionError:
            if self._again(lambda: rename_no_replace(old, new)):
                return
        self._renames_new = False
        try:
            _link(old, new)
        except OSError as error:
            if error.errno == errno.EACCES:
                self._again(lambda: _link(old, new))
            elif error.errno in _NO_LINKS:
                self._rename_new_without_links(old, new)
                return
            else:
                raise
        os.unlink(old)

    def _rename_new_without_links(self, old: str, new: str) -> None:
        # Neither call exists here (exFAT, for one): the caller's lock is all that is left.
        self._warn_once("no hard links here: two writers without working locks may collide")
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        os.replace(old, new)  # noqa: TID251 - this is castore.fs

    def remove(self, path: str) -> None:
        """See the protocol."""
        self._check_folders(path)
        os.unlink(f"{self._root}/{path}")

    def make_folder(self, path: str) -> None:
        """See the protocol."""
        self._check_folders(path)
        full = f"{self._root}/{path}"
        try:
            os.mkdir(full)
        except FileExistsError:
            pass
        except PermissionError:
            self._again(lambda: os.mkdir(full))
        if HAS_MODES:
            self._give_folder(full)

    def _give_folder(self, full: str) -> None:
        """Give a folder its rights, also one whose maker was killed before he could."""
        try:
            fd = os.open(full, _FOLDER)
        except OSError:
            return  # another user's, who is about to set them; or none, which whoever enters learns
        try:
            self._rights.give(fd, os.fstat(fd), self._rights.folder_mode)
        finally:
            os.close(fd)

    def touch(self, path: str) -> None:
        """See the protocol."""
        self._check_folders(path)
        # No times given: the kernel, or the file server, says what now is.
        os.utime(f"{self._root}/{path}", follow_symlinks=not _TOUCHES_LINKS)

    def clock_ns(self, path: str) -> int:
        """See the protocol."""
        mode = self._rights.file_mode
        fd = self._open(path, _WRITE, mode)
        try:
            self._rights.give(fd, _plain_file(fd, path), mode)
            os.write(fd, b"\n")
            return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)

    def lock(self, path: str, *, wait_s: float) -> FileLock:
        """See the protocol."""
        return acquire(f"{self._root}/{path}", path, self._open_lock, wait_s=wait_s)

    def _open_lock(self, path: str) -> int:
        mode = self._rights.file_mode
        fd = self._open(path, _LOCK, mode)
        try:
            self._rights.give(fd, _plain_file(fd, path), mode)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def do_locks_work(self, path: str) -> bool:
        """See the protocol."""
        with self.lock(path, wait_s=0) as first:
            return first.excludes_another()

    def _open(self, path: str, flags: int, mode: int = 0) -> int:
        self._check_folders(path)
        full = f"{self._root}/{path}"
        try:
            return os.open(full, flags, mode)
        except PermissionError:
            return self._again(lambda: os.open(full, flags, mode))
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotRegularFileError(path, "a symbolic link") from None
            if error.errno in (errno.ENXIO, errno.EISDIR):
                raise NotRegularFileError(path, kind_of(os.lstat(full).st_mode)) from None
            raise

    def _check_folders(self, path: str) -> None:
        """Make sure that no folder above the last part of `path` is a link to elsewhere."""
        folder = path.rpartition("/")[0]
        if folder and folder not in self._real_folders:
            self._check_folders(folder)
            found = os.lstat(f"{self._root}/{folder}")
            if not stat_module.S_ISDIR(found.st_mode):
                raise NotRegularFileError(folder, kind_of(found.st_mode))
            self._real_folders.add(folder)

    def _again(self, act: Callable[[], _T]) -> _T:
        """Repeat what was not permitted, for a moment, in a store that a group shares.

        What another user makes with a tight umask is closed to the group until he has set its
        mode, in his very next calls. Who waited in vain once does not wait again.
        """
        give_up_s = time.monotonic() + _RIGHTS_WAIT_S
        while self._waits_for_rights and time.monotonic() < give_up_s:
            time.sleep(_RIGHTS_PAUSE_S)
            with contextlib.suppress(PermissionError):
                return act()
        self._waits_for_rights = False
        return act()

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s: %s", self._root, message)


def make_root(path: str) -> None:
    """Make a folder and its missing parents, durably; it may be there already.

    The umask says who may do what with them, except that they are never open to all.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_root(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o775)
    PosixFileSystem(parent).sync_folder("")


def is_mount_or_link(root: str, folder: str) -> bool:
    """Tell whether a folder of a root is a link, or on another file system."""
    found = os.lstat(f"{root}/{folder}")
    return stat_module.S_ISLNK(found.st_mode) or found.st_dev != os.lstat(f"{root}/.").st_dev


class PosixSyncScope:
    """`castore.fs.protocol.SyncScope` by fsync for a few files, by syncfs for many.

    syncfs reports an error of anything written since its descriptor was opened
    (Linux 5.8 and later; elsewhere every file is synced by itself).
    """

    def __init__(self, fs: PosixFileSystem) -> None:
        self._fs = fs
        self._fd = os.open(fs.root, os.O_RDONLY) if os.name == "posix" else -1

    def sync_files(self, paths: Sequence[str]) -> None:
        """See the protocol."""
        if len(paths) > _SYNC_ONE_BY_ONE_MAX and syncfs(self._fd):
            return
        for path in paths:
            self._fs.sync_file(path)

    def sync_folders(self, paths: Sequence[str]) -> None:
        """See the protocol."""
        if len(paths) > _SYNC_ONE_BY_ONE_MAX and syncfs(self._fd):
            return
        for path in paths:
            self._fs.sync_folder(path)

    def close(self) -> None:
        """See the protocol."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _plain_file(fd: int, path: str) -> os.stat_result:
    found = os.fstat(fd)
    if not stat_module.S_ISREG(found.st_mode):
        raise NotRegularFileError(path, kind_of(found.st_mode))
    return found


def _read_rest(fd: int, path: str, data: bytes, limit_bytes_max: int) -> bytes:
    """Go on reading a file that came in pieces, or changed its size meanwhile."""
    pieces = [data]
    size_bytes = len(data)
    while size_bytes <= limit_bytes_max and (piece := os.read(fd, 2**20)):
        pieces.append(piece)
        size_bytes += len(piece)
    if size_bytes > limit_bytes_max:
        raise FileTooLargeError(path, size_bytes, limit_bytes_max)
    return b"".join(pieces)


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        # A full disk or a size limit shortens the first write and fails the next.
        more = os.write(fd, memoryview(data)[written:])
        if more == 0:
            raise OSError(errno.EIO, "write() wrote nothing")
        written += more


def _ends_a_line(fd: int, size_bytes: int) -> bool:
    # Not pread, which Windows lacks; the file is open for appending, so writes go to its end.
    os.lseek(fd, size_bytes - 1, os.SEEK_SET)
    return os.read(fd, 1) == b"\n"


def _link(old: str, new: str) -> None:
    options = {"follow_symlinks": False} if _LINKS_LINKS else {}
    os.link(old, new, **options)  # noqa: TID251 - this is castore.fs


def _entry_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "a symbolic link" if entry.is_symlink() else "neither a file nor a folder"
