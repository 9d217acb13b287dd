"""What stopped writers and a stopped gc leave in `local/`: found by age, and tidied.

A temp file is anybody's until no writer can need it any more: its age is told by the
file system's clock, and no file is taken that is younger than the oldest writer at
work. Where locks do nothing nobody knows who is at work, and only gc's whole grace
period is long enough.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from castore.errors import CorruptObjectError
from castore.format import layout
from castore.format.canonical import object_id
from castore.maintenance.gc import GRACE_S, files_in, oldest_lease_ns, trashed
from castore.maintenance.log_expiry import do_locks_work
from castore.objects.loose import folder_of, read_frame

if TYPE_CHECKING:
    from castore.format.value import ObjectId
    from castore.store.store import Store

AGE_S = 24 * 3600.0
"""How old a leftover has to be, unless the caller says otherwise."""

_NS = 10**9


def old_temp_files(store: Store, *, age_s: float) -> tuple[str, ...]:
    """Return the temp files that no writer at work can need; changes nothing of them."""
    paths = files_in(store, layout.TMP)
    if not paths:
        return ()
    if not do_locks_work(store):
        age_s = max(age_s, GRACE_S)
    # The clock first: who begins after this look has nothing that is older.
    cutoff_ns = store.fs.clock_ns(layout.CLOCK) - int(age_s * _NS)
    lease_ns = oldest_lease_ns(store)
    if lease_ns is not None:
        cutoff_ns = min(cutoff_ns, lease_ns)
    return tuple(path for path in paths if _is_older(store, path, cutoff_ns))


def sweep(store: Store, paths: tuple[str, ...]) -> int:
    """Remove leftovers, and return how many were still there."""
    swept = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            store.fs.remove(path)
            swept += 1
    return swept


def in_trash(store: Store) -> tuple[ObjectId, ...]:
    """Return the sound objects that a stopped gc has left in the trash."""
    oids = filter(None, map(trashed, sorted(files_in(store, layout.TRASH))))
    return tuple(oid for oid in oids if _is_sound(store, oid))


def put_back(store: Store, oid: ObjectId) -> bool:
    """Give an object in the trash its place again, durably; False where that is taken."""
    try:
        store.fs.rename_new(layout.trash_path(oid), layout.object_path(oid))
    except (FileExistsError, FileNotFoundError):
        return False
    store.fs.sync_folder(folder_of(oid))
    return True


def _is_sound(store: Store, oid: ObjectId) -> bool:
    try:
        content = read_frame(store.fs, layout.trash_path(oid), oid)
    except CorruptObjectError:
        return False
    return content is not None and object_id(content) == oid


def _is_older(store: Store, path: str, cutoff_ns: int) -> bool:
    try:
        return store.fs.stat(path).mtime_ns < cutoff_ns
    except FileNotFoundError:
        return False
