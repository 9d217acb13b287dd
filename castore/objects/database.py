"""All objects of a store, over all its sources.

This is the one place where content is checked against its id, whatever source it
came from. The first good copy counts: a damaged one in the store itself does not
hide a good one in an alternate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blake3 import blake3

from castore.errors import CorruptObjectError, ObjectNotFoundError
from castore.format import layout
from castore.objects.loose import read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem
    from castore.objects.source import Source


class ObjectDatabase:
    """Reads objects from a store's own source, then from others.

    Args:
        fs: The store's file system, for objects that a gc holds in the trash.
        sources: The store's own source first, then those of its alternates.
    """

    def __init__(self, fs: FileSystem, sources: tuple[Source, ...]) -> None:
        self._fs = fs
        self._sources = sources
        self._home = sources[0]

    def content(self, oid: ObjectId) -> bytes:
        """Return the content of an object; its id has been checked.

        Raises:
            ObjectNotFoundError: No source has it.
            CorruptObjectError: Only damaged copies were found.
        """
        try:
            found = self._home.find(oid)
        except CorruptObjectError:
            return self._content_elsewhere(oid)
        if found is not None and blake3(found).hexdigest() == oid:
            return found
        return self._content_elsewhere(oid)

    def has(self, oid: ObjectId) -> bool:
        """Tell whether any source keeps something under this id."""
        return any(source.has(oid) for source in self._sources) or (
            self._in_trash(oid) is not None or self._home.has(oid)
        )

    def is_good(self, oid: ObjectId) -> bool:
        """Tell whether the object can be read."""
        try:
            self.content(oid)
        except (ObjectNotFoundError, CorruptObjectError):
            return False
        return True

    def ids(self, prefix: str = "") -> Iterator[ObjectId]:
        """Yield every id that begins with `prefix` once, in order, a shard at a time."""
        for shard in layout.SHARDS:
            if not (shard.startswith(prefix) or prefix.startswith(shard)):
                continue
            found: set[ObjectId] = set()
            for source in self._sources:
                found.update(source.ids_in_shard(shard))
            yield from sorted(oid for oid in found if oid.startswith(prefix))

    def _content_elsewhere(self, oid: ObjectId) -> bytes:
        damage: CorruptObjectError | None = None
        for source in self._sources:
            try:
                found = source.find(oid)
            except CorruptObjectError as error:
                damage = damage or error
                continue
            if found is None:
                continue
            if blake3(found).hexdigest() == oid:
                return found
            where = f"{source.label}/{layout.object_path(oid)}"
            damage = damage or CorruptObjectError(oid, where, "its content has another id")
        return self._content_in_transit(oid, damage)

    def _content_in_transit(self, oid: ObjectId, damage: CorruptObjectError | None) -> bytes:
        """Look where gc puts an object while it decides, then at home again: it may be back."""
        found = self._in_trash(oid)
        if found is None and damage is None:
            found = self._home.find(oid)
        if found is not None and blake3(found).hexdigest() == oid:
            return found
        if damage is not None:
            raise damage
        raise ObjectNotFoundError(oid, tuple(source.label for source in self._sources))

    def _in_trash(self, oid: ObjectId) -> bytes | None:
        try:
            return read_frame(self._fs, layout.trash_path(oid), oid)
        except CorruptObjectError:
            return None


def has_good_copy(source: Source, oid: ObjectId) -> bool:
    """Tell whether a source has an object that can be read, and of this id."""
    try:
        content = source.find(oid)
    except (CorruptObjectError, OSError):
        return False
    return content is not None and blake3(content).hexdigest() == oid
