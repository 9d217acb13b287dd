"""Count what is in a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.format import layout
from castore.maintenance.pins import pins
from castore.refs import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.store.store import Store


@dataclass(frozen=True, slots=True)
class Stats:
    """How much is in a store, without what its alternates hold.

    Attributes:
        objects: Loose objects.
        object_bytes: Their files' size.
        refs: The number of refs in each namespace, of alternates too.
        names: Named refs.
        log_bytes: The size of the ref logs.
        pins: Pinned objects.
        temp_files: Files of writes at work, or of stopped ones.
        trash: Objects that a stopped gc left in the trash.
        quarantine: Damaged files that were moved out of the way.
        alternates: The stores read below this one.
    """

    objects: int
    object_bytes: int
    refs: dict[str, int]
    names: int
    log_bytes: int
    pins: int
    temp_files: int
    trash: int
    quarantine: int
    alternates: tuple[str, ...]


def collect(store: Store, *, progress: Callable[[int, int | None], None] | None = None) -> Stats:
    """Return the numbers; reads no object."""
    objects = object_bytes = 0
    for done, shard in enumerate(layout.SHARDS, start=1):
        for oid in store.loose.ids_in_shard(shard):
            objects += 1
            object_bytes += _size_bytes(store, layout.object_path(oid))
        if progress is not None:
            progress(done, len(layout.SHARDS))
    refs: dict[str, int] = {}
    for ref in store.refs():
        refs[ref.namespace] = refs.get(ref.namespace, 0) + 1
    return Stats(
        objects=objects,
        object_bytes=object_bytes,
        refs=refs,
        names=sum(1 for _ in store.names()),
        log_bytes=sum(_size_bytes(store, path) for _, path in log.log_files(store.fs)),
        pins=sum(1 for _ in pins(store)),
        temp_files=_count(store, layout.TMP),
        trash=_count(store, layout.TRASH),
        quarantine=_count(store, layout.QUARANTINE),
        alternates=store.alternates,
    )


def _size_bytes(store: Store, path: str) -> int:
    try:
        return store.fs.stat(path).size_bytes
    except FileNotFoundError:
        return 0


def _count(store: Store, folder: str) -> int:
    try:
        return len(store.fs.list_folder(folder))
    except FileNotFoundError:
        return 0
