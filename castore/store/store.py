"""The store: objects and refs behind one small interface.

Everything here is wiring: ids and names are checked at this edge, a writer holds a
lease while it works, and a thread's batch holds back what it is given.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from castore.errors import (
    CorruptObjectError,
    CorruptRefError,
    MalformedError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
)
from castore.format import layout, ref
from castore.format.canonical import encode, object_id, unpack
from castore.format.ref import Ref, RefName
from castore.format.value import ObjectId, Value
from castore.objects.database import ObjectDatabase, has_good_copy
from castore.objects.loose import LooseObjects
from castore.refs import log
from castore.refs.database import RefDatabase
from castore.refs.transaction import (
    OnConflict,
    PreviousValue,
    RefWriter,
    Update,
    wanted,
)
from castore.store.batch import Batch, Batches, BatchScope
from castore.store.closure import split_links
from castore.store.freshening import Keeper, freshen_reachable
from castore.store.lease import lease
from castore.store.naming import named
from castore.store.uses import Uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from castore.format.reflog import LogEntry
    from castore.fs.protocol import FileSystem

_log = logging.getLogger("castore")

TOPOLOGY = "topology"
"""The namespace, and the kernel text, of the refs that say which hardware a store knows."""


class Store:
    """A content-addressed store; `castore.open` makes one.

    It may be used by several threads, and after a fork. Nothing stays open between
    calls, so closing it is a courtesy.

    Args:
        fs: The file system, rooted at the store.
        read_only: Why nothing may be written; empty when it may.
        durable: Whether writes return only when they survive power loss.
        alternates: Stores that are read below this one, first to be asked first.
        clock_ns: The time for log entries, in nanoseconds since the epoch.

    Attributes:
        fs: The file system, for work over the whole store.
        loose: The store's own loose objects, for the same.
        uses: Notes which refs are used; None in a store that may not be written.
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        read_only: str = "",
        durable: bool = True,
        alternates: tuple[FileSystem, ...] = (),
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.fs = fs
        self._read_only = read_only
        self._durable = durable
        self._alternates = tuple(LooseObjects(other, durable=False) for other in alternates)
        self.loose = LooseObjects(fs, durable=durable)
        self._objects = ObjectDatabase(fs, (self.loose, *self._alternates))
        self._refs = RefDatabase(fs, alternates, self._warn_once)
        self._ref_writer = RefWriter(
            fs,
            durable=durable,
            clock_ns=clock_ns,
            is_sound=self._objects.is_good,
            below=self._refs.target_below,
        )
        self._keeper = Keeper(fs, self.loose, self._is_borrowed, durable=durable)
        self.uses = None if read_only else Uses(fs)
        self._batches = Batches()
        self._warned: set[str] = set()

    @property
    def root(self) -> Path:
        """The folder that the store is in."""
        return Path(self.fs.root)

    @property
    def read_only(self) -> str:
        """Why nothing may be written; empty when it may."""
        return self._read_only

    @property
    def alternates(self) -> tuple[str, ...]:
        """The stores that are read below this one, as shown to people."""
        return tuple(source.label for source in self._alternates)

    def close(self) -> None:
        """Say that the store is no longer used."""

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    # Objects.

    def put(self, value: Value) -> ObjectId:
        """Store a value, and return its id.

        Raises:
            MalformedError: The value cannot be stored; names the path of the field.
            ReadOnlyStoreError: The store is open for reading only.
        """
        self._check_writable()
        content = encode(value)
        oid = object_id(content)
        self._add(oid, content)
        return oid

    def get(self, id: str) -> Value:  # noqa: A002 - the public name
        """Return the value of an object; its content has been checked against the id.

        Raises:
            ObjectNotFoundError: The store does not have it.
            CorruptObjectError: The store has nothing but damaged copies of it.
        """
        return self._value(ObjectId(id))

    def has(self, id: str) -> bool:  # noqa: A002 - the public name
        """Tell whether the store, or one that it reads below itself, has an object."""
        oid = ObjectId(id)
        batch = self._batch()
        return (batch is not None and batch.objects.has(oid)) or self._objects.has(oid)

    def ids(self, prefix: str = "") -> Iterator[ObjectId]:
        """Yield the ids of all objects that begin with `prefix`, of alternates too, in order."""
        return self._objects.ids(prefix)

    def batch(self) -> BatchScope[Self]:
        """Hold back this thread's (or asyncio task's) writes, and make them durable together.

        At the end of the body all objects, then all refs, become visible and durable. On an
        exception nothing does. Inside, this thread can read what it put. A batch within a batch is
        part of the outer one.

        Raises:
            RefConflictError: At the end: another writer was quicker with one of the refs.
        """
        self._check_writable()
        make = partial(Batch, self.fs, self.loose, self._ref_writer, durable=self._durable)
        return BatchScope(self, self._batches, make, partial(lease, self.fs))

    @property
    def in_batch(self) -> bool:
        """Whether this thread and task are in a batch of this store."""
        return self._batch() is not None

    def freshen(self, id: str) -> None:  # noqa: A002 - the public name
        """Make an object and all that it links to count as written now, and durable.

        Raises:
            ObjectNotFoundError: The store lacks the object, or something that it links to.
        """
        self._check_writable()
        with self.at_work():
            self._freshen([ObjectId(id)], [])

    # Refs.

    def set_ref(
        self,
        namespace: str,
        topology: str | dict[str, Value] | None = None,
        kernel: str | None = None,
        id: str | None = None,  # noqa: A002 - the public name
        *,
        key: str | None = None,
        on_conflict: OnConflict = "error",
        expected: str | PreviousValue = PreviousValue.ANY,
        reason: str = "",
    ) -> Ref:
        """Make a ref name an object that the store has.

        Args:
            namespace: Where the ref lives, such as `tuning`.
            topology: The id of a topology, or a topology manifest, which is put.
            kernel: The kernel text.
            id: The object.
            key: 64 hex digits in place of topology and kernel, in the namespaces `by-key-*`.
            on_conflict: What to do when the ref names another sound object.
            expected: What the ref must name for the update to go ahead: an id, or a
                `PreviousValue`.
            reason: Why, for the log.

        Returns:
            The ref as it is now: with `keep`, it may name what it named before.

        Raises:
            ObjectNotFoundError: The store lacks the object, or something that it links to.
            RefConflictError: The ref names another object; nothing was changed.
        """
        self._check_writable()
        if id is None:
            raise MalformedError("id", "a ref needs an object; delete_ref removes one", "REF-3")
        oid = ObjectId(id)
        name, manifest = named(namespace, topology, kernel, key)
        update = wanted(name, oid, on_conflict, expected, reason)
        with self.at_work():
            if manifest is not None:
                self._add(*manifest)
            return self._apply(update, reachable=[oid])

    def record(
        self,
        namespace: str,
        topology: str | dict[str, Value] | None = None,
        kernel: str | None = None,
        value: Value = None,
        *,
        key: str | None = None,
        on_conflict: OnConflict = "error",
        expected: str | PreviousValue = PreviousValue.ANY,
        reason: str = "",
    ) -> ObjectId:
        """Put a value and make a ref name it, in one step that no gc comes between.

        Takes what `set_ref` takes, with the value in place of the id.

        Returns:
            The id that the ref names now: with `keep`, it may be what it named before.
        """
        self._check_writable()
        content = encode(value)
        oid = object_id(content)
        name, manifest = named(namespace, topology, kernel, key)
        update = wanted(name, oid, on_conflict, expected, reason)
        strong, weak = split_links(value)
        with self.at_work():
            if manifest is not None:
                self._add(*manifest)
            # What is missing is found before anything is put.
            self._freshen(strong, weak)
            self._add(oid, content)
            return self._apply(update, reachable=[]).object

    def get_ref(
        self,
        namespace: str,
        topology: str | dict[str, Value] | None = None,
        kernel: str | None = None,
        *,
        key: str | None = None,
    ) -> Ref | None:
        """Return a ref, or None; a damaged one is None too, with one warning."""
        return self._resolved(named(namespace, topology, kernel, key).name)

    def delete_ref(
        self,
        namespace: str,
        topology: str | dict[str, Value] | None = None,
        kernel: str | None = None,
        *,
        key: str | None = None,
        expected: str | PreviousValue = PreviousValue.ANY,
        reason: str = "",
        reveals: bool = False,
    ) -> bool:
        """Remove a ref, and tell whether there was one; its log keeps what it named.

        Where an alternate has the same ref, a tombstone hides that, unless `reveals` is set.

        Raises:
            RefConflictError: The ref does not name what was expected.
        """
        self._check_writable()
        name = named(namespace, topology, kernel, key).name
        return self._delete(name, expected, reason, reveals=reveals)

    def refs(self, namespace: str | None = None) -> Iterator[Ref]:
        """Yield all refs with a key, of alternates too, by namespace and key.

        A damaged one is left out, with one warning.
        """
        if namespace is not None:
            return self._refs.refs([layout.check_namespace(namespace)])
        return self._refs.refs(self._refs.namespaces())

    def ref_log(
        self,
        namespace: str,
        topology: str | dict[str, Value] | None = None,
        kernel: str | None = None,
        *,
        key: str | None = None,
    ) -> list[LogEntry]:
        """Return the changes of a ref, newest first."""
        return log.entries(self.fs, named(namespace, topology, kernel, key).name)

    def lookup(
        self,
        namespace: str,
        topology: str | dict[str, Value] | None = None,
        kernel: str | None = None,
        *,
        key: str | None = None,
    ) -> Value | None:
        """Return the value that a ref names, or None when there is none.

        Damage, of the ref or of the object, is a miss with one warning.
        """
        name = named(namespace, topology, kernel, key).name
        oid = self._target(name)
        if oid is None:
            return None
        if self.uses is not None:
            self.uses.note(name)
        try:
            return self._value(oid)
        except ObjectNotFoundError:
            return None  # a copy that is still arriving has refs before objects, for a moment
        except CorruptObjectError as error:
            self._warn_once(error)
            return None

    # Named refs.

    def set_name(
        self,
        name: str,
        id: str,  # noqa: A002 - the public name
        *,
        on_conflict: OnConflict = "error",
        expected: str | PreviousValue = PreviousValue.ANY,
        reason: str = "",
    ) -> Ref:
        """Make a named ref name an object; otherwise as `set_ref`."""
        self._check_writable()
        oid = ObjectId(id)
        update = wanted(ref.for_name(name), oid, on_conflict, expected, reason)
        with self.at_work():
            return self._apply(update, reachable=[oid])

    def get_name(self, name: str) -> Ref | None:
        """Return a named ref, or None."""
        return self._resolved(ref.for_name(name))

    def delete_name(
        self, name: str, *, expected: str | PreviousValue = PreviousValue.ANY, reason: str = ""
    ) -> bool:
        """Remove a named ref, and tell whether there was one."""
        self._check_writable()
        return self._delete(ref.for_name(name), expected, reason)

    def names(self) -> Iterator[Ref]:
        """Yield all named refs, by name."""
        return self._refs.refs([layout.NAMES])

    def name_log(self, name: str) -> list[LogEntry]:
        """Return the changes of a named ref, newest first."""
        return log.entries(self.fs, ref.for_name(name))

    # What the above is made of.

    def _batch(self) -> Batch | None:
        return self._batches.current()

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnlyStoreError(self.fs.root, self._read_only)

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """Hold a lease, which this thread's batch does already."""
        return lease(self.fs) if self._batch() is None else contextlib.nullcontext()

    def _add(self, oid: ObjectId, content: bytes) -> None:
        batch = self._batch()
        (self.loose if batch is None else batch.objects).add(oid, content)

    def content(self, oid: ObjectId) -> bytes:
        """Return an object's content, checked against the id; raises as `get` does."""
        staged = None if (batch := self._batch()) is None else batch.objects.find(oid)
        return self._objects.content(oid) if staged is None else staged

    def _value(self, oid: ObjectId) -> Value:
        try:
            return unpack(self.content(oid))
        except MalformedError as error:
            raise CorruptObjectError(oid, layout.object_path(oid), str(error)) from None

    def _apply(self, update: Update, *, reachable: Sequence[ObjectId]) -> Ref:
        """Freshen what the ref will keep, then change it; with it, its topology's own ref."""
        name = update.name
        topology_update = self._topology_update(name)
        kept = [*reachable, *(u.new for u in topology_update if u.new is not None)]
        self._freshen(kept, [])
        updates = [*topology_update, update]
        batch = self._batch()
        if batch is None:
            result = self._ref_writer.apply(updates)[-1]
        else:
            result = [batch.update_ref(each) for each in updates][-1]
        if result is not None and result != update.new:
            # It keeps what it named before, and that is now promised, too.
            with contextlib.suppress(ObjectNotFoundError, CorruptObjectError):
                self._freshen([result], [])
        return Ref(name.namespace, name.topology, name.kernel, result or update.new, name.key)  # type: ignore[arg-type]  # an update that is no deletion names an object

    def _topology_update(self, name: RefName) -> list[Update]:
        """Return the update that makes a store say which hardware it knows (REF-7)."""
        if name.topology is None or name.namespace == TOPOLOGY:
            return []
        known = ref.for_topology(TOPOLOGY, name.topology, TOPOLOGY)
        if self._target(known) is not None or not self._is_good(name.topology):
            return []
        return [Update(known, name.topology, "keep", reason="first ref for this topology")]

    def _freshen(self, strong: Sequence[ObjectId], weak: Sequence[ObjectId]) -> None:
        if strong or weak:
            freshen_reachable(strong, self.content, self._keep)
        for oid in weak:
            with contextlib.suppress(ObjectNotFoundError, CorruptObjectError):
                freshen_reachable([oid], self.content, self._keep)

    def _is_good(self, oid: ObjectId) -> bool:
        batch = self._batch()
        return (batch is not None and batch.objects.has(oid)) or self._objects.is_good(oid)

    def _keep(self, oid: ObjectId, content: bytes) -> None:
        batch = self._batch()
        if batch is None:
            self._keeper.keep(oid, content)
        elif not batch.objects.holds(oid) and (self.loose.has(oid) or not self._is_borrowed(oid)):
            batch.objects.add(oid, content)  # synced once, at the batch's end

    def _delete(
        self, name: RefName, expected: str | PreviousValue, reason: str, *, reveals: bool = False
    ) -> bool:
        existed = self._target(name) is not None
        update = replace(wanted(name, None, "error", expected, reason), reveals=reveals)
        with self.at_work():
            batch = self._batch()
            if batch is None:
                self._ref_writer.apply([update])
            else:
                batch.update_ref(update)
        return existed

    def _resolved(self, name: RefName) -> Ref | None:
        oid = self._target(name)
        if oid is None:
            return None
        return Ref(name.namespace, name.topology, name.kernel, oid, name.key)

    def _target(self, name: RefName) -> ObjectId | None:
        """Return what a ref names: here, or in the first alternate that has it."""
        batch = self._batch()
        if batch is not None and (pending := batch.pending(name)) is not None:
            return pending.new
        return self._refs.target(name)

    def _is_borrowed(self, oid: ObjectId) -> bool:
        return any(has_good_copy(source, oid) for source in self._alternates)

    def _warn_once(self, error: CorruptObjectError | CorruptRefError) -> None:
        message = str(error)
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s; treated as a miss", message)
