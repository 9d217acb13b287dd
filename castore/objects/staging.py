"""Many objects published together, for the price of a few syncs.

Stage, sync, publish, sync folders: each object is written to a temp file, and renamed
only when all of them are durable. Nothing is visible to others before `publish`;
`discard` leaves nothing behind. Objects wait in memory until there are some dozens:
to do one thing dozens of times is faster than to do dozens of things in turn.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from castore.errors import ObjectNotFoundError
from castore.format import frame, layout
from castore.format.canonical import object_id
from castore.objects.loose import folder_of, read_frame

if TYPE_CHECKING:
    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem, SyncScope
    from castore.objects.loose import LooseObjects

# A gc may hold one adopted object after the other.
_ATTEMPTS_MAX = 100
_WAITING_MAX = 64
_WAITING_BYTES_MAX = 2**20


class Staging:
    """Objects that wait to be published.

    Args:
        fs: The store's file system.
        loose: Where they go.
        scope: Makes them durable; None where that is not wanted.
    """

    def __init__(self, fs: FileSystem, loose: LooseObjects, scope: SyncScope | None) -> None:
        self._fs = fs
        self._loose = loose
        self._scope = scope
        self._waiting: dict[ObjectId, bytes] = {}
        self._waiting_bytes = 0
        self._staged: dict[ObjectId, str] = {}
        self._adopted: set[ObjectId] = set()

    def add(self, oid: ObjectId, content: bytes) -> None:
        """Stage an object, or adopt the good copy that the store has."""
        if self.holds(oid):
            return
        self._waiting[oid] = content
        self._waiting_bytes += len(content)
        if len(self._waiting) >= _WAITING_MAX or self._waiting_bytes >= _WAITING_BYTES_MAX:
            self._stage_waiting()

    def find(self, oid: ObjectId) -> bytes | None:
        """Return the content of an object that waits or is staged."""
        content = self._waiting.get(oid)
        path = self._staged.get(oid)
        return read_frame(self._fs, path, oid) if content is None and path is not None else content

    def has(self, oid: ObjectId) -> bool:
        """Tell whether the object waits or is staged."""
        return oid in self._waiting or oid in self._staged

    def holds(self, oid: ObjectId) -> bool:
        """Tell whether the object is here, or a copy that the store had is adopted."""
        return self.has(oid) or oid in self._adopted

    def _stage_waiting(self) -> None:
        adopted = {oid for oid, content in self._waiting.items() if self._adopts(oid, content)}
        self._adopted |= adopted
        new = [(oid, content) for oid, content in self._waiting.items() if oid not in adopted]
        frames = [frame.compress(content) for _, content in new]
        for (oid, _), compressed in zip(new, frames, strict=True):
            self._staged[oid] = self._loose.stage(compressed, durable=False)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _adopts(self, oid: ObjectId, content: bytes) -> bool:
        return self._loose.is_good(oid, content) and self._loose.freshen(oid)

    def publish(self) -> None:
        """Make everything visible, and durable where that is wanted."""
        self._stage_waiting()
        if self._scope is not None:
            self._sync(self._scope)
        touched = {folder_of(oid) for oid in (*self._staged, *self._adopted)}
        for oid in list(self._staged):
            self._publish(oid)
        if self._scope is not None:
            self._scope.sync_folders(sorted(touched))

    def _publish(self, oid: ObjectId) -> None:
        if not self._loose.publish(self._staged[oid], oid):
            # Another writer was quicker with the same object: see to it that his copy stays.
            content = self.find(oid)
            if content is None:
                raise ObjectNotFoundError(oid, (layout.TMP,))
            self._loose.add(oid, content)
            self._fs.remove(self._staged[oid])
        del self._staged[oid]

    def _sync(self, scope: SyncScope) -> None:
        for _ in range(_ATTEMPTS_MAX):
            try:
                scope.sync_files(self._paths())
            except FileNotFoundError:
                self._stage_what_gc_holds()
            else:
                return
        scope.sync_files(self._paths())

    def _paths(self) -> list[str]:
        return [*self._staged.values(), *(layout.object_path(oid) for oid in self._adopted)]

    def _stage_what_gc_holds(self) -> None:
        """Write adopted objects anew that a gc has moved, though it will put them back."""
        for oid in [oid for oid in self._adopted if not self._loose.has(oid)]:
            content = read_frame(self._fs, layout.trash_path(oid), oid)
            if content is not None and object_id(content) == oid:
                self._adopted.discard(oid)
                self._staged[oid] = self._loose.stage(frame.compress(content), durable=False)

    def discard(self) -> None:
        """Remove what was staged and not published."""
        for path in self._staged.values():
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(path)
        self._staged.clear()
        self._waiting.clear()
