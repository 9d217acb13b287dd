"""The calls that differ between systems: syncs, and a rename that replaces nothing.

`ctypes` is loaded only by the two calls that Python lacks, as it takes longer to
import than most stores take to open.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_SYNCFS_REPORTS_SINCE = (5, 8)
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def fsync(fd: int) -> None:
    """Return when what was written to `fd` survives power loss.

    On macOS fsync leaves data in the drive's own memory; F_FULLFSYNC does not.
    """
    if sys.platform == "darwin":  # pragma: no cover - measured on macOS only
        import fcntl  # noqa: PLC0415 - Windows has no fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)  # noqa: TID251 - this is castore.fs


def syncfs(fd: int) -> bool:
    """Make everything on the file system of `fd` durable; False where that cannot be trusted.

    Before Linux 5.8 the call did not report errors in writing.
    """
    call = _libc("syncfs")
    if call is None or fd < 0 or _kernel() < _SYNCFS_REPORTS_SINCE:
        return False
    _raise_on_error(call(fd))
    return True


def rename_no_replace(source: str, target: str) -> bool:
    """Rename if `target` is free, atomically; False where the system cannot do that.

    Raises:
        FileExistsError: The name is taken.
    """
    call = _libc("renameat2")
    if call is None:
        return False
    at, old, new = _AT_FDCWD, os.fsencode(source), os.fsencode(target)
    try:
        _raise_on_error(call(at, old, at, new, _RENAME_NOREPLACE), target)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


@cache
def _libc(name: str) -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # noqa: PLC0415 - see the module's docstring

    library: Any = ctypes.CDLL(None, use_errno=True)
    return getattr(library, name, None)


def _raise_on_error(result: int, path: str | None = None) -> None:
    if result != 0:
        import ctypes  # noqa: PLC0415 - see the module's docstring

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


@cache
def _kernel() -> tuple[int, int]:
    major, minor = [*os.uname().release.split("."), "0"][:2]
    # A release may be called 6.9-rc1.
    return int(major), int("".join(takewhile(str.isdigit, minor)) or 0)
