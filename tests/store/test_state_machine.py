"""A store against a model: any order of writes, deletions, gc, damage and reopening.

The model knows what each ref must name; whatever happens, a ref names that, or, where
its object was damaged, is a miss until the next write heals it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from castore.errors import CorruptObjectError, ObjectNotFoundError, RefConflictError
from castore.format import layout, ref
from castore.format.value import Link
from castore.fs.memory import PowerLossError
from castore.maintenance import forget, gc, restore
from castore.store.store import Store
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    copy_of,
    errors_in,
    id_of,
    leftovers,
    manifest,
    new_disk,
)

if TYPE_CHECKING:
    from castore.format.value import ObjectId, Value
    from castore.fs.memory_tree import Content

T = FOREIGN_TOPOLOGY
KERNELS = ["a", "b", "c"]
PARTS: list[Value] = [manifest(number) for number in range(3)]
WHOLES: list[Value] = [
    manifest(10 + number, part=Link(id_of(part))) for number, part in enumerate(PARTS)
]
VALUES = [*PARTS, *WHOLES]
kernels = st.sampled_from(KERNELS)
numbers = st.integers(0, len(VALUES) - 1)


class StoreMachine(RuleBasedStateMachine):
    """Rules that change a store and the model alike."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = new_disk()
        self.store = Store(self.fs)
        self.refs: dict[str, Value] = {}
        self.damaged: set[ObjectId] = set()
        self.store.set_name("kept", self.store.put({"kept": True}))

    def _put(self, number: int) -> ObjectId:
        """Put a value and what it links to, so that refs to it can be made."""
        value = VALUES[number]
        if value in WHOLES:
            self.store.put(PARTS[WHOLES.index(value)])
            self.damaged.discard(id_of(PARTS[WHOLES.index(value)]))
        self.damaged.discard(id_of(value))
        return self.store.put(value)

    def _is_sound(self, kernel: str) -> bool:
        return kernel in self.refs and id_of(self.refs[kernel]) not in self.damaged

    @rule(number=numbers)
    def put(self, number: int) -> None:
        oid = self._put(number)
        assert self.store.get(oid) == VALUES[number]

    @rule(kernel=kernels, number=numbers)
    def create(self, kernel: str, number: int) -> None:
        oid = self._put(number)
        conflicts = self._is_sound(kernel) and self.refs[kernel] != VALUES[number]
        if conflicts:
            with pytest.raises(RefConflictError) as caught:
                self.store.set_ref("tuning", T, kernel, oid)
            assert caught.value.existing == id_of(self.refs[kernel])
        else:
            self.store.set_ref("tuning", T, kernel, oid)
            self.refs[kernel] = VALUES[number]

    @rule(kernel=kernels, number=numbers)
    def keep(self, kernel: str, number: int) -> None:
        self._put(number)
        now = self.store.record("tuning", T, kernel, VALUES[number], on_conflict="keep")
        if not self._is_sound(kernel):
            self.refs[kernel] = VALUES[number]
        assert now == id_of(self.refs[kernel])

    @rule(kernel=kernels, number=numbers)
    def replace(self, kernel: str, number: int) -> None:
        self._put(number)
        self.store.record("tuning", T, kernel, VALUES[number], on_conflict="replace")
        self.refs[kernel] = VALUES[number]

    @rule(kernel=kernels, number=numbers, expected=numbers)
    def swap(self, kernel: str, number: int, expected: int) -> None:
        self._put(number)
        matches = self.refs.get(kernel) == VALUES[expected]
        heals = kernel in self.refs and not self._is_sound(kernel)
        try:
            self.store.record("tuning", T, kernel, VALUES[number], expected=id_of(VALUES[expected]))
        except RefConflictError:
            assert not matches
            assert not heals
        else:
            assert matches or heals
            self.refs[kernel] = VALUES[number]

    @rule(kernel=kernels)
    def delete(self, kernel: str) -> None:
        assert self.store.delete_ref("tuning", T, kernel) == (kernel in self.refs)
        self.refs.pop(kernel, None)

    @rule(chosen=st.dictionaries(kernels, numbers, min_size=1), fails=st.booleans())
    def batch(self, chosen: dict[str, int], *, fails: bool) -> None:
        try:
            with self.store.batch():
                for kernel, number in chosen.items():
                    self._put(number)
                    self.store.record("tuning", T, kernel, VALUES[number], on_conflict="replace")
                if fails:
                    raise ZeroDivisionError  # noqa: TRY301 - it must pass through the batch
        except ZeroDivisionError:
            self._damaged_again()
        else:
            self.refs.update({kernel: VALUES[number] for kernel, number in chosen.items()})

    def _damaged_again(self) -> None:
        """What a failed batch found damaged is in quarantine and not written anew."""
        for value in VALUES:
            try:
                self.store.get(id_of(value))
            except (CorruptObjectError, ObjectNotFoundError):
                self.damaged.add(id_of(value))
            else:
                self.damaged.discard(id_of(value))

    @precondition(lambda self: not self.damaged)
    @rule(grace_s=st.sampled_from([0.0, 1e-9, gc.GRACE_S]), expiry_s=st.sampled_from([0.0, 9e9]))
    def collect(self, grace_s: float, expiry_s: float) -> None:
        self.fs.advance(10)
        with gc.locked(self.store):
            gc.apply(self.store, gc.plan(self.store, grace_s=grace_s, log_expiry_s=expiry_s))
        assert self.fs.list_folder(layout.TRASH) == []

    @rule()
    def forget_and_restore(self) -> None:
        planned = forget.plan(self.store, namespace="tuning")
        assert {each.kernel for each in planned.refs} == set(self.refs)
        forget.apply(self.store, planned)
        assert list(self.store.refs("tuning")) == []
        for each in planned.refs:
            if id_of(self.refs[each.kernel or ""]) in self.damaged or self._reaches_damage(each):
                self.refs.pop(each.kernel or "")
            else:
                restore.restore(self.store, each.name)

    def _reaches_damage(self, each: object) -> bool:
        assert isinstance(each, ref.Ref)
        value = self.refs[each.kernel or ""]
        return value in WHOLES and id_of(PARTS[WHOLES.index(value)]) in self.damaged

    @rule(number=numbers, data=st.binary(max_size=20))
    def damage(self, number: int, data: bytes) -> None:
        path = layout.object_path(id_of(VALUES[number]))
        if self.store.has(id_of(VALUES[number])):
            self.fs.remove(path)
            self.fs.write_new(path, data)
            self.damaged.add(id_of(VALUES[number]))

    @rule()
    def reopen_after_power_loss(self) -> None:
        self.fs = self.fs.after_power_loss(unsynced="dropped", unsynced_names="dropped")
        self.store = Store(self.fs)
        self._damaged_again()

    @precondition(lambda self: not self.damaged)
    @rule(
        kernel=kernels,
        number=numbers,
        power_ops=st.integers(0, 60),
        work=st.sampled_from(["replace", "delete", "batch", "forget", "gc"]),
        unsynced=st.sampled_from(["kept", "dropped", "torn"]),
    )
    def lose_power_at_work(
        self, kernel: str, number: int, power_ops: int, work: str, unsynced: Content
    ) -> None:
        """What was begun has happened or has not; a gc, two days later, leaves nothing of it."""
        self._put(number)
        before = {each: id_of(value) for each, value in self.refs.items()}
        after = dict(before)
        if work in ("replace", "batch"):
            after[kernel] = id_of(VALUES[number])
        elif work in ("delete", "forget"):
            after.pop(kernel, None)
        self.fs = copy_of(self.fs, power_ops=power_ops)
        self.store = Store(self.fs)
        try:
            self._work(work, kernel, VALUES[number])
        except PowerLossError:
            expected = (before, after)
        else:
            expected = (after, after)
        self.fs = self.fs.after_power_loss(unsynced=unsynced, unsynced_names="dropped")
        self.store = Store(self.fs)
        now = {each.kernel or "": each.object for each in self.store.refs("tuning")}
        assert now in expected
        values = {id_of(value): value for value in VALUES}
        self.refs = {each: values[oid] for each, oid in now.items()}
        self.fs.advance(2 * DAY_NS)
        with gc.locked(self.store):
            gc.apply(self.store, gc.plan(self.store))
        self._damaged_again()

    def _work(self, work: str, kernel: str, value: Value) -> None:
        if work == "replace":
            self.store.record("tuning", T, kernel, value, on_conflict="replace")
        elif work == "delete":
            self.store.delete_ref("tuning", T, kernel)
        elif work == "forget":
            forget.apply(self.store, forget.plan(self.store, kernel=kernel))
        elif work == "gc":
            gc.apply(self.store, gc.plan(self.store, grace_s=0))
        else:
            with self.store.batch():
                self.store.record("tuning", T, kernel, value, on_conflict="replace")

    @rule(days=st.integers(1, 200))
    def time_passes(self, days: int) -> None:
        self.fs.advance(days * DAY_NS)

    @rule(days=st.integers(0, 100))
    def forget_what_is_unused(self, days: int) -> None:
        planned = forget.plan(self.store, unused_since_s=days * 86_400.0)
        for each in planned.refs:
            assert each.kernel in self.refs
        forget.apply(self.store, planned)
        for each in planned.refs:
            self.refs.pop(each.kernel or "")

    @rule()
    def reopen(self) -> None:
        self.fs = copy_of(self.fs)
        self.store = Store(self.fs)

    @invariant()
    def refs_name_what_they_must(self) -> None:
        for kernel in KERNELS:
            got = self.store.lookup("tuning", T, kernel)
            if self._is_sound(kernel):
                assert got == self.refs[kernel]
            else:
                assert got is None
        assert {each.kernel for each in self.store.refs("tuning")} == set(self.refs)

    @invariant()
    def nothing_lies_about(self) -> None:
        assert leftovers(self.fs) == []

    @invariant()
    def fsck_names_exactly_the_damage(self) -> None:
        named = {found.subject for found in errors_in(self.store) if found.id == "object-damaged"}
        assert named <= self.damaged
        if not self.damaged:
            assert errors_in(self.store) == []


StoreMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
