"""Whose the files of a store are, and who may do what with them.

Both come from the store's root and not from the process that happens to make a file:
whoever may write the root may write what is in it, whatever umask the maker had. When
root works in a user's store, what it makes is the user's.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_GROUP_WRITES = stat.S_IWGRP
_LEAVE = -1
_NOT_POSSIBLE = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL}
_NOT_POSSIBLE |= {errno.EOPNOTSUPP, errno.ENOTSUP}
# Windows gives a file one right, and keeps one that is read-only from being replaced or removed.
HAS_MODES = os.name == "posix" and hasattr(os, "fchmod")


@dataclass(frozen=True, slots=True)
class Rights:
    """What new files and folders of a store get.

    Attributes:
        file_mode: The mode of a file that may be written again.
        object_mode: The mode of a file that nobody writes again. In a store that a group shares
            the group keeps the right to write: touching another's file takes it.
        folder_mode: The mode of a folder.
        uid: The owner; -1 where only root could set another than the maker.
        gid: The group; -1 where the maker's will do.
    """

    file_mode: int
    object_mode: int
    folder_mode: int
    uid: int
    gid: int

    @property
    def is_shared(self) -> bool:
        """Whether a group writes the store."""
        return bool(self.file_mode & _GROUP_WRITES)

    def give(self, fd: int, found: os.stat_result, mode: int) -> None:
        """Give an open file or folder of the store its owner, its group and `mode`.

        Mostly it has them already, and looking is cheaper than setting.

        Args:
            fd: The open file or folder.
            found: Its status.
            mode: The mode that it should have.
        """
        # root must not be led to change a file elsewhere by its second name in a user's store.
        if not HAS_MODES or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
            return
        uid = self.uid if found.st_uid != self.uid else _LEAVE
        gid = self.gid if found.st_gid != self.gid else _LEAVE
        if uid != _LEAVE or gid != _LEAVE:
            _where_possible(os.fchown, fd, uid, gid)
        if stat.S_IMODE(found.st_mode) != mode:
            _where_possible(os.fchmod, fd, mode)


def rights_of(root: os.stat_result) -> Rights:
    """Return the rights that follow from a root."""
    mode = stat.S_IMODE(root.st_mode)
    file_mode = mode & 0o666
    shares = bool(mode & _GROUP_WRITES)
    is_root = HAS_MODES and os.geteuid() == 0
    return Rights(
        file_mode=file_mode,
        object_mode=file_mode if shares or not HAS_MODES else mode & 0o444,
        # A sticky root keeps its bit to itself: below it, users replace each other's files.
        folder_mode=mode & 0o2777,
        uid=root.st_uid if is_root else _LEAVE,
        gid=root.st_gid if HAS_MODES and (is_root or shares) else _LEAVE,
    )


def _where_possible(call: Callable[..., None], *arguments: int) -> None:
    """Make a call that other users' files, and file systems without rights, refuse."""
    try:
        call(*arguments)
    except OSError as error:
        if error.errno not in _NOT_POSSIBLE:
            raise
