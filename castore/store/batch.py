"""A batch: many puts and refs with the promise of one, for the price of a few syncs.

It belongs to the thread, and the asyncio task, that opened it. What it put can be
read inside it; nothing is visible to others before its end, and nothing ever on an
exception. Objects become durable and visible first, then the refs, whose conflicts
were checked at the call and are checked once more.
"""

from __future__ import annotations

import contextlib
import os
import threading
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from castore.errors import RefConflictError
from castore.format.ref import NO_OBJECT
from castore.objects.staging import Staging
from castore.refs.transaction import PreviousValue, is_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from castore.format.ref import RefName
    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem, SyncScope
    from castore.objects.loose import LooseObjects
    from castore.refs.transaction import RefWriter, Update


# By context, not by thread alone: tasks of one event loop must not join each other's batches.
_current: ContextVar[Mapping[object, Batch]] = ContextVar(
    "castore batches",
    default={},  # noqa: B039 - never changed, only replaced
)


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
        self._owner = (os.getpid(), threading.get_ident())

    def is_mine(self) -> bool:
        """Tell whether this thread made the batch: a forked child has but a copy of it."""
        return self._owner == (os.getpid(), threading.get_ident())

    @contextlib.contextmanager
    def current_for(self, store: object) -> Iterator[None]:
        """Be the batch that takes this thread's and task's writes to a store, then close."""
        before = _current.get()
        _current.set({**before, store: self})
        try:
            yield
        finally:
            _current.set(before)
            self.close()

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
        if not self.is_mine():
            return
        self.objects.publish()
        updates = {**self._kept, **self._updates}
        if updates:
            self._refs.apply(list(updates.values()))

    def close(self) -> None:
        """Remove what was not published."""
        if self.is_mine():
            self.objects.discard()
        if self._scope is not None:
            self._scope.close()


def current_batch(store: object) -> Batch | None:
    """Return the batch that takes this thread's and task's writes to a store, if there is one."""
    batch = _current.get().get(store)
    return batch if batch is not None and batch.is_mine() else None


def _is_unconditional(update: Update) -> bool:
    return update.expected is PreviousValue.ANY and (
        update.on_conflict == "replace" or update.new is None
    )
