"""Pins: objects that gc keeps although no ref names them.

A pin is a file in `local/pins` named by the id; it belongs to this copy of the store
and is not sent to others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import (
    FileTooLargeError,
    MalformedError,
    NotRegularFileError,
    ReadOnlyStoreError,
)
from castore.format import layout
from castore.format.value import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.store.store import Store

_REASON_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin.

    Attributes:
        oid: The object that is kept, with all that it reaches.
        reason: Why, in the words of whoever pinned it; may be empty.
    """

    oid: ObjectId
    reason: str


def pin(store: Store, oid: ObjectId, *, reason: str = "") -> None:
    """Keep an object, and all that it links to, from gc until it is unpinned.

    Raises:
        ObjectNotFoundError: The store lacks the object, or something that it links to.
    """
    if store.read_only:
        raise ReadOnlyStoreError(store.fs.root, store.read_only)
    path = layout.pin_path(ObjectId(oid))
    with store.at_work():
        store.freshen(oid)
        staged = f"{layout.TMP}/{os.urandom(12).hex()}"
        text = " ".join(reason.split()).encode("utf-8", "replace")[:_REASON_BYTES_MAX]
        store.fs.write_new(staged, text, durable=True)
        store.fs.rename(staged, path)
        store.fs.sync_folder(layout.PINS)


def unpin(store: Store, oid: ObjectId) -> bool:
    """Remove a pin, and tell whether there was one."""
    if store.read_only:
        raise ReadOnlyStoreError(store.fs.root, store.read_only)
    try:
        store.fs.remove(layout.pin_path(ObjectId(oid)))
    except FileNotFoundError:
        return False
    store.fs.sync_folder(layout.PINS)
    return True


def pins(store: Store) -> Iterator[Pin]:
    """Yield all pins, by id; names that no pin has are passed over.

    The name is what counts: whatever lies under it, somebody may have meant it.
    """
    try:
        entries = store.fs.list_folder(layout.PINS)
    except FileNotFoundError:
        return
    for name in sorted(entry.name for entry in entries):
        try:
            oid = ObjectId(name)
        except MalformedError:
            continue
        yield Pin(oid, _reason(store, oid))


def _reason(store: Store, oid: ObjectId) -> str:
    """Return what the pin's file says; the pin counts whatever that is."""
    try:
        data = store.fs.read(layout.pin_path(oid), limit_bytes_max=_REASON_BYTES_MAX)
    except (FileNotFoundError, NotRegularFileError, FileTooLargeError):
        return ""
    return data.decode("utf-8", "replace")
