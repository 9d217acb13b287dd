"""All refs of a store, over all that it reads: its own, then those of its alternates.

The first that has a ref answers for it, and a tombstone is an answer. Damage in the
store itself is a miss with one warning; damage in an alternate is that store's own
concern, and reads as absence. So does an alternate that cannot be read at all any
more, with one warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from castore.errors import CorruptRefError
from castore.format import layout
from castore.format.ref import Ref
from castore.refs import reading
from castore.refs.reading import Listed, NoObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from castore.format.ref import RefName
    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem

_log = logging.getLogger("castore")


class RefDatabase:
    """Reads refs from a store, then from others below it.

    Args:
        fs: The store's file system.
        below: Those of its alternates, first to be asked first.
        warn: Is told of a damaged ref of the store itself.
    """

    def __init__(
        self,
        fs: FileSystem,
        below: tuple[FileSystem, ...],
        warn: Callable[[CorruptRefError], None],
    ) -> None:
        self._fs = fs
        self._below = below
        self._warn = warn
        self._unusable: set[str] = set()

    def target(self, name: RefName) -> ObjectId | None:
        """Return what a ref names, here or below."""
        try:
            found = reading.read(self._fs, name)
        except CorruptRefError as error:
            self._warn(error)
            return None
        if found is NoObject.ABSENT:
            return self.target_below(name)
        return None if isinstance(found, NoObject) else found

    def target_below(self, name: RefName) -> ObjectId | None:
        """Return what a ref names in the first alternate that has it."""
        for fs in self._below:
            try:
                found = reading.read(fs, name)
            except CorruptRefError:
                continue
            except OSError as error:
                self._leave_out(fs, error)
                continue
            if found is not NoObject.ABSENT:
                return None if isinstance(found, NoObject) else found
        return None

    def namespaces(self) -> list[str]:
        """Return the namespaces of keyed refs, sorted."""
        found = set(reading.namespaces(self._fs))
        for fs in self._below:
            try:
                found.update(reading.namespaces(fs))
            except OSError as error:
                self._leave_out(fs, error)
        return sorted(found)

    def refs(self, namespaces: Sequence[str]) -> Iterator[Ref]:
        """Yield the refs of these namespaces (or `names`), by namespace and key."""
        for namespace in namespaces:
            for shard in ("",) if namespace == layout.NAMES else layout.SHARDS:
                yield from self._refs_in_shard(namespace, shard)

    def _refs_in_shard(self, namespace: str, shard: str) -> Iterator[Ref]:
        """Yield the refs of one shard; memory stays within that."""
        found: dict[str, Listed] = {}
        for fs in reversed(self._below):
            try:
                there = list(reading.list_shard(fs, namespace, shard))
            except OSError as error:
                self._leave_out(fs, error)
                continue
            found.update((each.name.key, each) for each in there if isinstance(each, Listed))
        for listed in reading.list_shard(self._fs, namespace, shard):
            if isinstance(listed, CorruptRefError):
                self._warn(listed)
            else:
                found[listed.name.key] = listed
        for _, (name, target) in sorted(found.items()):
            if not isinstance(target, NoObject):
                yield Ref(name.namespace, name.topology, name.kernel, target, name.key)

    def _leave_out(self, fs: FileSystem, error: OSError) -> None:
        if fs.root not in self._unusable:
            self._unusable.add(fs.root)
            _log.warning("alternate %s cannot be read: %s; its refs are left out", fs.root, error)
