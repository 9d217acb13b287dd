"""Damaged and dangling refs: moved out of the way, or restored from their logs.

A ref's log is written before the ref, so it tells of every object that the ref ever
named. The newest of these that is whole is what the ref names after a repair. A
damaged file that no log explains is moved; what it may have named is pinned first,
since until then gc kept it for the file's sake.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import (
    CorruptObjectError,
    CorruptRefError,
    FileTooLargeError,
    MalformedError,
    NotRegularFileError,
    ObjectNotFoundError,
    RefConflictError,
)
from castore.format import layout
from castore.format.ref import REF_BYTES_MAX, decode_ref
from castore.format.reflog import LogEntry
from castore.format.value import ObjectId
from castore.maintenance.pins import pin
from castore.refs import log, reading
from castore.refs.transaction import LOCK_WAIT_S, PreviousValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from castore.format.ref import RefName
    from castore.store.store import Store

_ids_in = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])").findall
_moved_ref = re.compile("ref-([a-z0-9-]+)@([a-z0-9._-]+)-[0-9a-f]{8}").fullmatch
_SALVAGED_BYTES_MAX = 2**20


@dataclass(frozen=True, slots=True)
class DamagedRef:
    """A ref whose file is damaged, or lies under a name that is not its own.

    Attributes:
        path: Its file.
        namespace: The namespace that the file lies in.
        key: The key under which it lies.
    """

    path: str
    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class Restoration:
    """A ref that its log can bring back.

    Attributes:
        name: The ref.
        target: The newest object in its log that is whole.
        dangling: What it names now, which is not there; None where its file is damaged or was
            moved to quarantine.
    """

    name: RefName
    target: ObjectId
    dangling: ObjectId | None


def damaged_refs(store: Store) -> Iterator[DamagedRef]:
    """Yield the damaged refs whose files lie where castore keeps refs."""
    for listed in _listed(store):
        if isinstance(listed, CorruptRefError):
            found = _place(listed.path)
            if found is not None:
                yield found


def moved_refs(store: Store) -> Iterator[DamagedRef]:
    """Yield the refs that are gone since a repair moved their damaged files."""
    try:
        names = sorted(entry.name for entry in store.fs.list_folder(layout.QUARANTINE))
    except FileNotFoundError:
        return
    seen = set()
    for match in filter(None, map(_moved_ref, names)):
        found = _place(layout.ref_path(match[1], match[2]))
        if found is not None and found not in seen and not _exists(store, found.path):
            seen.add(found)
            yield found


def named_refs(store: Store) -> Iterator[tuple[RefName, ObjectId]]:
    """Yield the refs whose files are sound, with what they name."""
    for listed in _listed(store):
        if not isinstance(listed, CorruptRefError) and isinstance(listed.target, ObjectId):
            yield listed.name, listed.target


def from_log(
    store: Store,
    where: DamagedRef | RefName,
    is_whole: Callable[[ObjectId], bool],
    *,
    dangling: ObjectId | None = None,
) -> Restoration | None:
    """Return how a ref's log restores it, or None where it tells of nothing that is whole."""
    for entry in _newest_first(store, where):
        for oid in (entry.new, entry.old):
            if oid is not None and oid != dangling and is_whole(oid):
                return Restoration(entry.name, oid, dangling)
    return None


def was_deleted(store: Store, where: DamagedRef) -> bool:
    """Tell whether the newest change of a ref was its deletion."""
    newest = next(_newest_first(store, where), None)
    return newest is not None and newest.new is None


def restore(store: Store, wanted: Restoration, *, reason: str) -> bool:
    """Make a ref name what its log tells; False where a writer has mended it meanwhile.

    A damaged file is moved first, under a name that says whose it is: were this stopped in
    between, a second run could not know otherwise that there was a ref.
    """
    name = wanted.name
    expected: str | PreviousValue = PreviousValue.MUST_NOT_EXIST
    if wanted.dangling is not None:
        expected = wanted.dangling
    else:
        move(store, DamagedRef(name.path, name.namespace, name.key), instead=wanted.target)
    try:
        if name.namespace == layout.NAMES:
            store.set_name(name.key, wanted.target, expected=expected, reason=reason)
        else:
            store.set_ref(
                name.namespace,
                name.topology,
                name.kernel,
                wanted.target,
                key=name.key if name.topology is None else None,
                expected=expected,
                reason=reason,
            )
    except (RefConflictError, ObjectNotFoundError, CorruptObjectError):
        return False
    return True


def move(store: Store, damaged: DamagedRef, *, instead: ObjectId | None = None) -> bool:
    """Move a damaged ref's file to quarantine; False where a writer has mended it meanwhile.

    Args:
        store: The store.
        damaged: The ref.
        instead: What the ref is about to name; everything else that it may have named is pinned.
    """
    lock = layout.ref_lock_path(damaged.namespace, damaged.key)
    with store.fs.lock(lock, wait_s=LOCK_WAIT_S):
        if not _is_damaged(store, damaged):
            return False
        for oid in _salvaged(store, damaged.path):
            if oid == instead:
                continue
            # Of a damaged object, an alternate's, nobody can tell what it keeps.
            with contextlib.suppress(ObjectNotFoundError, CorruptObjectError):
                pin(store, oid, reason=f"named by the damaged ref {damaged.path}")
        target = f"ref-{damaged.namespace}@{damaged.key}-{os.urandom(4).hex()}"
        store.fs.rename(damaged.path, f"{layout.QUARANTINE}/{target}")
        store.fs.sync_folder(layout.QUARANTINE)
        store.fs.sync_folder(damaged.path.rpartition("/")[0])
    return True


def _listed(store: Store) -> Iterator[reading.Listed | CorruptRefError]:
    for namespace in (layout.NAMES, *reading.namespaces(store.fs)):
        yield from reading.list_refs(store.fs, namespace)


def _newest_first(store: Store, where: DamagedRef | RefName) -> Iterator[LogEntry]:
    path = layout.log_path(where.namespace, where.key)
    try:
        lines = list(log.read_log(store.fs, where.namespace, path))
    except (NotRegularFileError, FileTooLargeError):
        return
    for entry in reversed(lines):
        if isinstance(entry, LogEntry) and entry.key == where.key:
            yield entry


def _exists(store: Store, path: str) -> bool:
    try:
        store.fs.stat(path)
    except FileNotFoundError:
        return False
    return True


def _place(path: str) -> DamagedRef | None:
    """Return where a damaged ref lies; None for a file that castore did not name."""
    _, namespace, *rest = path.split("/")
    if namespace == layout.NAMES and len(rest) == 1:
        with contextlib.suppress(MalformedError):
            return DamagedRef(path, namespace, layout.check_name(rest[0]))
    if namespace != layout.NAMES and len(rest) == 2:
        key = layout.oid_in_shard(*rest)
        return None if key is None else DamagedRef(path, namespace, key)
    return None


def _is_damaged(store: Store, damaged: DamagedRef) -> bool:
    try:
        data = store.fs.read(damaged.path, limit_bytes_max=REF_BYTES_MAX)
        decode_ref(damaged.namespace, damaged.key, data)
    except FileNotFoundError:
        return False
    except (MalformedError, NotRegularFileError, FileTooLargeError):
        return True
    return False


def _salvaged(store: Store, path: str) -> list[ObjectId]:
    try:
        data = store.fs.read(path, limit_bytes_max=_SALVAGED_BYTES_MAX)
    except (NotRegularFileError, FileTooLargeError):
        return []
    return [ObjectId(found.decode()) for found in _ids_in(data)]
