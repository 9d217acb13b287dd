"""A batch: many puts and refs with the promise of one, for the price of a few syncs.

It belongs to the thread, and the asyncio task, that opened it. What it put can be
read inside it; nothing is visible to others before its end, and nothing ever on an
exception. Objects become durable and visible first, then the refs, whose conflicts
were checked at the call and are checked once more.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from castore.errors import RefConflictError
from castore.format.ref import NO_OBJECT
from castore.objects.staging import Staging
from castore.refs.transaction import PreviousValue, is_allowed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from castore.format.ref import RefName
    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem, SyncScope
    from castore.objects.loose import LooseObjects
    from castore.refs.transaction import RefWriter, Update


_Store = TypeVar("_Store")
_Owner: TypeAlias = tuple[int, int, Any]


class Batch:
    """What one batch holds back until its end.

    Args:
        fs: The store's file system.
        loose: The store's own objects.
        refs: Changes its refs.
        durable: Whether the end waits until everything survives power loss.
    """

    def __init__(
        self, fs: FileSystem, loose: LooseObjects, refs: RefWriter, *, durable: bool
    ) -> None:
        self._scope: SyncScope | None = fs.open_sync_scope() if durable else None
        self.objects = Staging(fs, loose, self._scope)
        self._refs = refs
        self._updates: dict[RefName, Update] = {}
        # Refs that keep what they name: made durable, and decided once more, at the end.
        self._kept: dict[RefName, Update] = {}
        self._process = os.getpid()

    def _is_copy(self) -> bool:
        """Tell whether this is what a forked child has of its parent's batch."""
        return self._process != os.getpid()

    def update_ref(self, update: Update) -> ObjectId | None:
        """Hold a ref update back, and return what the ref will name.

        Raises:
            RefConflictError: It would conflict with the ref as it stands, or with what this batch
                sets it to.
        """
        earlier = self._updates.get(update.name)
        if earlier is not None:
            if not is_allowed(update, earlier.new):
                if update.on_conflict == "keep" and earlier.new is not None:
                    return earlier.new
                raise RefConflictError(
                    str(update.name), earlier.new or NO_OBJECT, update.new or NO_OBJECT
                )
            update = self._merged(earlier, update)
        result = self._refs.check(update)
        if result == update.new:
            self._updates[update.name] = update
        else:
            self._kept[update.name] = update
        return result

    def _merged(self, earlier: Update, later: Update) -> Update:
        """Return one update that does both, on the condition that the earlier one made."""
        on_conflict, expected = later.on_conflict, earlier.expected
        if expected is PreviousValue.ANY and not _is_unconditional(later):
            if _is_unconditional(earlier):
                on_conflict = "replace"
            else:
                expected = self._refs.current(later.name) or PreviousValue.MUST_NOT_EXIST
        return replace(later, on_conflict=on_conflict, expected=expected)

    def pending(self, name: RefName) -> Update | None:
        """Return the update that this batch holds back for a ref."""
        return self._updates.get(name)

    def publish(self) -> None:
        """Make objects, then refs, visible and durable.

        Raises:
            RefConflictError: Another writer was quicker with one of the refs; the objects are
                there, and no ref was changed.
        """
        if self._is_copy():
            return
        self.objects.publish()
        updates = {**self._kept, **self._updates}
        if updates:
            self._refs.apply(list(updates.values()))

    def close(self) -> None:
        """Remove what was not published."""
        if not self._is_copy():
            self.objects.discard()
        if self._scope is not None:
            self._scope.close()


class Batches:
    """The batches at work on one store, each with the thread and the task that it belongs to."""

    def __init__(self) -> None:
        # Weak: an interrupt may come where nobody ends a batch any more, and it must not go on
        # swallowing what is written.
        self._by_owner: dict[_Owner, weakref.ref[Batch]] = {}

    def current(self) -> Batch | None:
        """Return the batch that takes the writes of this thread and task, if there is one."""
        if not self._by_owner:
            return None
        found = self._by_owner.get(_owner())
        return None if found is None else found()

    def start(self, batch: Batch) -> _Owner:
        """Let a batch take the writes of this thread and task."""
        owner = _owner()
        self._by_owner[owner] = weakref.ref(batch)
        return owner

    def end(self, owner: _Owner) -> None:
        """Let writes go through again."""
        self._by_owner.pop(owner, None)


class BatchScope(Generic[_Store]):
    """What `Store.batch` returns: a batch while the body runs, which may end in any thread.

    Args:
        store: What the body gets.
        batches: The store's batches.
        make: Makes a batch.
        at_work: Returns a lease for as long as the batch lasts.
    """

    def __init__(
        self,
        store: _Store,
        batches: Batches,
        make: Callable[[], Batch],
        at_work: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._store = store
        self._batches = batches
        self._make = make
        self._at_work = at_work
        self._held = contextlib.ExitStack()
        self._batch: Batch | None = None
        self._owner: _Owner | None = None

    def __enter__(self) -> _Store:
        """Begin, or join the batch that this thread and task are in already."""
        if self._batches.current() is None:
            with contextlib.ExitStack() as held:
                held.enter_context(self._at_work())
                self._batch = self._make()
                held.callback(self._batch.close)
                self._held = held.pop_all()
            self._owner = self._batches.start(self._batch)
        return self._store

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Publish, or after an exception discard."""
        batch, self._batch = self._batch, None
        if batch is None or self._owner is None:
            return
        # First of all, so that whatever happens now nothing more goes into it.
        self._batches.end(self._owner)
        with self._held:
            if kind is None:
                batch.publish()


def _owner() -> _Owner:
    """Return who is at work: process, thread, and asyncio task.

    Tasks of one event loop share a thread, and must not join each other's batches.
    """
    task = None
    if (asyncio := sys.modules.get("asyncio")) is not None:
        # Its public sister raises where no loop runs, and this is on the way of every put.
        loop = asyncio._get_running_loop()  # noqa: SLF001
        task = None if loop is None else asyncio.current_task(loop)
    return os.getpid(), threading.get_ident(), task


def _is_unconditional(update: Update) -> bool:
    return update.expected is PreviousValue.ANY and (
        update.on_conflict == "replace" or update.new is None
    )
