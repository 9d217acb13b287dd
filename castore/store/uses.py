"""When refs were last used: an empty file for each, touched at most once a day.

It tells forget which results nobody asks for any more. The files are in `local/`: use
belongs to this copy of the store, and a ref's own file keeps the time of its last
change. A lookup must neither fail nor wait for this, so whatever goes wrong is
passed over, and a process looks at a file once a day.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from castore.errors import CastoreError
from castore.format import layout

if TYPE_CHECKING:
    from castore.format.ref import RefName
    from castore.fs.protocol import FileSystem

INTERVAL_S = 24 * 3600.0
"""How long, in seconds, one note of a use lasts."""

_INTERVAL_NS = int(INTERVAL_S * 10**9)
_REMEMBERED_MAX = 65_536


class Uses:
    """Notes that refs of one store are used.

    Args:
        fs: The store's file system.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._noted_s: dict[tuple[str, str], float] = {}

    def note(self, name: RefName) -> None:
        """Note that a ref is used now, unless that was done within the last day."""
        key, now_s = (name.namespace, name.key), time.monotonic()
        noted_s = self._noted_s.get(key)
        if noted_s is not None and now_s - noted_s < INTERVAL_S:
            return
        if len(self._noted_s) >= _REMEMBERED_MAX:
            self._noted_s.clear()
        self._noted_s[key] = now_s
        with contextlib.suppress(OSError, CastoreError):
            self._note(layout.use_path(*key))

    def _note(self, path: str) -> None:
        try:
            # A clock that is far from the file server's makes a touch more, and none less.
            if not 0 <= time.time_ns() - self._fs.stat(path).mtime_ns < _INTERVAL_NS:
                self._fs.touch(path)
        except FileNotFoundError:
            self._make(path)

    def _make(self, path: str) -> None:
        try:
            self._fs.write_new(path, b"")
        except FileNotFoundError:
            shard = path.rpartition("/")[0]
            for folder in (layout.USES, shard.rpartition("/")[0], shard):
                self._fs.make_folder(folder)
            self._fs.write_new(path, b"")
