"""Where reachability starts: refs of every kind, their logs, and pins.

A ref or a log line that is damaged may have named something that matters: every id
that can still be read in it is a root as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from castore.errors import (
    CorruptRefError,
    FileTooLargeError,
    MaintenanceRefusedError,
    MalformedError,
    NotRegularFileError,
)
from castore.format import layout, reflog
from castore.format.value import ObjectId
from castore.maintenance.pins import pins
from castore.refs import log, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.reflog import LogEntry
    from castore.store.store import Store

_SALVAGED_BYTES_MAX = 2**20
_ids_in = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])").findall


def roots(store: Store, *, log_since_ns: int) -> Iterator[ObjectId]:
    """Yield the roots, some more than once: refs, then logs, then pins.

    Args:
        store: The store.
        log_since_ns: The time of the oldest log entry that counts, in nanoseconds since the epoch.
    """
    yield from _from_refs(store)
    yield from _from_logs(store, log_since_ns)
    for pin in pins(store):
        yield pin.oid


def refuse_without_refs(store: Store, operation: str) -> None:
    """Refuse to go on when the refs seem to be on a mount that is missing.

    Raises:
        MaintenanceRefusedError: `refs/` is empty or missing, while there are objects.
    """
    try:
        has_refs = any(store.fs.list_folder(layout.REFS))
    except FileNotFoundError:
        has_refs = False
    if not has_refs and any(any(store.loose.ids_in_shard(shard)) for shard in layout.SHARDS):
        raise MaintenanceRefusedError(
            operation,
            "refs/ is empty while there are objects; a mount may be missing. "
            "If the store is meant to hold no refs, name an object that shall stay by one first",
        )


def _from_refs(store: Store) -> Iterator[ObjectId]:
    _refuse_closed_namespaces(store)
    for namespace in (layout.NAMES, *reading.namespaces(store.fs)):
        for listed in reading.list_refs(store.fs, namespace):
            if isinstance(listed, CorruptRefError):
                yield from _salvaged(store, listed.path)
                continue
            if isinstance(listed.target, ObjectId):
                yield listed.target
            if listed.name.topology is not None:
                yield listed.name.topology


def _from_logs(store: Store, since_ns: int) -> Iterator[ObjectId]:
    _refuse_hidden_logs(store)
    for namespace, path in log.log_files(store.fs):
        data = store.fs.read(path, limit_bytes_max=reflog.LOG_BYTES_MAX)
        for line in reflog.lines(data):
            yield from _from_line(namespace, line, since_ns)


def _from_line(namespace: str, line: bytes, since_ns: int) -> Iterator[ObjectId]:
    try:
        entry: LogEntry = reflog.decode_entry(namespace, line)
    except MalformedError:
        yield from (ObjectId(found.decode()) for found in _ids_in(line))
        return
    if entry.time_ns >= since_ns:
        yield from (oid for oid in (entry.old, entry.new, entry.topology) if oid is not None)


def _refuse_closed_namespaces(store: Store) -> None:
    """Refuse when something else than a folder stands for a namespace: its refs are not seen."""
    for entry in store.fs.list_folder(layout.REFS):
        is_ours = entry.name == layout.NAMES or layout.is_namespace_folder(entry.name)
        if is_ours and entry.kind != "folder":
            raise _unreadable(f"{layout.REFS}/{entry.name}", entry.kind)


def _refuse_hidden_logs(store: Store) -> None:
    """Refuse when something else than a folder, or a file, stands for logs: they are not seen."""
    for namespace in log.hidden(store.fs):
        raise MaintenanceRefusedError(
            "gc", f"the ref logs at {namespace} cannot be read, and may keep objects"
        )


def _salvaged(store: Store, path: str) -> Iterator[ObjectId]:
    """Yield the ids that can be read in a damaged ref's file.

    Raises:
        MaintenanceRefusedError: It cannot even be opened, so nobody knows what it names.
    """
    try:
        data = store.fs.read(path, limit_bytes_max=_SALVAGED_BYTES_MAX)
    except FileNotFoundError:
        return
    except (NotRegularFileError, FileTooLargeError) as error:
        if layout.is_ref_path(path):
            raise _unreadable(path, str(error)) from None
        return  # castore did not name it
    yield from (ObjectId(found.decode()) for found in _ids_in(data))


def _unreadable(path: str, found: str) -> MaintenanceRefusedError:
    return MaintenanceRefusedError(
        "gc",
        f"the refs at {path} cannot be read ({found}), and may keep objects; see: castore fsck",
    )
