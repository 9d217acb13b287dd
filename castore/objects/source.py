"""What every source of objects offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import ObjectId


class Source(Protocol):
    """One place that holds objects; it does not check ids, `ObjectDatabase` does."""

    @property
    def label(self) -> str:
        """What people call it."""

    def find(self, oid: ObjectId) -> bytes | None:
        """Return the content that is kept under this id, or None where there is none.

        Raises:
            CorruptObjectError: Something is kept there that no object can be read from.
        """

    def has(self, oid: ObjectId) -> bool:
        """Tell whether anything is kept under this id."""

    def ids_in_shard(self, shard: str) -> Iterator[ObjectId]:
        """Yield the ids that begin with the two digits `shard`, in no order."""
