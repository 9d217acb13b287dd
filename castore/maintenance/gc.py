"""Remove objects that nothing can reach and that are old enough.

gc runs beside any number of writers. What keeps it from taking what a writer is
about to need is an order of steps, each of which matters:

1. take the file system's own now, *then* ask which leases are held; the cutoff is
   the earlier of now minus the grace period and the start of the oldest of them;
2. gather the roots: refs, then logs and pins, then every object that is not older
   than the cutoff; mark all that they reach, weak links included;
3. move each candidate to the trash, parents before what they link to, look at its
   age once more, and put it back, with all that it links to spared, if a writer has
   freshened it meanwhile. A writer freshens by name and last: it either touches the
   file before the move, which is then seen, or finds the name gone and writes anew.

Steps 1 and 2 are `plan`, step 3 is `apply`. A plan does not go stale: whoever makes
an object reachable later also freshens it.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import (
    CorruptObjectError,
    LockTimeoutError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
)
from castore.format import layout
from castore.maintenance.known_links import KnownLinks
from castore.maintenance.roots import refuse_without_refs, roots
from castore.objects.loose import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from castore.format.value import ObjectId
    from castore.store.store import Store

_ATTEMPTS_MAX = 10
GRACE_S = 14 * 24 * 3600.0
"""How long an unreachable object is kept after it was last written or freshened."""

LOG_EXPIRY_S = 90 * 24 * 3600.0
"""How long a log entry keeps the objects that it names."""

WAIT_S = 60.0
"""How long to wait for another gc."""

_LEFTOVER_AGE_S = 24 * 3600.0
_NS = 10**9


@dataclass(frozen=True, slots=True)
class Plan:
    """What a gc would remove.

    Attributes:
        prune: The objects, parents before what they link to.
        prune_bytes: Their size on disk.
        reachable: How many objects refs, logs and pins reach.
        recent: How many unreachable objects are too young, or reached by such.
        cutoff_ns: Objects last written or freshened before this are old enough, by the file
            system's clock.
        leftover_cutoff_ns: The same for temp files.
        notes: What the caller should be told.
    """

    prune: tuple[ObjectId, ...]
    prune_bytes: int
    reachable: int
    recent: int
    cutoff_ns: int
    leftover_cutoff_ns: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a gc did.

    Attributes:
        removed: How many objects it removed.
        freed_bytes: Their size on disk.
        spared: How many of the plan it left, because a writer had freshened them.
        leftovers: How many abandoned temp and lease files it removed.
    """

    removed: int
    freed_bytes: int
    spared: int
    leftovers: int


@contextlib.contextmanager
def locked(store: Store, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Keep other gcs out while the body runs.

    Raises:
        LockTimeoutError: Another one did not end within `wait_s` seconds.
    """
    if store.read_only:
        raise ReadOnlyStoreError(store.fs.root, store.read_only)
    with store.fs.lock(layout.GC_LOCK, wait_s=wait_s):
        yield


def plan(
    store: Store,
    *,
    grace_s: float = GRACE_S,
    log_expiry_s: float = LOG_EXPIRY_S,
    progress: Callable[[int, int | None], None] | None = None,
) -> Plan:
    """Return what a gc would remove; changes nothing.

    A store that may only be read has a plan too, for people: what it needs of the file system's
    clock and of locks can be had by writing alone, so this machine's clock has to do.

    Args:
        store: The store.
        grace_s: Keep unreachable objects younger than this, in seconds.
        log_expiry_s: Let log entries younger than this, in seconds, keep what they name.
        progress: Called with the number of objects marked so far.

    Raises:
        MaintenanceRefusedError: There are objects but no refs: a mount may be missing.
        CorruptObjectError: An object that must be followed is damaged, and no earlier gc knows
            what it links to.
    """
    refuse_without_refs(store, "gc")
    notes: list[str] = []
    if store.read_only:
        notes.append(
            "the store is read-only: ages go by this machine's clock, writers are not seen"
        )
    do_locks_work = bool(store.read_only) or _do_locks_work(store)
    if not do_locks_work and grace_s < GRACE_S:
        notes.append("file locks do nothing here: the grace period is raised to 14 days")
        grace_s = GRACE_S
    now_ns = time.time_ns() if store.read_only else store.fs.clock_ns(layout.CLOCK)
    cutoff_ns = now_ns - int(grace_s * _NS)
    lease_ns = None if store.read_only else oldest_lease_ns(store)
    if lease_ns is not None and lease_ns < cutoff_ns:
        cutoff_ns = lease_ns
        notes.append("a writer is at work: what was written since it began is kept")
    # First the roots: whoever changes one later freshens what it reaches.
    start = list(roots(store, log_since_ns=now_ns - int(log_expiry_s * _NS)))
    own = list(_own_objects(store))
    here = {oid for oid, _ in own}
    mark = _Mark(KnownLinks(store), None if store.alternates else here, progress)
    mark.all_from(start)
    marked = mark.marked
    reachable = len(marked)
    old = _mark_recent(store, own, cutoff_ns, mark)
    candidates = {oid: size for oid, size in old.items() if oid not in marked}
    prune = tuple(_parents_first(mark.links, candidates))
    if not store.read_only:
        mark.links.save(here)
    return Plan(
        prune=prune,
        prune_bytes=sum(candidates.values()),
        reachable=reachable,
        recent=len(marked) - reachable,
        cutoff_ns=cutoff_ns,
        # A day is enough, but without locks nobody knows whether a batch still is at work.
        leftover_cutoff_ns=min(
            now_ns - int(_LEFTOVER_AGE_S * _NS),
            now_ns if lease_ns is None else lease_ns,
            now_ns if do_locks_work else cutoff_ns,
        ),
        notes=tuple(notes),
    )


def apply(
    store: Store,
    plan: Plan,
    *,
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Remove what a plan names and nobody has freshened since.

    Args:
        store: The store.
        plan: What `plan` returned.
        progress: Called with the number of objects done, and how many there are.

    Raises:
        ReadOnlyStoreError: It may only be read.
    """
    if store.read_only:
        raise ReadOnlyStoreError(store.fs.root, store.read_only)
    _empty_trash(store)
    removed = freed_bytes = 0
    spared: set[ObjectId] = set()
    links: KnownLinks | None = None
    for done, oid in enumerate(plan.prune, start=1):
        if oid not in spared:
            size_bytes = _prune(store, oid, plan.cutoff_ns)
            if size_bytes is None:
                links = links or KnownLinks(store)
                _spare(links, oid, spared)
            elif size_bytes >= 0:
                removed += 1
                freed_bytes += size_bytes
        if progress is not None:
            progress(done, len(plan.prune))
    return Report(removed, freed_bytes, len(spared), _sweep(store, plan.leftover_cutoff_ns))


def _do_locks_work(store: Store) -> bool:
    try:
        return store.fs.do_locks_work(layout.PROBE)
    except LockTimeoutError:
        return True  # another gc is finding out, and its lock has just kept this one out


def oldest_lease_ns(store: Store) -> int | None:
    """Return when the oldest writer at work began, by the file system's clock."""
    starts = []
    for path in files_in(store, layout.LEASES):
        try:
            store.fs.lock(path, wait_s=0).release()
        except LockTimeoutError:
            with contextlib.suppress(FileNotFoundError):
                starts.append(store.fs.stat(path).mtime_ns)
    return min(starts, default=None)


class _Mark:
    """Marks what is reached through links of both kinds.

    Args:
        links: Tells what objects link to.
        here: All objects there are; None where they are not known, as with alternates.
        progress: Called with the number of objects marked so far.
    """

    def __init__(
        self,
        links: KnownLinks,
        here: Container[ObjectId] | None,
        progress: Callable[[int, int | None], None] | None,
    ) -> None:
        self.links = links
        self.marked: set[ObjectId] = set()
        self._here = here
        self._progress = progress

    def all_from(self, start: Iterable[ObjectId]) -> None:
        """Mark these objects, and all that they reach."""
        for root in start:
            waiting = [root]
            while waiting:
                oid = waiting.pop()
                if oid in self.marked:
                    continue
                try:
                    strong, weak = self.links.of(oid)
                except ObjectNotFoundError:
                    continue  # a foreign topology, a weak link, or a matter for fsck
                self.marked.add(oid)
                waiting += strong
                # Many weak targets are nowhere: to look for each would take longest of all.
                waiting += [each for each in weak if self._here is None or each in self._here]
                if self._progress is not None:
                    self._progress(len(self.marked), None)


def _mark_recent(
    store: Store, own: Iterable[tuple[ObjectId, str]], cutoff_ns: int, mark: _Mark
) -> dict[ObjectId, int]:
    """Mark what objects not older than the cutoff reach; return the older ones' sizes."""
    old: dict[ObjectId, int] = {}
    for oid, path in own:
        if oid in mark.marked:
            continue
        try:
            found = store.fs.stat(path)
        except FileNotFoundError:
            continue
        if found.mtime_ns < cutoff_ns:
            old[oid] = found.size_bytes
        else:
            mark.all_from([oid])
    return old


def _own_objects(store: Store) -> Iterator[tuple[ObjectId, str]]:
    """Yield the store's own objects with their paths.

    Those that a gc which was killed has left in the trash count as well: they are put back
    before anything is removed, and must not come back to find their children gone.
    """
    for path in files_in(store, layout.TRASH):
        oid = trashed(path)
        if oid is not None:
            yield oid, path
    for shard in layout.SHARDS:
        for oid in store.loose.ids_in_shard(shard):
            yield oid, layout.object_path(oid)


def _parents_first(links: KnownLinks, candidates: dict[ObjectId, int]) -> list[ObjectId]:
    """Return the candidates so that each comes before those that it links to."""
    after: list[ObjectId] = []
    done: set[ObjectId] = set()
    for root in sorted(candidates):
        waiting: list[tuple[ObjectId, bool]] = [(root, False)]
        while waiting:
            oid, children_done = waiting.pop()
            if children_done:
                after.append(oid)
            elif oid not in done:
                done.add(oid)
                waiting.append((oid, True))
                waiting += [
                    (child, False) for child in _children(links, oid) if child in candidates
                ]
    after.reverse()
    return after


def _children(links: KnownLinks, oid: ObjectId) -> list[ObjectId]:
    try:
        strong, weak = links.of(oid)
    except (ObjectNotFoundError, CorruptObjectError):
        return []
    return strong + weak


def _prune(store: Store, oid: ObjectId, cutoff_ns: int) -> int | None:
    """Remove an object; return its size, -1 when it was gone, None when it had to be spared."""
    trash = layout.trash_path(oid)
    try:
        store.fs.rename(layout.object_path(oid), trash)
        found = store.fs.stat(trash)
    except (FileNotFoundError, IsADirectoryError):
        return -1  # or somebody has put a folder where it should go: it stays
    if found.mtime_ns >= cutoff_ns:
        _put_back(store, oid)
        return None
    with contextlib.suppress(FileNotFoundError):
        store.fs.remove(trash)
    return found.size_bytes


def _put_back(store: Store, oid: ObjectId) -> None:
    home, trash = layout.object_path(oid), layout.trash_path(oid)
    with contextlib.suppress(FileNotFoundError):
        for _ in range(_ATTEMPTS_MAX):
            try:
                store.fs.rename_new(trash, home)
            except FileExistsError:
                # It was written anew meanwhile, or is damaged there, or another has just moved
                # that out of the way: then this may be the only good copy.
                if not store.loose.quarantine(oid) and store.loose.has(oid):
                    store.fs.remove(trash)
                    return
            else:
                # Its writer may have been told that it is durable, and its folder synced
                # without it.
                store.fs.sync_folder(folder_of(oid))
                return


def _spare(links: KnownLinks, oid: ObjectId, spared: set[ObjectId]) -> None:
    waiting = [oid]
    while waiting:
        found = waiting.pop()
        if found not in spared:
            spared.add(found)
            waiting += _children(links, found)


def _empty_trash(store: Store) -> None:
    """Put back what a gc that was killed has left in the trash; this run, or a later, judges it."""
    for path in files_in(store, layout.TRASH):
        oid = trashed(path)
        if oid is not None:
            _put_back(store, oid)


def trashed(path: str) -> ObjectId | None:
    """Return which object a file in the trash is, or None for a foreign file."""
    name = path.rpartition("/")[2]
    return layout.oid_in_shard(name[:2], name[2:]) if name[:2] in layout.SHARDS else None


def _sweep(store: Store, cutoff_ns: int) -> int:
    """Remove abandoned temp files, and lease files that nobody holds."""
    swept = 0
    for path in files_in(store, layout.TMP):
        with contextlib.suppress(FileNotFoundError):
            if store.fs.stat(path).mtime_ns < cutoff_ns:
                store.fs.remove(path)
                swept += 1
    for path in files_in(store, layout.LEASES):
        with contextlib.suppress(LockTimeoutError):
            store.fs.lock(path, wait_s=0).release(remove=True)
            swept += 1
    return swept


def files_in(store: Store, folder: str) -> list[str]:
    """Return the paths of the plain files in a folder, which may be missing."""
    try:
        entries = store.fs.list_folder(folder)
    except FileNotFoundError:
        return []
    return [f"{folder}/{entry.name}" for entry in entries if entry.kind == "file"]
