"""What was made of the manifests that refs name, remembered while the refs stay.

A lookup reads two files and decodes one. A program that asks for the same key again
and again needs neither as long as the ref's file is the one that was read, and one
look at the file's status tells that. castore writes a ref as a new file and renames
it into place, so a replaced ref has another inode. An inode number comes back into
use only after the file that had it is gone, hence at the second replacement, and then
the times differ, unless both came within one tick of the file system's clock. So a
status counts only once it is older than such a tick: until then the ref is read each
time, and its id compared.

What this misses: a file that somebody edits in place and whose old time he restores,
and a computer whose clock is ahead of the file server's by more than a tick, where a
ref is replaced twice within that tick.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from castore.errors import (
    CorruptObjectError,
    CorruptRefError,
    NotRegularFileError,
    ObjectNotFoundError,
)
from castore.refs import reading
from castore.refs.reading import NoObject
from castore.store.uses import INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from castore.format.ref import RefName
    from castore.format.value import ObjectId, Value
    from castore.fs.protocol import Status
    from castore.store.store import Store

ENTRIES_MAX = 4096
"""How many keys are remembered unless the caller says otherwise; the oldest goes first."""

_TICK_NS = 50_000_000
# A time without a fraction may come from a file system that keeps seconds, or every other one.
_COARSE_TICK_NS = 2_100_000_000
_SECOND_NS = 1_000_000_000

_Made = TypeVar("_Made")


@dataclass(slots=True)
class _Entry(Generic[_Made]):
    name: RefName
    path: str
    oid: ObjectId
    made: _Made
    status: Status | None = None
    noted_until_s: float = 0.0


class RefMemo(Generic[_Made]):
    """Looks refs up in one store, and remembers what was made of what they name.

    It holds no lock and may be used by several threads and after a fork. What the
    calling thread's batch holds back is not seen before the batch has ended.

    Args:
        store: The store.
        make: Makes what is wanted of a manifest; None when that cannot be done, which is
            asked again at the next lookup. It is shared: whoever gets it must not change it.
        entries_max: How many keys to remember.
        clock_ns: The time, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        make: Callable[[Value], _Made | None],
        *,
        entries_max: int = ENTRIES_MAX,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._stat = store.fs.stat
        self._make = make
        self._entries_max = entries_max
        self._clock_ns = clock_ns
        self._entries: dict[Hashable, _Entry[_Made]] = {}

    def known(self, key: Hashable) -> _Made | None:
        """Return what is remembered under `key` if its ref is surely as it was, else None."""
        entry = self._entries.get(key)
        if entry is None or entry.status is None or time.monotonic() > entry.noted_until_s:
            return None
        try:
            return entry.made if self._stat(entry.path) == entry.status else None
        except (OSError, NotRegularFileError):
            return None

    def lookup(self, key: Hashable, name: RefName) -> _Made | None:
        """Return what is made of the manifest that a ref names, or None; remember it as `key`.

        Damage, of the ref or of the object, is a miss with one warning of the store.
        """
        entry = self._entries.get(key)
        # The status first: if the ref is replaced in between, it is the status that is too old.
        status = None if entry is None else self._settled_status(entry.path)
        oid = self._target(name)
        if oid is None:
            self._entries.pop(key, None)
            return None
        if entry is not None and entry.oid == oid:
            entry.status = status
            self._note_use(entry)
            return entry.made
        return self._read(key, name, oid)

    def _note_use(self, entry: _Entry[_Made]) -> None:
        """Note that the ref is used, and ask for the same once a day."""
        if self._store.uses is not None:
            self._store.uses.note(entry.name)
        entry.noted_until_s = time.monotonic() + INTERVAL_S

    def _read(self, key: Hashable, name: RefName, oid: ObjectId) -> _Made | None:
        try:
            made = self._make(self._store.get(oid))
        except ObjectNotFoundError:
            return None  # a copy that is still arriving has refs before objects, for a moment
        except CorruptObjectError:
            # The store warns, once; by now the ref may name another object, which is sound.
            value = self._store.lookup(name.namespace, name.topology, name.kernel)
            return None if value is None else self._make(value)
        if made is not None:
            entry = _Entry(name, name.path, oid, made)
            self._note_use(entry)
            self._remember(key, entry)
        return made

    def _target(self, name: RefName) -> ObjectId | None:
        try:
            found = reading.read(self._store.fs, name)
        except CorruptRefError:
            found = NoObject.ABSENT
        if not isinstance(found, NoObject):
            return found
        # The store warns of damage, and knows what lies below its own refs.
        ref = self._store.get_ref(name.namespace, name.topology, name.kernel)
        return None if ref is None else ref.object

    def _settled_status(self, path: str) -> Status | None:
        try:
            status = self._stat(path)
        except (OSError, NotRegularFileError):
            return None
        tick_ns = _TICK_NS if status.mtime_ns % _SECOND_NS else _COARSE_TICK_NS
        return status if self._clock_ns() - status.mtime_ns > tick_ns else None

    def _remember(self, key: Hashable, entry: _Entry[_Made]) -> None:
        self._entries[key] = entry
        while len(self._entries) > self._entries_max:
            # Another thread may be doing the same.
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                del self._entries[next(iter(self._entries))]
