"""A store that is read below another one: an alternate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.errors import CorruptRefError
from castore.objects.loose import LooseObjects
from castore.refs import reading
from castore.refs.reading import Listed, NoObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.ref import RefName
    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem


class Borrowed:
    """The objects and refs of a store that is never written from here.

    Args:
        fs: That store's file system.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.objects = LooseObjects(fs, durable=False)

    @property
    def label(self) -> str:
        """What people call it."""
        return self._fs.root

    def read_ref(self, name: RefName) -> ObjectId | NoObject:
        """Return what a ref names there; damage there reads as absence here."""
        try:
            return reading.read(self._fs, name)
        except CorruptRefError:
            return NoObject.ABSENT

    def namespaces(self) -> list[str]:
        """Return its namespaces of keyed refs."""
        return reading.namespaces(self._fs)

    def list_shard(self, namespace: str, shard: str) -> Iterator[Listed]:
        """Yield its sound refs of one shard."""
        for listed in reading.list_shard(self._fs, namespace, shard):
            if isinstance(listed, Listed):
                yield listed
