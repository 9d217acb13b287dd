"""Invariants 1 and 5: a batch holds back, shows its own thread what it holds, and ends at once."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc as gc_of_python
import os
import resource
import threading
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import LockTimeoutError, ObjectNotFoundError, RefConflictError
from castore.format import layout
from castore.format.value import Link
from castore.maintenance import gc
from castore.refs.transaction import PreviousValue
from castore.store.store import Store
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    errors_in,
    id_of,
    leftovers,
    manifest,
    memory_store,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from castore.format.value import Value

A, B, C = manifest(1), manifest(2), manifest(3)
T = FOREIGN_TOPOLOGY


def test_nobody_else_sees_what_a_batch_holds_until_its_end() -> None:
    store, fs = memory_store()
    other = Store(fs)
    with store.batch():
        oid = store.put(A)
        store.set_ref("tuning", T, "k", oid)
        assert not other.has(oid)
        assert list(other.ids()) == []
        assert other.get_ref("tuning", T, "k") is None
    assert other.lookup("tuning", T, "k") == A


def test_the_thread_of_a_batch_reads_what_it_put() -> None:
    store, _ = memory_store()
    with store.batch():
        oid = store.put(A)
        store.set_ref("tuning", T, "k", oid)
        assert store.get(oid) == A
        assert store.has(oid)
        assert store.lookup("tuning", T, "k") == A


def test_another_thread_of_the_same_store_is_not_in_the_batch() -> None:
    store, _ = memory_store()
    seen: list[bool] = []
    with store.batch():
        oid = store.put(A)
        thread = threading.Thread(target=lambda: seen.append(store.has(oid)))
        thread.start()
        thread.join()
    assert seen == [False]


def test_an_exception_in_a_batch_publishes_nothing_and_leaves_nothing_behind() -> None:
    store, fs = memory_store()

    def fail() -> None:
        with store.batch():
            store.record("tuning", T, "k", A)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(store.ids()) == []
    assert list(store.refs()) == []
    assert leftovers(fs) == []


def test_a_batch_within_a_batch_is_part_of_it() -> None:
    store, fs = memory_store()
    with store.batch():
        with store.batch():
            oid = store.put(A)
        assert not Store(fs).has(oid)
    assert Store(fs).has(oid)


def test_a_conflict_shows_at_the_call() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    with store.batch(), pytest.raises(RefConflictError) as caught:
        store.record("tuning", T, "k", B)
    assert (caught.value.existing, caught.value.wanted) == (id_of(A), id_of(B))


def test_a_conflict_that_came_up_meanwhile_shows_at_the_end_and_changes_no_ref() -> None:
    store, fs = memory_store()

    def quicker() -> None:
        with store.batch():
            store.record("tuning", T, "other", C)
            store.record("tuning", T, "k", A)
            Store(fs).record("tuning", T, "k", B)

    with pytest.raises(RefConflictError) as caught:
        quicker()
    assert (caught.value.existing, caught.value.wanted) == (id_of(B), id_of(A))
    assert store.lookup("tuning", T, "k") == B
    assert store.get_ref("tuning", T, "other") is None
    assert leftovers(fs) == []


@pytest.mark.parametrize("size", [1, 40])
def test_a_batch_of_what_is_there_adds_no_file_and_keeps_the_inodes(
    tmp_path: Path, size: int
) -> None:
    store = castore.open(tmp_path / "s")
    values = [manifest(number) for number in range(size)]
    with store.batch():
        oids = [store.put(value) for value in values]
    before = {oid: store.fs.stat(layout.object_path(oid)).inode for oid in oids}
    with store.batch():
        for value in values:
            store.put(value)
    assert {oid: store.fs.stat(layout.object_path(oid)).inode for oid in oids} == before


def test_set_ref_in_a_batch_finds_what_a_staged_object_links_to() -> None:
    """A staged object was not looked into, so its missing links went unnoticed."""
    store, _ = memory_store()
    broken = manifest(4, part=Link(id_of(A)))

    def set_broken() -> None:
        with store.batch():
            store.set_ref("tuning", T, "k", store.put(broken))

    with pytest.raises(ObjectNotFoundError):
        set_broken()
    assert store.get_ref("tuning", T, "k") is None


def test_what_a_staged_object_links_to_is_safe_from_a_gc_that_has_begun() -> None:
    """A gc that took its cutoff before the batch could take the old objects it links to."""
    store, fs = memory_store()
    store.record("tuning", T, "other", C)
    part = store.put(A)
    fs.advance(DAY_NS)
    planned = gc.plan(Store(fs), grace_s=0)
    assert planned.prune == (part,)
    with store.batch():
        store.set_ref("tuning", T, "k", store.put(manifest(4, part=Link(part))))
    gc.apply(Store(fs), planned)
    assert store.get(part) == A
    assert errors_in(store) == []


def test_what_a_batch_adopted_may_be_in_the_trash_of_a_gc_when_it_ends(tmp_path: Path) -> None:
    """The batch failed with FileNotFoundError when gc held an adopted object for a moment."""
    store = castore.open(tmp_path / "s")
    oid = store.put(A)
    with store.batch():
        store.put(A)
        store.fs.rename(layout.object_path(oid), layout.trash_path(oid))
    assert castore.open(tmp_path / "s").loose.find(oid) is not None


def test_tasks_of_one_event_loop_are_not_in_each_others_batches() -> None:
    """They share a thread: one task's writes were held back, or thrown away, by another's batch."""
    store, fs = memory_store()
    other = Store(fs)

    async def batch(inside: asyncio.Event, may_end: asyncio.Event) -> None:
        with store.batch():
            store.put(A)
            inside.set()
            await may_end.wait()

    async def put(inside: asyncio.Event, may_end: asyncio.Event) -> tuple[bool, bool]:
        await inside.wait()
        store.put(B)
        seen = other.has(id_of(A)), other.has(id_of(B))
        may_end.set()
        return seen

    async def both() -> tuple[bool, bool]:
        inside, may_end = asyncio.Event(), asyncio.Event()
        _, seen = await asyncio.gather(batch(inside, may_end), put(inside, may_end))
        return seen

    assert asyncio.run(both()) == (False, True)
    assert other.has(id_of(A))


def test_a_thread_that_takes_the_context_over_is_not_in_the_batch() -> None:
    store, fs = memory_store()
    with store.batch():
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(store.put, A))
        thread.start()
        thread.join()
        assert Store(fs).has(id_of(A))


def test_what_a_batch_leaves_behind_does_not_go_into_it_when_it_has_ended() -> None:
    """A task or a callback that was made inside a batch wrote into it when it was over."""
    store, fs = memory_store()

    async def main() -> None:
        has_ended = asyncio.Event()

        async def put_later() -> None:
            await has_ended.wait()
            store.put(A)

        with store.batch():
            task = asyncio.create_task(put_later())
            asyncio.get_running_loop().call_soon(store.put, B)
            await asyncio.sleep(0)
            assert Store(fs).has(id_of(B))
        has_ended.set()
        await task

    asyncio.run(main())
    assert Store(fs).has(id_of(A))


def test_the_task_within_a_batch_that_fails_keeps_what_it_put() -> None:
    store, fs = memory_store()

    async def put() -> None:
        store.put(A)

    async def main() -> None:
        with store.batch():
            await asyncio.create_task(put())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        asyncio.run(main())
    assert Store(fs).has(id_of(A))


def a_batch_in_a_generator(store: Store, value: Value) -> Iterator[None]:
    with store.batch():
        store.put(value)
        yield


def test_batches_of_two_stores_may_end_in_any_order() -> None:
    (one, disk_one), (two, disk_two) = memory_store(), memory_store()
    first, second = a_batch_in_a_generator(one, A), a_batch_in_a_generator(two, A)
    for each in (first, second):
        next(each)
    for each in (first, second):
        next(each, None)
    one.put(B)
    two.put(B)
    for disk in (disk_one, disk_two):
        assert {A["number"], B["number"]} == {
            Store(disk).get(oid)["number"]  # type: ignore[call-overload,index]  # a manifest
            for oid in Store(disk).ids()
        }


def test_a_batch_may_end_in_another_thread_than_it_began_in() -> None:
    """Web frameworks run the two halves of a generator in a pool of threads."""
    store, fs = memory_store()
    batch = a_batch_in_a_generator(store, A)
    next(batch)
    thread = threading.Thread(target=next, args=(batch, None))
    thread.start()
    thread.join()
    assert Store(fs).get(id_of(A)) == A
    store.put(B)
    assert Store(fs).has(id_of(B))
    assert leftovers(fs) == []


def test_a_batch_that_nobody_ends_any_more_swallows_nothing() -> None:
    store, fs = memory_store()
    store.batch().__enter__()
    gc_of_python.collect()
    store.put(A)
    assert Store(fs).has(id_of(A))


def test_batches_of_two_stores_do_not_mix() -> None:
    (one, _), (two, disk) = memory_store(), memory_store()
    with one.batch():
        two.put(A)
        assert Store(disk).has(id_of(A))


def test_a_batch_of_refs_in_every_shard_holds_few_locks(tmp_path: Path) -> None:
    """With a lock for each shard, 256 shards took more open files than many systems allow."""
    store = castore.open(tmp_path / "s")
    keys = [f"{shard:02x}" + "0" * 62 for shard in range(256)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, before[1]))
    try:
        with store.batch():
            for key in keys:
                store.record("by-key-tuning", key=key, value=A)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [found.key for found in store.refs("by-key-tuning")] == keys


def test_what_many_objects_of_a_batch_share_is_synced_once() -> None:
    store, fs = memory_store()
    shared = store.put(C)
    first = len(fs.calls)
    with store.batch():
        for number in range(20):
            oid = store.put(manifest(number, part=Link(shared)))
            store.set_ref("tuning", T, f"k{number}", oid)
    path = layout.object_path(shared)
    assert fs.calls[first:].count(f"sync_file {path}") == 1


# --- a ref that is kept ----------------------------------------------------------------------


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_ref_that_is_kept_is_promised_like_one_that_is_made(*, in_batch: bool) -> None:
    """Whoever made it may have done without durability."""
    store, fs = memory_store()
    Store(fs, durable=False).record("tuning", T, "k", A)
    with store.batch() if in_batch else contextlib.nullcontext():
        assert store.record("tuning", T, "k", B, on_conflict="keep") == id_of(A)
    after = Store(fs.after_power_loss(unsynced="dropped", unsynced_names="dropped"))
    assert after.lookup("tuning", T, "k") == A


def test_what_a_kept_ref_names_counts_as_written_now() -> None:
    store, fs = memory_store()
    store.record("tuning", T, "k", A)
    fs.advance(DAY_NS)
    store.record("tuning", T, "k", B, on_conflict="keep")
    assert fs.stat(layout.object_path(id_of(A))).mtime_ns > fs.now_ns - DAY_NS


def test_a_batch_keeps_what_was_there_at_its_end() -> None:
    """Another writer deleted the kept ref before the batch ended: then the batch's own counts."""
    store, fs = memory_store()
    store.record("tuning", T, "k", A)
    with store.batch():
        store.record("tuning", T, "k", B, on_conflict="keep")
        Store(fs).delete_ref("tuning", T, "k")
    assert store.lookup("tuning", T, "k") == B


# --- several updates of one ref in a batch ---------------------------------------------------


def test_the_same_ref_twice_with_different_objects_conflicts_in_a_batch_too() -> None:
    store, _ = memory_store()
    with store.batch():
        store.record("tuning", T, "k", A)
        with pytest.raises(RefConflictError) as caught:
            store.record("tuning", T, "k", B)
        assert (caught.value.existing, caught.value.wanted) == (id_of(A), id_of(B))
        assert store.record("tuning", T, "k", B, on_conflict="keep") == id_of(A)
    assert store.lookup("tuning", T, "k") == A


def test_a_batch_replaces_what_it_has_set_itself() -> None:
    store, _ = memory_store()
    with store.batch():
        store.record("tuning", T, "k", A)
        store.record("tuning", T, "k", B, on_conflict="replace")
        assert store.lookup("tuning", T, "k") == B
    assert store.lookup("tuning", T, "k") == B


@pytest.mark.parametrize("was_there", [False, True])
def test_a_swap_in_a_batch_is_compared_with_what_the_batch_has_set(*, was_there: bool) -> None:
    """`expected` was ignored once the batch held an update of the ref."""
    store, _ = memory_store()
    if was_there:
        store.record("tuning", T, "k", A)
    with store.batch():
        store.record("tuning", T, "k", A)
        with pytest.raises(RefConflictError):
            store.record("tuning", T, "k", C, expected=id_of(C))
        with pytest.raises(RefConflictError):
            store.record("tuning", T, "k", C, expected=PreviousValue.MUST_NOT_EXIST)
        store.record("tuning", T, "k", B, expected=id_of(A))
    assert store.lookup("tuning", T, "k") == B


@pytest.mark.parametrize("was_there", [False, True])
def test_a_batch_deletes_what_it_has_set_itself(*, was_there: bool) -> None:
    """Deleting in a batch what the batch had set was refused as a conflict."""
    store, _ = memory_store()
    if was_there:
        store.record("tuning", T, "k", A)
    with store.batch():
        store.record("tuning", T, "k", A)
        assert store.delete_ref("tuning", T, "k")
        assert store.get_ref("tuning", T, "k") is None
    assert store.get_ref("tuning", T, "k") is None


def test_a_batch_sets_anew_what_it_has_deleted() -> None:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    with store.batch():
        store.delete_ref("tuning", T, "k")
        store.record("tuning", T, "k", B)
    assert store.lookup("tuning", T, "k") == B
    assert store.ref_log("tuning", T, "k")[0].old == id_of(A)


def test_a_swap_in_a_batch_fails_at_the_end_when_another_writer_came_between() -> None:
    store, fs = memory_store()
    store.record("tuning", T, "k", A)

    def swap_twice() -> None:
        with store.batch():
            store.record("tuning", T, "k", B, expected=id_of(A))
            store.record("tuning", T, "k", C, expected=id_of(B))
            Store(fs).record("tuning", T, "k", manifest(9), on_conflict="replace")

    with pytest.raises(RefConflictError):
        swap_twice()
    assert store.lookup("tuning", T, "k") == manifest(9)


class ChildFailedError(Exception):
    """What the forked child raises."""


# --- after a fork -----------------------------------------------------------------------------


def test_a_child_that_was_forked_in_a_batch_and_fails_leaves_the_batch_alone(
    tmp_path: Path,
) -> None:
    """The child removed its parent's staged files, and freed its lease, on the way out."""
    store = castore.open(tmp_path / "s")
    parent = os.getpid()
    try:
        with store.batch():
            store.record("tuning", T, "k", A)
            child = os.fork()
            if child == 0:
                store.put(B)
                raise ChildFailedError  # noqa: TRY301 - it must pass through the batch
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            (lease,) = store.fs.list_folder(layout.LEASES)
            with pytest.raises(LockTimeoutError):
                store.fs.lock(f"{layout.LEASES}/{lease.name}", wait_s=0)
    except ChildFailedError:
        os._exit(0)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert store.lookup("tuning", T, "k") == A
    assert store.get(id_of(B)) == B
