"""Lock files, held by `flock`.

The kernel frees a lock when its holder dies, so nobody ever removes another's lock.
A lock file that was removed while somebody waited for it locks nothing: whoever
gets a lock looks whether the name still leads to the file that it locked, and
starts again if not.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import socket
import time
from typing import TYPE_CHECKING, Self

from castore.errors import LockTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_HOLDER_BYTES_MAX = 512
_PAUSE_FIRST_S = 0.001
_PAUSE_MAX_S = 0.05
_SUSPICIOUS_S = 0.5
# No locks on this file system at all; DESIGN's rules for that case apply.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


class FileLock:
    """An open lock file, and the lock on it until it is released.

    It is made before the lock is taken, and lets go when it is garbage: an interrupt may come
    where nobody else knows of it yet, and a process must not lock itself out.
    """

    def __init__(self, full: str, fd: int) -> None:
        self._full = full
        self._fd = fd
        self._process = os.getpid()

    def __del__(self) -> None:
        """Let go. At the end of the interpreter there may be nothing left to do it with."""
        with contextlib.suppress(Exception):
            self.release()

    def take(self) -> bool:
        """Lock the file, at once; False where another has it locked."""
        return _try(self._fd)

    def is_named(self) -> bool:
        """Tell whether the name still leads to this file."""
        return _is_named(self._fd, self._full)

    def write_holder(self) -> None:
        """Say in the file who holds it, which also touches it."""
        _write_holder(self._fd, self._full)

    def read_holder(self) -> str:
        """Return who says that he holds it."""
        return _read_holder(self._fd)

    def release(self, *, remove: bool = False) -> None:
        """Let go; with `remove`, delete the lock file first, while it is still held."""
        if self._fd < 0:
            return
        is_mine = self._process == os.getpid()
        # Windows removes no file that is open; nor are there locks that it could be removed under.
        remove_closed = remove and is_mine and os.name == "nt"
        try:
            if remove and is_mine and not remove_closed and self.is_named():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._full)
        finally:
            # Closing alone would leave it locked while a forked child has the descriptor; and a
            # child has but a copy: there the lock stays its parent's.
            if is_mine:
                with contextlib.suppress(OSError):
                    _flock(self._fd, "LOCK_UN")
            # Only now that it is unlocked may it be forgotten, and before it is closed: another
            # file may get its number at once.
            fd, self._fd = self._fd, -1
            os.close(fd)
            if remove_closed:
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    os.unlink(self._full)

    def excludes_another(self) -> bool:
        """Tell whether a second opening of the file fails to get the lock."""
        fd = os.open(self._full, os.O_RDWR)
        try:
            return not _try(fd)
        finally:
            os.close(fd)

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


def acquire(full: str, path: str, open_file: Callable[[str], int], *, wait_s: float) -> FileLock:
    """Return the lock on the file `full`, waiting for at most `wait_s` seconds.

    Args:
        full: The whole path of the lock file.
        path: The same, relative to the store.
        open_file: Opens `path` for reading and writing, making a plain file where it is missing.
        wait_s: How long to wait for another one to let go, in seconds.

    Raises:
        LockTimeoutError: Another one held it all the while.
    """
    start_s = time.monotonic()
    pause_s = _PAUSE_FIRST_S
    has_collected = False
    while True:
        lock = FileLock(full, open_file(path))
        try:
            held = lock.take()
            if held and lock.is_named():
                lock.write_holder()
                return lock
            holder = "" if held else lock.read_holder()
        except BaseException:
            lock.release()
            raise
        lock.release()
        if held:
            continue  # it was removed under us: the next one is made at once
        waited_s = time.monotonic() - start_s
        if waited_s >= min(wait_s, _SUSPICIOUS_S) and not has_collected and _is_me(holder):
            # An exception may still hold the frames, and so the lock, of what it interrupted.
            gc.collect()
            has_collected = True
            continue
        if waited_s >= wait_s:
            raise LockTimeoutError(path, round(waited_s, 3), holder)
        time.sleep(min(pause_s, wait_s - waited_s))
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def _try(fd: int) -> bool:
    try:
        _flock(fd, "LOCK_EX", "LOCK_NB")
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _flock(fd: int, *operations: str) -> None:
    try:
        import fcntl  # noqa: PLC0415 - Windows has no fcntl
    except ImportError:  # pragma: no cover - Windows
        return
    wanted = 0
    for operation in operations:
        wanted |= getattr(fcntl, operation)
    fcntl.flock(fd, wanted)


def _is_named(fd: int, full: str) -> bool:
    try:
        named = os.stat(full, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)


def _write_holder(fd: int, full: str) -> None:
    """Say who holds the lock. A full disk must not stop gc, so failing to say it is no error."""
    holder = f"{_me()}{_now()}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.write(fd, holder.encode())
        return
    os.utime(fd if os.utime in os.supports_fd else full)


def _me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} since "


def _is_me(holder: str) -> bool:
    return holder.startswith(_me())


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _read_holder(fd: int) -> str:
    text = os.read(fd, _HOLDER_BYTES_MAX).decode("utf-8", "replace").strip()
    return "".join(c if c.isprintable() else " " for c in text)
