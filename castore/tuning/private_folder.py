"""Folders for one worker each, and the removal of those whose tuner was killed.

A tuner removes its folder; when it is killed, its worker does. Where both were killed
at once, by a power cut say, the folder stays until a tuner finds it: a day old and
with a lock that nobody holds. The age alone counts where files cannot be locked.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from castore.errors import LockTimeoutError
from castore.fs.flock import FileLock, acquire

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "castore-worker-"
_LOCK = "lock"
_LEFTOVER_S = 24 * 3600.0


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that only this user may enter, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with _locked(folder):
            _sweep(folder)
            yield folder


def _sweep(mine: Path) -> None:
    # What cannot be removed now is no reason not to tune.
    with suppress(OSError):
        now = mine.lstat()
        for folder in mine.parent.glob(f"{_PREFIX}*"):
            with suppress(OSError, LockTimeoutError):
                if _is_leftover(folder.lstat(), now):
                    with _locked(folder):
                        shutil.rmtree(folder)


def _is_leftover(found: os.stat_result, now: os.stat_result) -> bool:
    is_old = now.st_mtime - found.st_mtime > _LEFTOVER_S
    return is_old and stat.S_ISDIR(found.st_mode) and found.st_uid == now.st_uid


def _locked(folder: Path) -> FileLock:
    full = str(folder / _LOCK)
    return acquire(full, full, _opened, wait_s=0)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
