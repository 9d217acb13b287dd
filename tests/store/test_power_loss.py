"""Invariants 1 and 2: what was acknowledged survives power loss, all else is whole or absent.

Each scenario is cut after every mutating call, with what was not synced kept, dropped
or torn, and names that were not synced kept or dropped. After the reboot all that
was acknowledged is right, fsck finds no error, and the work can be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import get_args

import pytest

from castore.errors import CorruptObjectError, ObjectNotFoundError
from castore.format import layout, ref, version
from castore.format.value import Link, Value, WeakLink
from castore.fs.memory import MemoryFileSystem, PowerLossError
from castore.fs.memory_tree import Content, Names
from castore.maintenance import forget, gc, restore
from castore.maintenance.pins import pin, pins
from castore.refs.transaction import PreviousValue
from castore.store.opening import lay_out
from castore.store.store import Store
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    copy_of,
    errors_in,
    id_of,
    leftovers,
    manifest,
    memory_store,
    new_disk,
)

Promise = Callable[[Store], None]
Act = Callable[[Store], Iterator[Promise]]

PART, OTHER_PART = manifest(10), manifest(11)
WHOLE = manifest(12, part=Link(id_of(PART)), evidence=WeakLink(id_of(OTHER_PART)))
OLD, NEW = manifest(1), manifest(2)
KERNEL = "matmul_f32[m=8,n=8,k=8]"

HARSHEST = {("dropped", "dropped"), ("torn", "kept")}
all_losses = [
    pytest.param(
        unsynced,
        names,
        id=f"content-{unsynced}-names-{names}",
        marks=[] if (unsynced, names) in HARSHEST else [pytest.mark.slow],
    )
    for unsynced in get_args(Content)
    for names in get_args(Names)
]


def holds(*values: Value) -> Promise:
    """Promise that these values are there and right."""

    def promise(store: Store) -> None:
        for value in values:
            assert store.get(id_of(value)) == value

    return promise


def names_it(value: Value, *, kernel: str = KERNEL, topology: str = FOREIGN_TOPOLOGY) -> Promise:
    """Promise that the ref names the value, which is there."""

    def promise(store: Store) -> None:
        assert store.lookup("tuning", topology, kernel) == value

    return promise


def put(store: Store) -> Iterator[Promise]:
    store.put(OLD)
    yield holds(OLD)
    store.put(NEW)
    yield holds(OLD, NEW)


def put_again(store: Store) -> Iterator[Promise]:
    store.put(OLD)
    yield holds(OLD)


def batch_of_one(store: Store) -> Iterator[Promise]:
    with store.batch():
        store.put(OLD)
    yield holds(OLD)


def create_ref(store: Store) -> Iterator[Promise]:
    oid = store.put(OLD)
    store.set_ref("tuning", FOREIGN_TOPOLOGY, KERNEL, oid)
    yield names_it(OLD)


def create_ref_of_what_is_there(store: Store) -> Iterator[Promise]:
    store.set_ref("tuning", FOREIGN_TOPOLOGY, KERNEL, id_of(WHOLE))
    yield names_it(WHOLE)
    yield holds(PART, OTHER_PART)


def confirm_ref(store: Store) -> Iterator[Promise]:
    store.set_ref("tuning", FOREIGN_TOPOLOGY, KERNEL, id_of(OLD))
    yield names_it(OLD)


def confirm_ref_in_batch(store: Store) -> Iterator[Promise]:
    with store.batch():
        store.record("tuning", FOREIGN_TOPOLOGY, KERNEL, OLD)
    yield names_it(OLD)


def another_ref_in_the_shard(store: Store) -> Iterator[Promise]:
    oid = store.put(NEW)
    store.set_ref("by-key-tuning", key="ab" * 31 + "00", id=oid)

    def promise(store: Store) -> None:
        assert store.lookup("by-key-tuning", key="ab" * 31 + "00") == NEW

    yield promise


def replace_ref(store: Store) -> Iterator[Promise]:
    store.record("tuning", FOREIGN_TOPOLOGY, KERNEL, NEW, on_conflict="replace", reason="better")
    yield names_it(NEW)
    yield logged
    yield holds(OLD)


def replace_ref_of_careless_writer(store: Store) -> Iterator[Promise]:
    """What the ref named before is not promised: its own writer did not ask for that."""
    yield from islice(replace_ref(store), 2)


def logged(store: Store) -> None:
    newest = store.ref_log("tuning", FOREIGN_TOPOLOGY, KERNEL)[0]
    assert (newest.old, newest.new) == (id_of(OLD), id_of(NEW))


def compare_and_swap(store: Store) -> Iterator[Promise]:
    now = store.get_ref("tuning", FOREIGN_TOPOLOGY, KERNEL)
    expected = PreviousValue.MUST_NOT_EXIST if now is None else now.object
    store.set_ref("tuning", FOREIGN_TOPOLOGY, KERNEL, store.put(NEW), expected=expected)
    yield names_it(NEW)


def delete_ref(store: Store) -> Iterator[Promise]:
    store.delete_ref("tuning", FOREIGN_TOPOLOGY, KERNEL)
    yield is_gone


def is_gone(store: Store) -> None:
    assert store.get_ref("tuning", FOREIGN_TOPOLOGY, KERNEL) is None
    assert any(e.old == id_of(OLD) for e in store.ref_log("tuning", FOREIGN_TOPOLOGY, KERNEL))


def delete_and_restore(store: Store) -> Iterator[Promise]:
    store.delete_ref("tuning", FOREIGN_TOPOLOGY, KERNEL)
    restore.restore(store, ref.for_topology("tuning", FOREIGN_TOPOLOGY, KERNEL), to=id_of(OLD))
    yield names_it(OLD)


def forget_all(store: Store) -> Iterator[Promise]:
    forget.apply(store, forget.plan(store, namespace="tuning"))
    yield is_gone


def record_with_topology(store: Store) -> Iterator[Promise]:
    store.put(PART)
    store.put(OTHER_PART)
    store.record("tuning", TOPOLOGY, KERNEL, WHOLE)
    topology = id_of(TOPOLOGY)
    yield names_it(WHOLE, topology=topology)
    yield holds(WHOLE, PART, OTHER_PART, TOPOLOGY)

    def known(store: Store) -> None:
        assert store.lookup("topology", topology, "topology") == TOPOLOGY

    yield known


def small_batch(store: Store) -> Iterator[Promise]:
    yield from _batch(store, 3)


def large_batch(store: Store) -> Iterator[Promise]:
    yield from _batch(store, 18)


def kernel_of(value: dict[str, Value]) -> str:
    return f"k{value['number']!r}"


def _batch(store: Store, count: int) -> Iterator[Promise]:
    values = [manifest(number) for number in range(100, 100 + count)]
    with store.batch():
        for value in values:
            store.record("tuning", FOREIGN_TOPOLOGY, kernel_of(value), value)
        store.record("tuning", FOREIGN_TOPOLOGY, KERNEL, NEW, on_conflict="replace")
    yield holds(*values)
    yield names_it(NEW)
    for value in values:
        yield names_it(value, kernel=kernel_of(value))


def batch_over_what_is_there(store: Store) -> Iterator[Promise]:
    top = manifest(13, whole=Link(id_of(WHOLE)))
    with store.batch():
        oid = store.put(top)
        store.set_ref("tuning", FOREIGN_TOPOLOGY, KERNEL, oid)
    yield names_it(top)
    yield holds(WHOLE, PART)


def collect(store: Store) -> Iterator[Promise]:
    with gc.locked(store):
        gc.apply(store, gc.plan(store, grace_s=0))
    yield names_it(OLD)
    yield holds(PART)


def collect_beside_a_writer(store: Store) -> Iterator[Promise]:
    """The ref is made after the plan, so the object is moved to the trash and back."""
    planned = gc.plan(store, grace_s=0)
    store.record("tuning", FOREIGN_TOPOLOGY, "late", WHOLE)
    yield names_it(WHOLE, kernel="late")
    yield holds(PART)
    gc.apply(store, planned)
    yield names_it(WHOLE, kernel="late")


def make_pin(store: Store) -> Iterator[Promise]:
    pin(store, id_of(WHOLE), reason="kept by hand")

    def promise(store: Store) -> None:
        assert [found.oid for found in pins(store)] == [id_of(WHOLE)]

    yield promise
    yield holds(WHOLE, PART)


def set_and_delete_name(store: Store) -> Iterator[Promise]:
    store.set_name("best", store.put(OLD), on_conflict="replace")

    def named(store: Store) -> None:
        found = store.get_name("best")
        assert found is not None
        assert store.get(found.object) == OLD

    yield named


def with_nothing(_: Store) -> None:
    """Leave the store empty."""


def with_old_ref(store: Store) -> None:
    store.record("tuning", FOREIGN_TOPOLOGY, KERNEL, OLD)


def with_parts(store: Store) -> None:
    for value in (PART, OTHER_PART, WHOLE):
        store.put(value)


def with_rubbish(store: Store) -> None:
    with_old_ref(store)
    with_parts(store)
    pin(store, id_of(PART))
    store.put(manifest(90, part=Link(id_of(WHOLE))))
    fs = store.fs
    assert isinstance(fs, MemoryFileSystem)
    fs.advance(DAY_NS)


SCENARIOS: dict[str, tuple[Callable[[Store], None], Act]] = {
    "put": (with_nothing, put),
    "batch of one put": (with_nothing, batch_of_one),
    "create": (with_nothing, create_ref),
    "create, the object being there": (with_parts, create_ref_of_what_is_there),
    "record with a topology": (with_nothing, record_with_topology),
    "replace": (with_old_ref, replace_ref),
    "compare and swap": (with_old_ref, compare_and_swap),
    "delete": (with_old_ref, delete_ref),
    "delete and restore": (with_old_ref, delete_and_restore),
    "forget": (with_old_ref, forget_all),
    "small batch": (with_old_ref, small_batch),
    "large batch": (with_old_ref, large_batch),
    "batch that links to what is there": (with_parts, batch_over_what_is_there),
    "gc": (with_rubbish, collect),
    "gc beside a writer": (with_rubbish, collect_beside_a_writer),
    "pin": (with_parts, make_pin),
    "named ref": (with_nothing, set_and_delete_name),
}
REPEATABLE = {name: each for name, each in SCENARIOS.items() if name != "gc beside a writer"}


def collected(act: Act, fs: MemoryFileSystem) -> list[Promise]:
    """Do the work until the power goes, and return what was acknowledged before."""
    promises: list[Promise] = []
    try:
        for promise in act(Store(fs)):
            promises.append(promise)  # noqa: PERF402 - what came before the cut must be kept
    except PowerLossError:
        pass
    return promises


def calls_of(disk: MemoryFileSystem, act: Act) -> int:
    whole = copy_of(disk)
    collected(act, whole)
    return whole.ops


@pytest.mark.parametrize(("unsynced", "unsynced_names"), all_losses)
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_was_acknowledged_survives_and_all_else_is_whole_or_absent(
    name: str, unsynced: Content, unsynced_names: Names, tried: Callable[[str, int], None]
) -> None:
    prepare, act = SCENARIOS[name]
    disk = new_disk()
    prepare(Store(disk))
    disk = copy_of(disk)
    calls = calls_of(disk, act)
    tried("crash points", calls + 1)
    for power_ops in range(calls + 1):
        fs = copy_of(disk, power_ops=power_ops)
        promises = collected(act, fs)
        rebooted = Store(fs.after_power_loss(unsynced=unsynced, unsynced_names=unsynced_names))
        for promise in promises:
            promise(rebooted)
        assert not errors_in(rebooted), f"cut after call {power_ops}: {fs.calls[-1:]}"


@pytest.mark.parametrize(("unsynced", "unsynced_names"), all_losses)
@pytest.mark.parametrize("name", REPEATABLE)
def test_the_operation_can_be_repeated_after_the_power_loss(
    name: str, unsynced: Content, unsynced_names: Names, tried: Callable[[str, int], None]
) -> None:
    prepare, act = REPEATABLE[name]
    disk = new_disk()
    prepare(Store(disk))
    disk = copy_of(disk)
    cuts = range(0, calls_of(disk, act) + 1, 3)
    tried("crash points", len(cuts))
    for power_ops in cuts:
        fs = copy_of(disk, power_ops=power_ops)
        collected(act, fs)
        rebooted = Store(fs.after_power_loss(unsynced=unsynced, unsynced_names=unsynced_names))
        promises = list(act(rebooted))
        sweep(rebooted)
        for promise in promises[-1:]:
            promise(rebooted)


def sweep(store: Store) -> None:
    """Let gc run a day later, after which nothing of the cut lies about."""
    fs = store.fs
    assert isinstance(fs, MemoryFileSystem)
    fs.advance(2 * DAY_NS)
    store.set_name("kept", store.put({"kept": True}))
    with gc.locked(store):
        gc.apply(store, gc.plan(store))
    assert leftovers(fs) == []


UNSYNCED: dict[str, tuple[Callable[[Store], None], Act]] = {
    "put": (lambda store: void(store.put(OLD)), put_again),
    "batch": (lambda store: void(store.put(OLD)), batch_of_one),
    "create": (with_parts, create_ref_of_what_is_there),
    "batch that links": (with_parts, batch_over_what_is_there),
    "confirm": (with_old_ref, confirm_ref),
    "confirm in a batch": (with_old_ref, confirm_ref_in_batch),
    "another ref of the same shard": (
        lambda store: void(store.record("by-key-tuning", value=OLD, key="ab" * 32)),
        another_ref_in_the_shard,
    ),
    "replace": (with_old_ref, replace_ref_of_careless_writer),
    "delete": (with_old_ref, delete_ref),
    "pin": (with_parts, make_pin),
}


def set_name_of(store: Store, value: Value) -> None:
    store.set_name("kept", store.put(value))


def void(_: object) -> None:
    """Drop a result."""


@pytest.mark.parametrize(("unsynced", "unsynced_names"), all_losses)
@pytest.mark.parametrize("name", UNSYNCED)
def test_what_another_writer_left_unsynced_is_made_durable_too(
    name: str, unsynced: Content, unsynced_names: Names, tried: Callable[[str, int], None]
) -> None:
    prepare, act = UNSYNCED[name]

    def careless() -> MemoryFileSystem:
        fs = new_disk()
        prepare(Store(fs, durable=False))
        return fs

    first = careless()
    before = first.ops
    collected(act, first)
    tried("crash points", first.ops - before + 1)
    for cut in range(first.ops - before + 1):
        fs = careless()
        fs._power_ops = fs.ops + cut
        promises = collected(act, fs)
        rebooted = Store(fs.after_power_loss(unsynced=unsynced, unsynced_names=unsynced_names))
        for promise in promises:
            promise(rebooted)


@pytest.mark.parametrize(("unsynced", "unsynced_names"), all_losses)
def test_a_store_that_was_made_is_whole_and_an_interrupted_creation_completes(
    unsynced: Content, unsynced_names: Names
) -> None:
    whole = MemoryFileSystem()
    lay_out(whole)
    for power_ops in [*range(0, whole.ops - 12, 37), *range(whole.ops - 12, whole.ops + 1)]:
        fs = MemoryFileSystem(power_ops=power_ops)
        was_made = False
        try:
            lay_out(fs)
            was_made = True
        except PowerLossError:
            pass
        rebooted = fs.after_power_loss(unsynced=unsynced, unsynced_names=unsynced_names)
        has_format = any(entry.name == layout.FORMAT for entry in rebooted.list_folder(""))
        assert has_format or not was_made
        if has_format:
            assert rebooted.read(layout.FORMAT, limit_bytes_max=99) == version.VERSION_1
            assert {entry.name for entry in rebooted.list_folder("objects")} == set(layout.SHARDS)
        else:
            lay_out(rebooted)
        for promise in create_ref(Store(rebooted)):
            promise(Store(copy_after_cut(rebooted)))


def copy_after_cut(fs: MemoryFileSystem) -> MemoryFileSystem:
    return fs.after_power_loss(unsynced="dropped", unsynced_names="dropped")


def test_a_put_where_the_shard_directories_are_missing_survives() -> None:
    """Object storages and git keep no empty folders, so a copy may lack them all."""
    fs = MemoryFileSystem()
    for folder in (layout.REFS, *layout.LOCAL_FOLDERS):
        fs.make_folder(folder)
    fs.sync_folder("")
    fs.sync_folder(layout.LOCAL)
    Store(fs).put(OLD)
    holds(OLD)(Store(copy_after_cut(fs)))


def test_an_object_that_gc_puts_back_survives_although_its_folder_was_synced_meanwhile() -> None:
    """gc moves an object to the trash and back; another put of the shard syncs it in between."""
    store, fs = memory_store()
    oid = store.put(OLD)
    set_name_of(store, NEW)
    fs.advance(1)
    planned = gc.plan(store, grace_s=0)
    store.set_ref("tuning", FOREIGN_TOPOLOGY, KERNEL, oid)
    rename = fs.rename

    def rename_and_sync(source: str, target: str) -> None:
        rename(source, target)
        if target.startswith(layout.TRASH):
            fs.sync_folder(source.rpartition("/")[0])

    fs.rename = rename_and_sync  # type: ignore[method-assign]  # one other writer, at one moment
    report = gc.apply(store, planned)
    assert report.spared == 1
    names_it(OLD)(Store(copy_after_cut(fs)))


def test_a_file_that_a_careless_writer_lost_is_a_miss_or_a_typed_error_and_heals() -> None:
    fs = new_disk()
    Store(fs, durable=False).put(OLD)
    fs.sync_folder(f"objects/{id_of(OLD)[:2]}")
    rebooted = Store(copy_after_cut(fs))
    with pytest.raises((CorruptObjectError, ObjectNotFoundError)):
        rebooted.get(id_of(OLD))
    rebooted.put(OLD)
    holds(OLD)(Store(copy_after_cut(rebooted.fs)))  # type: ignore[arg-type]  # it is in memory
