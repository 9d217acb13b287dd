"""Whether a file's rights are those of the store that it lies in.

Whoever may write the store's root may write the store: a file that others may write
as well lets them change results, and one that some readers of the root may not read
is a miss to them alone.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from castore.fs.posix import PosixFileSystem

if TYPE_CHECKING:
    from castore.fs.protocol import FileSystem

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
_ENTER = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


def differing_rights(fs: FileSystem, path: str) -> str:
    """Return how the rights to a file or folder differ from the root's; empty where they do not.

    Empty as well where there are no rights, as in memory and on Windows, and where the file is
    gone. Links are not followed.
    """
    if not isinstance(fs, PosixFileSystem) or os.name != "posix":
        return ""
    root = stat.S_IMODE(os.stat(fs.root).st_mode)
    try:
        found = os.lstat(f"{fs.root}/{path}").st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return "" if stat.S_ISLNK(found) else _difference(root, found)


def _difference(root: int, found: int) -> str:
    mode = stat.S_IMODE(found)
    needed = _READ | _ENTER if stat.S_ISDIR(found) else _READ
    if mode & _OTHERS_WRITE & ~root:
        return f"mode {mode:o}: more users may write it than the store's folder ({root:o})"
    if root & needed & ~mode:
        return f"mode {mode:o}: fewer users may read it than the store's folder ({root:o})"
    return ""
