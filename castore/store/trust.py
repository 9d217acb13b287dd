"""Whose results a process is willing to take: the rule for the stores that it opens.

A store that any user may write holds anybody's results, and one that a stranger made
holds his. Neither is used, for reading or for writing, unless the user says so in
`CASTORE_TRUST`. What is trusted without being asked: stores of one's own, root's, and
those that a group shares which one is in (`castore init --shared=group`). root is
trusted with everybody's.
"""

from __future__ import annotations

import os
import shlex
import stat

from castore.errors import UnsafeStoreError
from castore.format import layout

TRUST = "CASTORE_TRUST"
_ALL = "*"
# Whoever may write one of these may change what the store answers.
_WRITTEN = ("", layout.OBJECTS, layout.REFS, layout.LOCAL)
_SHARED = stat.S_ISGID | stat.S_IWGRP


def check_trust(root: str) -> None:
    """Refuse a store that is a stranger's, or that every user may write.

    Systems without users and modes know neither.

    Raises:
        UnsafeStoreError: It is, and `CASTORE_TRUST` does not list it.
    """
    if os.name != "posix":
        return
    reason = _open_to_all(root) or _why_strange(os.stat(root))
    if reason and not _is_listed(root):
        here = shlex.quote(root)
        raise UnsafeStoreError(root, f"{reason}, or, to use it as it is, set {TRUST}={here}")


def is_shared(root: str) -> bool:
    """Tell whether a group shares the folder, as `castore init --shared=group` makes it."""
    return os.stat(root).st_mode & _SHARED == _SHARED


def _open_to_all(root: str) -> str:
    for folder in _WRITTEN:
        path = os.path.join(root, folder) if folder else root
        try:
            mode = os.stat(path, follow_symlinks=not folder).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode) and mode & stat.S_IWOTH:
            return (
                "every user of this machine may write here, so its results are anybody's; "
                f"run: chmod o-w {shlex.quote(path)} (or, where there are no modes, mount it so)"
            )
    return ""


def _why_strange(found: os.stat_result) -> str:
    me = os.geteuid()
    if me == 0 or found.st_uid in (me, 0):
        return ""
    mine = {os.getegid(), *os.getgroups()}
    if found.st_mode & _SHARED == _SHARED and found.st_gid in mine:
        return ""
    return (
        f"it belongs to another user ({found.st_uid}, you are {me}), and no group of yours "
        "shares it; ask him to share it (castore init --shared=group)"
    )


def _is_listed(root: str) -> bool:
    listed = [path for path in os.environ.get(TRUST, "").split(os.pathsep) if path]
    real = os.path.realpath(root)
    return any(
        path == _ALL or os.path.realpath(os.path.expanduser(path)) == real for path in listed
    )
