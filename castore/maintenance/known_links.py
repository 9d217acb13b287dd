"""What objects link to, remembered from one gc to the next.

An object never changes, so neither does what it links to: only objects that came since
the last gc have to be read. The file is a cache and no more. What does not hold
together, by a digest of the whole, counts as nothing known.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeGuard

import msgpack
from blake3 import blake3

from castore.errors import CastoreError, CorruptObjectError, MalformedError
from castore.format import layout
from castore.format.canonical import unpack_with_links
from castore.format.value import ID_BYTES, ObjectId
from castore.objects.loose import temp_path

if TYPE_CHECKING:
    from collections.abc import Collection

    from castore.fs.protocol import FileSystem
    from castore.store.store import Store

_BYTES_MAX = 2**30

Links = tuple[list[ObjectId], list[ObjectId]]
"""The ids that an object links to strongly, and weakly."""


class KnownLinks:
    """Tells what objects of one store link to, and reads those that it does not know.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = _load(store.fs)
        self._has_news = False

    def of(self, oid: ObjectId) -> Links:
        """Return what an object links to.

        Raises:
            ObjectNotFoundError: It is not known, and not there.
            CorruptObjectError: It is not known, and damaged.
        """
        known = self._known.get(bytes.fromhex(oid))
        if known is not None:
            return _ids(known[0]), _ids(known[1])
        content = self._store.content(oid)
        try:
            _, strong, weak = unpack_with_links(content)
        except MalformedError as error:
            raise CorruptObjectError(oid, layout.object_path(oid), str(error)) from None
        self._known[bytes.fromhex(oid)] = _joined(strong), _joined(weak)
        self._has_news = True
        return strong, weak

    def save(self, present: Collection[ObjectId]) -> None:
        """Remember what is known of these objects; a disk that is full loses only that."""
        if not self._has_news:
            return
        known = self._known
        found = {oid: known[oid] for oid in map(bytes.fromhex, present) if oid in known}
        body = msgpack.packb(found)
        fs, staged = self._store.fs, temp_path()
        try:
            fs.write_new(staged, blake3(body).digest() + body)
            fs.rename(staged, layout.GC_LINKS)
        except (OSError, CastoreError):
            with contextlib.suppress(OSError, CastoreError):
                fs.remove(staged)


def _load(fs: FileSystem) -> dict[bytes, tuple[bytes, bytes]]:
    try:
        data = fs.read(layout.GC_LINKS, limit_bytes_max=_BYTES_MAX)
    except (OSError, CastoreError):
        return {}
    digest, body = data[: blake3.digest_size], memoryview(data)[blake3.digest_size :]
    if blake3(body).digest() != digest:
        return {}
    try:
        found = msgpack.unpackb(body, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return {}  # another version's, or made by hand
    return found if _is_table(found) else {}


def _is_table(found: object) -> TypeGuard[dict[bytes, tuple[bytes, bytes]]]:
    return type(found) is dict and all(
        type(oid) is bytes
        and len(oid) == ID_BYTES
        and type(pair) is tuple
        and len(pair) == 2
        and type(pair[0]) is type(pair[1]) is bytes
        and not len(pair[0]) % ID_BYTES
        and not len(pair[1]) % ID_BYTES
        for oid, pair in found.items()
    )


def _joined(oids: list[ObjectId]) -> bytes:
    return bytes.fromhex("".join(oids))


def _ids(joined: bytes) -> list[ObjectId]:
    text = joined.hex()
    size = 2 * ID_BYTES
    return [ObjectId.trusted(text[at : at + size]) for at in range(0, len(text), size)]
