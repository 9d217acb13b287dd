"""Drop refs by policy, or the older part of their logs, so that a later gc removes more.

A ref that is dropped leaves an entry in its log: until gc has removed the object, which
takes at least the log's expiry, `restore` brings it back. Only the store's own refs
are dropped: where an alternate has the same ref, that answers again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from castore.errors import (
    CastoreError,
    MalformedError,
    NotRegularFileError,
    ReadOnlyStoreError,
    RefConflictError,
)
from castore.format import layout
from castore.format.ref import Ref
from castore.maintenance import log_expiry
from castore.maintenance.log_expiry import NO_LOCKS, Line, Trimmed, do_locks_work
from castore.refs import reading
from castore.refs.reading import Listed, NoObject
from castore.store.store import TOPOLOGY
from castore.store.uses import INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from castore.format.reflog import LogEntry
    from castore.fs.protocol import Entry
    from castore.store.store import Store

_RACES_MAX = 10
_NS = 10**9
# A note of a use lasts a day, and a process that found it fresh looks again after another.
_USE_SLACK_S = 2 * INTERVAL_S


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What a forget would drop.

    Attributes:
        refs: The refs.
    """

    refs: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """What a forget would drop from the logs of refs that stay.

    Attributes:
        refs: The refs.
        keep_last: How many entries of each stay, the newest ones.
        entries: The others.
    """

    refs: tuple[Ref, ...]
    keep_last: int
    entries: tuple[LogEntry, ...]


def plan(
    store: Store,
    *,
    namespace: str | None = None,
    topology: str | None = None,
    kernel: str | None = None,
    older_than_s: float | None = None,
    unused_since_s: float | None = None,
) -> ForgetPlan:
    """Return the store's own refs that meet every condition given; changes nothing.

    The refs that say which topologies a store knows go only when their namespace is named.
    Ages are told by the file system's clock.

    Args:
        store: The store.
        namespace: Only refs of this namespace.
        topology: Only refs for this topology, by its id.
        kernel: Only refs for exactly this kernel text.
        older_than_s: Only refs that were last changed longer ago than this, in seconds.
        unused_since_s: Only refs that were neither changed nor looked up for so long, in seconds.
            Uses are noted once a day, so a ref stays up to two days longer.
    """
    if store.read_only:
        raise ReadOnlyStoreError(store.fs.root, store.read_only)
    chosen: Iterable[Ref] = (
        ref
        for ref in _own_refs(store, namespace)
        if (topology is None or ref.topology == topology)
        and (kernel is None or ref.kernel == kernel)
    )
    if older_than_s is not None:
        before_ns = store.fs.clock_ns(layout.CLOCK) - int(older_than_s * _NS)
        chosen = [ref for ref in chosen if _is_before(_changed_ns(store, ref), before_ns)]
    if unused_since_s is not None:
        before_ns = store.fs.clock_ns(layout.CLOCK) - int((unused_since_s + _USE_SLACK_S) * _NS)
        begun_ns = _uses_begun_ns(store)
        chosen = [
            ref for ref in chosen if _is_before(_used_ns(store, ref, since_ns=begun_ns), before_ns)
        ]
    return ForgetPlan(tuple(chosen))


def apply(store: Store, plan: ForgetPlan, *, reason: str = "forget") -> int:
    """Drop the refs of a plan that still name what they named, and return how many.

    Raises:
        RefConflictError: Other writers kept replacing refs of the plan; none was dropped.
    """
    for _ in range(_RACES_MAX):
        with contextlib.suppress(RefConflictError):
            dropped = _drop(store, plan, reason)
            break
    else:
        dropped = _drop(store, plan, reason)
    _sweep_uses(store)
    return dropped


def plan_history(store: Store, plan: ForgetPlan, *, keep_last: int) -> HistoryPlan:
    """Return the log entries that are not among the `keep_last` newest of each ref of a plan.

    Raises:
        MalformedError: `keep_last` is less than 1.
    """
    if keep_last < 1:
        raise MalformedError("keep_last", f"expected 1 or more, got {keep_last}")
    entries: list[LogEntry] = []
    for (namespace, path), keys in _by_log((ref.namespace, ref.key) for ref in plan.refs):
        lines = log_expiry.read(store, namespace, path)
        kept = {id(line) for line in _newest(lines, keys, keep_last)}
        entries += [line.entry for line in lines if line.entry and id(line) not in kept]
    return HistoryPlan(plan.refs, keep_last, tuple(entries))


def apply_history(store: Store, plan: HistoryPlan) -> Trimmed:
    """Drop what a plan names from the logs; what stays of each is looked at once more.

    What only those entries named cannot be restored any more, and goes in a later gc.
    """
    if store.read_only:
        raise ReadOnlyStoreError(store.fs.root, store.read_only)
    if plan.entries and not do_locks_work(store):
        return Trimmed(0, (NO_LOCKS,))
    dropped, notes = 0, list[str]()
    for (namespace, path), keys in _by_log((each.namespace, each.key) for each in plan.entries):
        newest = partial(_newest, keys=keys, keep_last=plan.keep_last)
        try:
            dropped += log_expiry.rewrite(store, namespace, path, newest)
        except (OSError, CastoreError) as error:
            notes.append(f"{path} was not shortened: {error}")
    return Trimmed(dropped, tuple(notes))


def _by_log(refs: Iterable[tuple[str, str]]) -> list[tuple[tuple[str, str], set[str]]]:
    """Return (namespace, log file) with the keys of those refs of which it tells."""
    found: dict[tuple[str, str], set[str]] = {}
    for namespace, key in refs:
        found.setdefault((namespace, layout.log_path(namespace, key)), set()).add(key)
    return sorted(found.items(), key=lambda item: item[0])


def _newest(lines: Sequence[Line], keys: set[str], keep_last: int) -> list[Line]:
    """Return the lines without what is older than the newest entries of these keys."""
    seen: dict[str, int] = {}
    kept = []
    for line in reversed(lines):
        if line.entry is not None and line.entry.key in keys:
            seen[line.entry.key] = seen.get(line.entry.key, 0) + 1
            if seen[line.entry.key] > keep_last:
                continue
        kept.append(line)
    kept.reverse()
    return kept


def _drop(store: Store, plan: ForgetPlan, reason: str) -> int:
    dropped = 0
    with store.batch():
        for ref in plan.refs:
            with contextlib.suppress(RefConflictError):
                dropped += store.delete_ref(
                    ref.namespace,
                    ref.topology,
                    ref.kernel,
                    key=ref.key if ref.topology is None else None,
                    expected=ref.object,
                    reason=reason,
                    reveals=True,
                )
    return dropped


def _own_refs(store: Store, namespace: str | None) -> Iterator[Ref]:
    if namespace is not None:
        namespaces = [layout.check_namespace(namespace)]
    else:
        namespaces = [name for name in reading.namespaces(store.fs) if name != TOPOLOGY]
    for each in namespaces:
        for listed in reading.list_refs(store.fs, each):
            if isinstance(listed, Listed) and not isinstance(listed.target, NoObject):
                name = listed.name
                yield Ref(name.namespace, name.topology, name.kernel, listed.target, name.key)


def _is_before(time_ns: int | None, before_ns: int) -> bool:
    return time_ns is not None and time_ns < before_ns


def _changed_ns(store: Store, ref: Ref) -> int | None:
    """Return when the ref's file was written; None where it has just gone."""
    return _mtime_ns(store, layout.ref_path(ref.namespace, ref.key))


def _used_ns(store: Store, ref: Ref, *, since_ns: int) -> int | None:
    """Return the latest time at which the ref may have been used for the last time."""
    changed_ns = _changed_ns(store, ref)
    if changed_ns is None:
        return None
    used_ns = _mtime_ns(store, layout.use_path(ref.namespace, ref.key))
    return max(changed_ns, since_ns, used_ns or 0)


def _uses_begun_ns(store: Store) -> int:
    """Return since when uses are noted here: in an older store, or a copy, that is not long."""
    begun_ns = _mtime_ns(store, layout.USES_BEGUN)
    return store.fs.clock_ns(layout.USES_BEGUN) if begun_ns is None else begun_ns


def _mtime_ns(store: Store, path: str) -> int | None:
    try:
        return store.fs.stat(path).mtime_ns
    except FileNotFoundError:
        return None


def _sweep_uses(store: Store) -> None:
    """Remove the notes of refs that are gone."""
    for namespace in _folders_in(store, layout.USES):
        for shard in _folders_in(store, f"{layout.USES}/{namespace}"):
            for entry in _entries_in(store, f"{layout.USES}/{namespace}/{shard}"):
                place = f"{namespace}/{shard}/{entry.name}"
                with contextlib.suppress(OSError, NotRegularFileError):
                    _sweep_use(store, place)


def _sweep_use(store: Store, place: str) -> None:
    ref_path = f"{layout.REFS}/{place}"
    if layout.is_ref_path(ref_path) and _mtime_ns(store, ref_path) is None:
        store.fs.remove(f"{layout.USES}/{place}")


def _folders_in(store: Store, folder: str) -> list[str]:
    return [entry.name for entry in _entries_in(store, folder) if entry.kind == "folder"]


def _entries_in(store: Store, folder: str) -> list[Entry]:
    try:
        return store.fs.list_folder(folder)
    except (FileNotFoundError, NotRegularFileError):
        return []
