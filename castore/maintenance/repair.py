"""Mend what fsck finds, deleting nothing that was ever an object or a ref.

What is damaged is moved to `local/quarantine`; a good copy takes its place where an
alternate or another store has one; so does what links, refs and pins ask for and the
store lacks. On request refs are restored from their logs. Objects that a stopped gc
left in the trash go home, and temp files that no writer can need are removed.

A repair may be stopped anywhere and begun again: each step leaves the store no worse
than it was, and a file in quarantine whose object is missing tells a second run that
a copy is still wanted. Whoever runs one holds gc's lock (`gc.locked`), so that no gc
and no other repair runs beside it; a lease makes a gc without working locks spare
what it brings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.format import layout
from castore.format.value import ObjectId
from castore.maintenance import fsck, leftovers, ref_repair
from castore.maintenance.supply import Supply
from castore.objects.loose import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from castore.maintenance.findings import Finding
    from castore.maintenance.ref_repair import DamagedRef, Restoration
    from castore.store.store import Store

_DAMAGE = frozenset({"object-damaged", "object-malformed"})
_quarantined_id = re.compile("([0-9a-f]{64})-[0-9a-f]{8}").fullmatch


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do.

    Attributes:
        findings: What fsck found.
        is_complete: Whether everything could be read.
        quarantine: Damaged objects, to be moved.
        copies: Objects to be copied, after all that they link to, and the stores that give them.
        lost: Objects that are missing or damaged, of which nobody has a good copy.
        put_back: Objects in the trash, to go home.
        move_refs: Damaged refs, to be moved.
        restore: Refs to be restored from their logs.
        sweep: Temp files to be removed.
    """

    findings: tuple[Finding, ...]
    is_complete: bool
    quarantine: tuple[ObjectId, ...]
    copies: tuple[tuple[ObjectId, str], ...]
    lost: tuple[ObjectId, ...]
    put_back: tuple[ObjectId, ...]
    move_refs: tuple[DamagedRef, ...]
    restore: tuple[Restoration, ...]
    sweep: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (
            self.quarantine
            or self.copies
            or self.put_back
            or self.move_refs
            or self.restore
            or self.sweep
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What a repair did.

    Attributes:
        quarantined: Damaged objects that were moved.
        copied: Objects that were copied.
        put_back: Objects that went home from the trash.
        refs_moved: Damaged refs that were moved.
        refs_restored: Refs that name an older object again.
        swept: Temp files that were removed.
    """

    quarantined: int
    copied: int
    put_back: int
    refs_moved: int
    refs_restored: int
    swept: int


def plan(
    store: Store,
    *,
    donors: Sequence[Store] = (),
    restore_refs: bool = False,
    leftover_age_s: float = leftovers.AGE_S,
    processes: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
) -> Plan:
    """Return what a repair would do; changes nothing.

    Args:
        store: The store.
        donors: Stores to copy from, besides the store's alternates.
        restore_refs: Whether to let damaged and dangling refs name the newest object in their
            logs that is whole.
        leftover_age_s: How old a temp file has to be to be removed, in seconds.
        processes: As for `fsck.check`.
        progress: Called with the number of objects checked so far.
    """
    report = fsck.check(store, processes=processes, progress=progress)
    damaged = {ObjectId(each.subject): None for each in report.findings if each.id in _DAMAGE}
    missing = [ObjectId(each.missing) for each in report.findings if each.missing]
    in_trash = leftovers.in_trash(store)
    supply = Supply(store, donors)
    wanted = [*damaged, *missing, *_wanted_of_quarantine(store)]
    _, lost = supply.needed(wanted, set(damaged))
    restore, move_refs = _plan_refs(store, supply, lost, restore_refs=restore_refs)
    # What a ref will name again may have to be copied, too.
    targets = [each.target for each in restore]
    copies, lost = supply.needed([*wanted, *targets], set(damaged))
    return Plan(
        findings=report.findings,
        is_complete=report.is_complete,
        quarantine=tuple(damaged),
        copies=tuple(copies.items()),
        lost=tuple(sorted(lost)),
        put_back=tuple(oid for oid in in_trash if oid not in copies and not store.loose.has(oid)),
        move_refs=tuple(move_refs),
        restore=tuple(restore),
        sweep=leftovers.old_temp_files(store, age_s=leftover_age_s),
    )


def apply(store: Store, plan: Plan, *, donors: Sequence[Store] = ()) -> Report:
    """Do what a plan says, save what others have mended meanwhile.

    Args:
        store: The store.
        plan: What `plan` returned.
        donors: What it was given.
    """
    supply = Supply(store, donors)
    with store.at_work():
        put_back = sum(leftovers.put_back(store, oid) for oid in plan.put_back)
        copied, quarantined = _mend_objects(store, plan, supply)
    restored = [each for each in plan.restore if ref_repair.restore(store, each, reason="repair")]
    moved = [each for each in plan.move_refs if ref_repair.move(store, each)]
    return Report(
        quarantined=quarantined,
        copied=copied,
        put_back=put_back,
        refs_moved=len(moved),
        refs_restored=len(restored),
        swept=leftovers.sweep(store, plan.sweep),
    )


def _wanted_of_quarantine(store: Store) -> list[ObjectId]:
    """Return the objects of which only a damaged copy, in quarantine, is left."""
    try:
        names = sorted(entry.name for entry in store.fs.list_folder(layout.QUARANTINE))
    except FileNotFoundError:
        return []
    found = [ObjectId(match[1]) for name in names if (match := _quarantined_id(name))]
    return [oid for oid in found if not store.has(oid)]


def _plan_refs(
    store: Store, supply: Supply, lost: set[ObjectId], *, restore_refs: bool
) -> tuple[list[Restoration], list[DamagedRef]]:
    damaged = list(ref_repair.damaged_refs(store))
    if not restore_refs:
        return [], damaged
    logged = {each: ref_repair.from_log(store, each, supply.is_whole) for each in damaged}
    move = [each for each, found in logged.items() if found is None]
    restore = [found for found in logged.values() if found is not None]
    for gone in ref_repair.moved_refs(store):
        found = ref_repair.from_log(store, gone, supply.is_whole)
        if found is not None and not ref_repair.was_deleted(store, gone):
            restore.append(found)
    for name, target in ref_repair.named_refs(store):
        if target in lost:
            found = ref_repair.from_log(store, name, supply.is_whole, dangling=target)
            restore += [found] if found is not None else []
    return restore, move


def _mend_objects(store: Store, plan: Plan, supply: Supply) -> tuple[int, int]:
    """Copy and move objects, and return how many of each."""
    copied = quarantined = 0
    damaged = set(plan.quarantine)
    for oid, _ in plan.copies:
        found = supply.content(oid)
        if found is not None:
            # Moved only now, so that no longer than it must the object is missing.
            quarantined += oid in damaged and _quarantine(store, oid)
            store.loose.add(oid, found[0])
            copied += 1
        damaged.discard(oid)
    quarantined += sum(_quarantine(store, oid) for oid in damaged)
    return copied, quarantined


def _quarantine(store: Store, oid: ObjectId) -> bool:
    """Move a damaged object out of the way, durably; False where it is not damaged any more."""
    if not store.loose.quarantine(oid):
        return False
    # First where it is now: else a crash could leave it in neither place.
    store.fs.sync_folder(layout.QUARANTINE)
    store.fs.sync_folder(folder_of(oid))
    return True
