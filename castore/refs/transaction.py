"""Changing refs: one, or many at once.

The steps, and why in this order:

1. lock the shards of all the refs, in order, so that two batches cannot deadlock;
2. look at each ref and decide, so that a conflict is raised before anything changed;
3. append to the logs and write the new ref files under temp names;
4. sync both: from here on the log tells of the change, whatever happens;
5. publish: a new ref by a step that fails when the name is taken (of two writers
   exactly one wins, even where locks do nothing), a replacement by a rename;
6. sync the folders that got new names.

A ref whose file is damaged, or whose object is missing or damaged, conflicts with
nothing: writing it is how it heals.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

from castore.errors import CorruptRefError, MalformedError, RefConflictError
from castore.format import layout, reflog
from castore.format.ref import NO_OBJECT, RefName, encode_ref
from castore.format.value import ObjectId, shown
from castore.refs import log, reading
from castore.refs.reading import NoObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from castore.fs.protocol import FileSystem, SyncScope

LOCK_WAIT_S = 30.0
"""How long to wait for another writer of the same shard, in seconds."""

_RACES_MAX = 10

OnConflict = Literal["error", "keep", "replace"]


class PreviousValue(Enum):
    """What a ref may hold before an update, where that is not one certain object."""

    ANY = "any"
    MUST_NOT_EXIST = "must not exist"


Expected = ObjectId | PreviousValue


@dataclass(frozen=True, slots=True)
class Update:
    """A change that is wanted of one ref.

    Attributes:
        name: The ref.
        new: The object that it shall name; None deletes the ref.
        on_conflict: What to do when it names another sound object.
        expected: What it must hold for the update to go ahead.
        reason: Why, for the log.
        reveals: Whether a deletion lets the same ref of an alternate answer again, in place of
            hiding it by a tombstone.
    """

    name: RefName
    new: ObjectId | None
    on_conflict: OnConflict = "error"
    expected: Expected = PreviousValue.ANY
    reason: str = ""
    reveals: bool = False


def wanted(
    name: RefName,
    new: ObjectId | None,
    on_conflict: OnConflict,
    expected: str | PreviousValue,
    reason: str,
) -> Update:
    """Return the update that a caller wants, its arguments checked.

    Raises:
        MalformedError: `on_conflict` is none of the three, or `expected` no id.
    """
    if on_conflict not in ("error", "keep", "replace"):
        told = f"expected error, keep or replace, got {shown(on_conflict)}"
        raise MalformedError("on_conflict", told)
    if not isinstance(expected, PreviousValue):
        expected = ObjectId(expected)
    return Update(name, new, on_conflict, expected, reason)


class Step(Enum):
    """What has to be done for an update."""

    NOTHING = "nothing"
    CONFIRM = "confirm"
    CREATE = "create"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(slots=True)
class _Planned:
    update: Update
    step: Step
    old: ObjectId | None
    result: ObjectId | None
    staged: str = ""
    is_damaged: bool = False


def is_allowed(update: Update, now: ObjectId | None) -> bool:
    """Tell whether an update may go ahead where its ref names `now`."""
    if update.expected is PreviousValue.MUST_NOT_EXIST:
        return now is None
    if update.expected is PreviousValue.ANY:
        replaces = update.on_conflict == "replace" or update.new is None
        return now is None or now == update.new or replaces
    return now == update.expected


class RefWriter:
    """Changes the loose refs of one store.

    Args:
        fs: The store's file system.
        durable: Whether a change survives power loss when it returns.
        clock_ns: The time for log entries, in nanoseconds since the epoch.
        is_sound: Tells whether an object that a ref names can be read.
        below: Returns what a ref of this name names in what is read below the loose refs: then
            deleting it takes a tombstone.
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        durable: bool,
        clock_ns: Callable[[], int],
        is_sound: Callable[[ObjectId], bool],
        below: Callable[[RefName], ObjectId | None],
    ) -> None:
        self._fs = fs
        self._durable = durable
        self._clock_ns = clock_ns
        self._is_sound = is_sound
        self._below = below
        # Folders whose own names survive power loss; these are older than any ref.
        self._durable_folders = {layout.REFS, layout.LOCAL, layout.LOGS}

    def check(self, update: Update) -> ObjectId | None:
        """Return what the ref would name after the update, changing nothing.

        Raises:
            RefConflictError: The update would not go ahead.
        """
        return self._plan(update).result

    def current(self, name: RefName) -> ObjectId | None:
        """Return what a loose ref names; None for none, a tombstone, or damage."""
        try:
            found = reading.read(self._fs, name)
        except CorruptRefError:
            return None
        return None if isinstance(found, NoObject) else found

    def apply(self, updates: Sequence[Update]) -> list[ObjectId | None]:
        """Change refs, and return what each names now.

        Raises:
            RefConflictError: A ref does not hold what an update needs; nothing was changed (save
                where locks do nothing and two writers create the same ref: then the others were).
            LockTimeoutError: Another writer held a shard for too long; nothing was changed.
        """
        with contextlib.ExitStack() as held:
            shards = {layout.ref_lock_path(u.name.namespace, u.name.key) for u in updates}
            for path in sorted(shards):
                held.enter_context(self._fs.lock(path, wait_s=LOCK_WAIT_S))
            scope = self._fs.open_sync_scope() if self._durable else None
            if scope is not None:
                held.callback(scope.close)
            planned = [self._plan(update) for update in updates]
            try:
                self._execute(planned, scope)
            finally:
                self._discard(planned)
            return [plan.result for plan in planned]

    def _plan(self, update: Update) -> _Planned:
        try:
            current = reading.read(self._fs, update.name)
        except CorruptRefError:
            step = Step.REMOVE if update.new is None else Step.CREATE
            return _Planned(update, step, None, update.new, is_damaged=True)
        old = None if isinstance(current, NoObject) else current
        if not self._goes_ahead(update, current):
            # Kept: whoever made it may not have asked for durability, and we are about to promise.
            return _Planned(update, Step.CONFIRM, old, old)
        if update.new is None:
            return _Planned(update, self._deletion(update, current), old, None)
        if current == update.new:
            return _Planned(update, Step.CONFIRM, old, update.new)
        step = Step.CREATE if current is NoObject.ABSENT else Step.REPLACE
        return _Planned(update, step, old, update.new)

    def _goes_ahead(self, update: Update, current: ObjectId | NoObject) -> bool:
        """Tell whether to change the ref; False keeps what it names.

        Raises:
            RefConflictError: It may not be changed.
        """
        old = None if isinstance(current, NoObject) else current
        seen = old
        if isinstance(update.expected, ObjectId) and current is NoObject.ABSENT:
            # The caller expects what he was shown, which may have come from below.
            seen = self._below(update.name)
        if is_allowed(update, seen) or (old is not None and not self._is_sound(old)):
            return True
        if update.on_conflict == "keep" and old is not None:
            return False
        raise RefConflictError(str(update.name), old or NO_OBJECT, update.new or NO_OBJECT)

    def _deletion(self, update: Update, current: ObjectId | NoObject) -> Step:
        if not update.reveals and self._below(update.name) is not None:
            return {NoObject.ABSENT: Step.CREATE, NoObject.TOMBSTONE: Step.NOTHING}.get(
                current,  # type: ignore[arg-type]  # an id is no key of this table, and falls through
                Step.REPLACE,
            )
        return Step.NOTHING if current is NoObject.ABSENT else Step.REMOVE

    def _execute(self, planned: list[_Planned], scope: SyncScope | None) -> None:
        changes = [plan for plan in planned if plan.step not in (Step.NOTHING, Step.CONFIRM)]
        logs = self._append_logs(changes)
        for plan in changes:
            self._stage(plan)
        confirmed = [plan.update.name.path for plan in planned if plan.step is Step.CONFIRM]
        if scope is not None:
            staged = [plan.staged for plan in changes if plan.staged]
            scope.sync_files([*logs, *staged, *confirmed])
            self._sync_folders(scope, {_folder(path) for path in logs})
        conflicts = [conflict for plan in changes if (conflict := self._publish(plan))]
        if scope is not None:
            published = {_folder(plan.update.name.path) for plan in planned if _is_step(plan)}
            self._sync_folders(scope, published)
        if conflicts:
            raise conflicts[0]

    def _sync_folders(self, scope: SyncScope, folders: set[str]) -> None:
        """Make the names in these folders durable, and the folders' own names.

        Who made a folder may not have synced it: he was killed, or did not want durability.
        """
        unknown = {each for folder in folders for each in _chain(folder)} - self._durable_folders
        scope.sync_folders(sorted(folders | {_folder(each) for each in unknown}))
        self._durable_folders |= unknown

    def _append_logs(self, changes: Sequence[_Planned]) -> list[str]:
        """Write the log entries, a call for each log file, and return the files."""
        lines: dict[str, list[bytes]] = {}
        now_ns, writer = self._now_ns(changes), log.this_writer()
        for plan in changes:
            name = plan.update.name
            entry = reflog.LogEntry(
                name.namespace,
                name.key,
                plan.old,
                plan.update.new,
                now_ns,
                name.topology,
                name.kernel,
                writer,
                plan.update.reason,
            )
            path = layout.log_path(name.namespace, name.key)
            lines.setdefault(path, []).append(reflog.encode_entry(entry))
        for path, added in lines.items():
            try:
                self._fs.append(path, b"".join(added))
            except FileNotFoundError:
                self._make_folders(_folder(path))
                self._fs.append(path, b"".join(added))
        return list(lines)

    def _now_ns(self, changes: Sequence[_Planned]) -> int:
        """Return the time for log entries: what gc will tell their age by, or later.

        gc goes by the file system's clock. It is asked by way of the lock, which was written a
        moment ago: entries of a computer whose clock is behind would count as old at once.
        """
        now_ns = self._clock_ns()
        if not changes:
            return now_ns
        name = changes[0].update.name
        try:
            lock = self._fs.stat(layout.ref_lock_path(name.namespace, name.key))
        except FileNotFoundError:
            return now_ns
        return max(now_ns, lock.mtime_ns)

    def _stage(self, plan: _Planned) -> None:
        if plan.step in (Step.CREATE, Step.REPLACE):
            plan.staged = f"{layout.TMP}/{os.urandom(12).hex()}"
            self._fs.write_new(plan.staged, encode_ref(plan.update.name, plan.update.new))

    def _discard(self, planned: Iterable[_Planned]) -> None:
        for plan in planned:
            if plan.staged:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.remove(plan.staged)

    def _publish(self, plan: _Planned) -> RefConflictError | None:
        path = plan.update.name.path
        if plan.is_damaged:
            self._quarantine(path)
        if plan.step is Step.REMOVE:
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(path)
            return None
        for _ in range(_RACES_MAX):
            try:
                move = self._fs.rename_new if plan.step is Step.CREATE else self._fs.rename
                move(plan.staged, path)
            except FileNotFoundError:
                self._make_folders(_folder(path))
            except FileExistsError:
                # Somebody made it without our lock: look again at what it holds.
                try:
                    again = self._plan(plan.update)
                except RefConflictError as conflict:
                    return conflict
                plan.step, plan.old, plan.result = again.step, again.old, again.result
                if plan.step in (Step.NOTHING, Step.CONFIRM):
                    return None
            else:
                plan.staged = ""
                return None
        return RefConflictError(str(plan.update.name), NO_OBJECT, plan.update.new or NO_OBJECT)

    def _quarantine(self, path: str) -> None:
        """Move what lies under the ref's name out of the way, keeping it."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rename(path, f"{layout.QUARANTINE}/ref-{os.urandom(8).hex()}")

    def _make_folders(self, folder: str) -> None:
        """Make a folder, and those on the way that are missing; they are synced in the end."""
        try:
            self._fs.make_folder(folder)
        except FileNotFoundError:
            self._make_folders(_folder(folder))
            self._fs.make_folder(folder)
        self._durable_folders.discard(folder)


def _is_step(plan: _Planned) -> bool:
    return plan.step is not Step.NOTHING


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _chain(folder: str) -> list[str]:
    """Return a folder and those on the way to it, without the root."""
    parts = folder.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
