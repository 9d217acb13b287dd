"""Makes this Python lack what Windows lacks, and refuse what Windows refuses.

Not Windows: a rehearsal of what is known to differ. It is imported before castore, in
a process of its own.
"""

from __future__ import annotations

import os
import pathlib
import stat
import sys
from typing import Any

_LACKS = ("pread", "pwrite", "fchmod", "fchown", "chown", "lchown", "geteuid", "getuid", "getegid")
_LACKS += ("getgid", "getgroups", "uname", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
_LACKS += ("O_NOCTTY", "sysconf", "fork", "sync", "statvfs")
_unlink, _replace, _rename, _link, _utime = os.unlink, os.replace, os.rename, os.link, os.utime
_open, _close, _access = os.open, os.close, os.access
_open_files: dict[int, str] = {}


def rehearse() -> None:
    for name in _LACKS:
        delattr(os, name)
    for module in ("fcntl", "pwd", "grp", "resource"):
        sys.modules[module] = None  # type: ignore[assignment]  # so that importing it fails
    sys.platform = "win32"
    pathlib.WindowsPath = pathlib.PosixPath  # type: ignore[misc]  # paths stay those of this system
    os.name = "nt"
    os.open, os.close = open_file, close_file
    os.unlink = os.remove = unlink
    os.replace, os.rename, os.link = replace, rename, link
    os.utime, os.access = utime, access
    os.supports_fd = set()
    os.supports_follow_symlinks = set()
    os.supports_effective_ids = set()


def open_file(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
    if os.path.isdir(path):
        raise PermissionError(13, "a folder cannot be opened", path)
    is_new = not os.path.lexists(path)
    fd = _open(path, flags, mode, **options)
    if is_new:  # one right alone: to write, or not
        os.chmod(path, 0o666 if mode & stat.S_IWRITE else 0o444)
    _open_files[fd] = os.path.abspath(path)
    return fd


def close_file(fd: int) -> None:
    _open_files.pop(fd, None)
    _close(fd)


def _check_free(path: Any) -> None:
    if os.path.abspath(path) in _open_files.values():
        raise PermissionError(32, "another process is using the file", path)
    if os.path.isfile(path) and not os.stat(path).st_mode & stat.S_IWRITE:
        raise PermissionError(5, "access is denied: it is read-only", path)


def unlink(path: Any) -> None:
    _check_free(path)
    _unlink(path)


def replace(old: Any, new: Any) -> None:
    _check_free(old)
    _check_free(new)
    _replace(old, new)


def rename(old: Any, new: Any) -> None:
    if os.path.lexists(new):
        raise FileExistsError(183, "it exists", new)
    _check_free(old)
    _rename(old, new)


def link(old: Any, new: Any, *, follow_symlinks: bool = True) -> None:
    if not follow_symlinks:
        raise NotImplementedError("follow_symlinks unavailable on this platform")
    _link(old, new)


def utime(path: Any, times: Any = None, *, ns: Any = None, follow_symlinks: bool = True) -> None:
    if not follow_symlinks or isinstance(path, int):
        raise NotImplementedError("unavailable on this platform")
    if ns is None:
        _utime(path, times)
    else:
        _utime(path, ns=ns)


def access(path: Any, mode: int, *, effective_ids: bool = False) -> bool:
    if effective_ids:
        raise NotImplementedError("effective_ids unavailable on this platform")
    return _access(path, mode)
