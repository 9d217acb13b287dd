"""Count what is in a store."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from castore.errors import NotRegularFileError
from castore.format import layout
from castore.maintenance.pins import pins
from castore.refs import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.store.store import Store

_T = TypeVar("_T")
_log = logging.getLogger("castore")


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
    """Return the numbers; reads no object. What cannot be listed counts as nothing, with a warning.

    Args:
        store: The store.
        progress: Called with the number of shards counted, and how many there are.
    """
    objects = object_bytes = 0
    for done, shard in enumerate(layout.SHARDS, start=1):
        sizes = _listed(partial(_sizes, store, shard))
        objects += len(sizes)
        object_bytes += sum(sizes)
        if progress is not None:
            progress(done, len(layout.SHARDS))
    logs = _listed(lambda: [_size_bytes(store, path) for _, path in log.log_files(store.fs)])
    return Stats(
        objects=objects,
        object_bytes=object_bytes,
        refs=dict(Counter(_listed(lambda: [ref.namespace for ref in store.refs()]))),
        names=len(_listed(lambda: list(store.names()))),
        log_bytes=sum(logs),
        pins=len(_listed(lambda: list(pins(store)))),
        temp_files=_count(store, layout.TMP),
        trash=_count(store, layout.TRASH),
        quarantine=_count(store, layout.QUARANTINE),
        alternates=store.alternates,
    )


def _listed(look: Callable[[], list[_T]]) -> list[_T]:
    try:
        return look()
    except FileNotFoundError:
        return []
    except NotRegularFileError as error:
        _log.warning("%s, nor counted; see: castore fsck", error)
        return []


def _sizes(store: Store, shard: str) -> list[int]:
    oids = store.loose.ids_in_shard(shard)
    return [_size_bytes(store, layout.object_path(oid)) for oid in oids]


def _size_bytes(store: Store, path: str) -> int:
    try:
        return store.fs.stat(path).size_bytes
    except FileNotFoundError:
        return 0


def _count(store: Store, folder: str) -> int:
    return len(_listed(lambda: store.fs.list_folder(folder)))
