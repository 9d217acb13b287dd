"""Before a ref is made: find, freshen and make durable all that it will keep.

A gc that began before the ref exists does not see it. What it must spare is told by
time: everything that the ref reaches is touched while the writer's lease is held,
by name and last; what a gc took in between is written anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.errors import CorruptObjectError, MalformedError, ObjectNotFoundError
from castore.format import layout
from castore.format.canonical import unpack_with_links
from castore.objects.loose import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem
    from castore.objects.loose import LooseObjects


_HELD_BYTES_MAX = 32 * 2**20


def freshen_reachable(
    oids: Sequence[ObjectId],
    read: Callable[[ObjectId], bytes],
    keep: Callable[[ObjectId, bytes], None],
) -> None:
    """Freshen `oids`, all that they link to strongly, and what is there of weak targets.

    Args:
        oids: Where to start.
        read: Returns an object's content, of one that the writer's own batch holds too: it may
            link to objects that are old.
        keep: Makes a copy that is there fresh and durable.

    Raises:
        ObjectNotFoundError: An object that a strong link asks for is not there.
        CorruptObjectError: Only a damaged copy of one is.
    """
    seen: set[ObjectId] = set()
    weak_targets = _walk(list(oids), seen, read, keep)
    while weak_targets:
        target = weak_targets.pop()
        try:
            weak_targets += _walk([target], seen, read, keep)
        except (ObjectNotFoundError, CorruptObjectError):
            continue  # nobody has to have it


def _walk(
    start: list[ObjectId],
    seen: set[ObjectId],
    read: Callable[[ObjectId], bytes],
    keep: Callable[[ObjectId, bytes], None],
) -> list[ObjectId]:
    """Follow strong links, keep children before parents, and return the weak links met.

    A parent that a gc took while we looked is written anew only when all that it links to is
    there and fresh; were it first, a child that is gone would leave it without.
    """
    weak_targets: list[ObjectId] = []
    held: dict[ObjectId, bytes] = {}
    held_bytes = 0
    # An object, and whether its children are kept.
    waiting = [(oid, False) for oid in start]
    while waiting:
        oid, is_ready = waiting.pop()
        if is_ready:
            content = held.pop(oid, None)
            held_bytes -= len(content or b"")
            keep(oid, read(oid) if content is None else content)
        elif oid not in seen:
            content = read(oid)
            seen.add(oid)
            strong, weak = _links(oid, content)
            waiting.append((oid, True))
            waiting += [(child, False) for child in strong]
            weak_targets += weak
            # A long chain of large objects is read twice, and not held whole.
            if not strong or held_bytes + len(content) <= _HELD_BYTES_MAX:
                held[oid] = content
                held_bytes += len(content)
    return weak_targets


def _links(oid: ObjectId, content: bytes) -> tuple[list[ObjectId], list[ObjectId]]:
    try:
        _, strong, weak = unpack_with_links(content)
    except MalformedError as error:
        raise CorruptObjectError(oid, layout.object_path(oid), str(error)) from None
    return strong, weak


class Keeper:
    """Keeps single objects of a store fresh and durable.

    Args:
        fs: The store's file system.
        loose: The store's own objects.
        is_borrowed: Tells whether an alternate has an object, so that no copy is needed here.
        durable: Whether to sync as well.
    """

    def __init__(
        self,
        fs: FileSystem,
        loose: LooseObjects,
        is_borrowed: Callable[[ObjectId], bool],
        *,
        durable: bool,
    ) -> None:
        self._fs = fs
        self._loose = loose
        self._is_borrowed = is_borrowed
        self._durable = durable

    def keep(self, oid: ObjectId, content: bytes) -> None:
        """Make the object's copy durable, then fresh; write it anew where it is gone."""
        try:
            if self._durable:
                self._fs.sync_file(layout.object_path(oid))
                self._fs.sync_folder(folder_of(oid))
            fresh = self._loose.freshen(oid)
        except FileNotFoundError:
            fresh = False
        if not fresh and not self._is_borrowed(oid):
            self._loose.add(oid, content)
