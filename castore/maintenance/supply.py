"""Where a good copy of an object comes from: the store itself, an alternate, another store.

A copy counts only when its value, spelled canonically, has the id that was asked
for: what comes from outside is never believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.errors import CorruptObjectError, MalformedError, ObjectNotFoundError
from castore.format.canonical import encode, object_id, unpack
from castore.store.closure import split_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from castore.format.value import ObjectId
    from castore.store.store import Store


class Supply:
    """Finds good copies.

    Args:
        store: The store that needs them. What its alternates have, or a stopped gc has left in
            its trash, is asked for first.
        donors: Other stores, first to be asked first.
    """

    def __init__(self, store: Store, donors: Sequence[Store]) -> None:
        self._store = store
        labels = ["an alternate or the trash", *(donor.fs.root for donor in donors)]
        self._sources = tuple(zip(labels, (store, *donors), strict=True))

    def content(self, oid: ObjectId) -> tuple[bytes, str] | None:
        """Return the content of an object and which store gave it, in words, or None."""
        for label, source in self._sources:
            try:
                content = encode(source.get(oid))
            except (ObjectNotFoundError, CorruptObjectError, MalformedError):
                continue
            if object_id(content) == oid:
                return content, label
        return None

    def needed(
        self, wanted: Iterable[ObjectId], damaged: set[ObjectId]
    ) -> tuple[dict[ObjectId, str], set[ObjectId]]:
        """Return what has to be copied to make `wanted` whole, and what nobody has.

        What is copied comes with the store that gives it, and after all that it links to.

        Args:
            wanted: Objects that are missing or damaged.
            damaged: Those objects of the store whose own copies do not count.
        """
        copies: dict[ObjectId, str] = {}
        lost: set[ObjectId] = set()
        seen: set[ObjectId] = set()
        for root in wanted:
            waiting = [(root, "")]
            while waiting:
                oid, source = waiting.pop()
                if source:
                    copies[oid] = source
                    continue
                if oid in seen or (oid not in damaged and self._store.has(oid)):
                    continue
                seen.add(oid)
                found = self.content(oid)
                if found is None:
                    lost.add(oid)
                    continue
                content, source = found
                waiting.append((oid, source))
                waiting += [(target, "") for target in split_links(unpack(content))[0]]
        return copies, lost

    def is_whole(self, oid: ObjectId) -> bool:
        """Tell whether an object and all that it links to strongly can be had."""
        waiting, seen = [oid], set[str]()
        while waiting:
            target = waiting.pop()
            if target in seen:
                continue
            seen.add(target)
            found = self.content(target)
            if found is None:
                return False
            waiting += split_links(unpack(found[0]))[0]
        return True
