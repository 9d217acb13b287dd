"""Trim the ref logs, under the locks of their writers.

A log is replaced by a shorter one, atomically, while no writer of its shard can
append: what a crash leaves is the old log or the new one. Where locks do nothing a
writer might append to the old one meanwhile, and its entry would be gone; there no
log is trimmed. Lines that are damaged stay, since gc keeps what can be read in them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import CastoreError, LockTimeoutError, MalformedError
from castore.format import layout, reflog
from castore.maintenance.gc import LOG_EXPIRY_S
from castore.objects.loose import temp_path
from castore.refs import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from castore.format.reflog import LogEntry
    from castore.store.store import Store

_LOCK_WAIT_S = 1.0
NO_LOCKS = "file locks do nothing here: the ref logs are not trimmed"
"""Why no log is shortened on some file systems."""

_NS = 10**9


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log.

    Attributes:
        data: Its bytes, without the line end.
        entry: What it says; None where it is damaged.
    """

    data: bytes
    entry: LogEntry | None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trimming did.

    Attributes:
        entries: How many entries were dropped.
        notes: Why logs were left as they are, where something stood in the way.
    """

    entries: int
    notes: tuple[str, ...]


def trim(store: Store, *, expiry_s: float = LOG_EXPIRY_S) -> Trimmed:
    """Drop the log entries that are older than `expiry_s` seconds.

    The newest entry of a ref stays while it tells what the ref names: a repair reads it. A log
    that cannot be trimmed is left for the next time, as on a disk that is full.
    """
    since_ns = store.fs.clock_ns(layout.CLOCK) - int(expiry_s * _NS)

    def keep(lines: Sequence[Line]) -> list[Line]:
        return _unexpired(lines, since_ns)

    dropped = 0
    notes: list[str] = []
    for namespace, path in list(log.log_files(store.fs)):
        try:
            lines = read(store, namespace, path)
            if len(keep(lines)) == len(lines):
                continue
            if not do_locks_work(store):
                return Trimmed(dropped, (*notes, NO_LOCKS))
            dropped += rewrite(store, namespace, path, keep)
        except (OSError, CastoreError) as error:
            notes.append(f"{path} was not trimmed: {error}")
    return Trimmed(dropped, tuple(notes))


def rewrite(
    store: Store, namespace: str, path: str, choose: Callable[[Sequence[Line]], Sequence[Line]]
) -> int:
    """Replace a log by the lines that `choose` returns, and return how many fewer there are.

    Raises:
        LockTimeoutError: A writer held the shard for too long.
    """
    shard = path.rpartition("/")[2]
    with store.fs.lock(layout.ref_lock_path(namespace, shard), wait_s=_LOCK_WAIT_S):
        lines = read(store, namespace, path)
        chosen = choose(lines)
        if list(chosen) == lines:
            return 0
        data = b"".join(line.data + b"\n" for line in chosen)
        staged = temp_path()
        store.fs.write_new(staged, data, durable=True)
        try:
            store.fs.rename(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):
                store.fs.remove(staged)
            raise
        store.fs.sync_folder(path.rpartition("/")[0])
    return len(lines) - len(chosen)


def do_locks_work(store: Store) -> bool:
    """Tell whether locks exclude each other on the store's file system."""
    try:
        return store.fs.do_locks_work(layout.PROBE)
    except LockTimeoutError:
        return True  # somebody else is finding out, and his lock has just kept this one out


def read(store: Store, namespace: str, path: str) -> list[Line]:
    """Return the lines of a log, oldest first."""
    try:
        data = store.fs.read(path, limit_bytes_max=reflog.LOG_BYTES_MAX)
    except FileNotFoundError:
        return []
    return [_line(namespace, each) for each in reflog.lines(data)]


def _line(namespace: str, data: bytes) -> Line:
    try:
        return Line(data, reflog.decode_entry(namespace, data))
    except MalformedError:
        return Line(data, None)


def _unexpired(lines: Sequence[Line], since_ns: int) -> list[Line]:
    newest = {line.entry.key: line for line in lines if line.entry is not None}
    return [
        line
        for line in lines
        if line.entry is None
        or line.entry.time_ns >= since_ns
        or (line.entry.new is not None and newest[line.entry.key] is line)
    ]
