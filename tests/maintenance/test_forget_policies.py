"""Which refs a policy chooses, and what it leaves of their logs: age, use, last entries."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import castore
from castore.compat import PersistentCache
from castore.errors import MalformedError, NotRegularFileError, ReadOnlyStoreError
from castore.format import layout, ref
from castore.maintenance import forget, gc, restore
from castore.store import uses
from castore.store.memo import RefMemo
from castore.store.store import Store
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    errors_in,
    id_of,
    manifest,
    memory_store,
    new_disk,
)

if TYPE_CHECKING:
    from pathlib import Path

    from castore.fs.memory import MemoryFileSystem

A, B, C = manifest(1), manifest(2), manifest(3)
T = FOREIGN_TOPOLOGY
DAY_S = 24 * 3600.0
KERNELS = ("a", "b", "c")


def kernels_of(plan: forget.ForgetPlan) -> list[str | None]:
    return sorted(each.kernel or "" for each in plan.refs)


def use_file(kernel: str, namespace: str = "tuning") -> str:
    return layout.use_path(namespace, ref.topology_key(T, kernel))


def noted(fs: MemoryFileSystem) -> list[str]:
    """Return the files that tell of uses."""
    shards = [f"{layout.USES}/tuning/{each.name}" for each in fs.list_folder("local/uses/tuning")]
    return [f"{shard}/{each.name}" for shard in shards for each in fs.list_folder(shard)]


# --- age ------------------------------------------------------------------------------------------


def test_age_is_told_by_the_file_system_whose_clock_the_computer_need_not_share() -> None:
    """The computer's clock was asked: 20 days ahead of the file server's, all was old."""
    store, fs = memory_store()
    fs.now_ns -= 20 * DAY_NS
    store.record("tuning", T, "young", A)
    assert forget.plan(store, older_than_s=10 * DAY_S).refs == ()
    assert forget.plan(store, unused_since_s=10 * DAY_S).refs == ()
    fs.advance(11 * DAY_NS)
    assert kernels_of(forget.plan(store, older_than_s=10 * DAY_S)) == ["young"]


@pytest.mark.parametrize("ages", [{"older_than_s": 1.0}, {"unused_since_s": 1.0}, {}])
def test_nothing_is_planned_for_a_store_that_may_not_be_written(ages: dict[str, float]) -> None:
    fs = new_disk()
    with pytest.raises(ReadOnlyStoreError):
        forget.plan(Store(fs, read_only="for this test"), **ages)


# --- alternates -----------------------------------------------------------------------------------


@pytest.fixture
def stacked() -> tuple[Store, Store]:
    """Return a store, and one that is read below it; both have the ref `both`."""
    below = new_disk()
    beneath = Store(below)
    beneath.record("tuning", T, "below", A)
    beneath.record("tuning", T, "both", A)
    store = Store(new_disk(), alternates=(below,))
    store.record("tuning", T, "both", B)
    store.record("tuning", T, "own", C)
    return store, beneath


def test_refs_of_an_alternate_are_not_forgotten(stacked: tuple[Store, Store]) -> None:
    """They were listed, and a tombstone then hid each of them from this store."""
    store, _ = stacked
    assert kernels_of(forget.plan(store)) == ["both", "own"]
    assert kernels_of(forget.plan(store, older_than_s=-1e9)) == ["both", "own"]
    assert forget.apply(store, forget.plan(store)) == 2
    assert store.lookup("tuning", T, "below") == A
    assert store.lookup("tuning", T, "own") is None


def test_where_an_alternate_has_the_same_ref_that_answers_again(
    stacked: tuple[Store, Store],
) -> None:
    store, beneath = stacked
    forget.apply(store, forget.plan(store, kernel="both"))
    assert store.lookup("tuning", T, "both") == A
    assert not store.fs.list_folder("refs/tuning/" + ref.topology_key(T, "both")[:2])
    assert restore.restore(store, ref.for_topology("tuning", T, "both")).object == id_of(B)
    assert store.lookup("tuning", T, "both") == B
    assert beneath.lookup("tuning", T, "both") == A


# --- use ------------------------------------------------------------------------------------------


def test_a_ref_that_was_looked_up_counts_as_used_and_one_that_was_not_does_not() -> None:
    store, fs = memory_store()
    for kernel in KERNELS:
        store.record("tuning", T, kernel, A)
    fs.advance(100 * DAY_NS)
    assert Store(fs).lookup("tuning", T, "a") == A
    fs.advance(50 * DAY_NS)
    assert kernels_of(forget.plan(store, unused_since_s=90 * DAY_S)) == ["b", "c"]
    assert kernels_of(forget.plan(store, unused_since_s=40 * DAY_S)) == ["a", "b", "c"]


def test_a_use_leaves_the_time_of_the_last_change_alone() -> None:
    store, fs = memory_store()
    store.record("tuning", T, "a", A)
    changed_ns = fs.stat(ref.for_topology("tuning", T, "a").path).mtime_ns
    fs.advance(100 * DAY_NS)
    store.lookup("tuning", T, "a")
    assert fs.stat(ref.for_topology("tuning", T, "a").path).mtime_ns == changed_ns
    assert kernels_of(forget.plan(store, older_than_s=99 * DAY_S)) == ["a"]


def writes(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that will hold what is written or touched."""
    seen: list[str] = []
    for name in ("write_new", "touch"):
        real = getattr(fs, name)

        def watched(path: str, *rest: Any, _real: Any = real, **more: Any) -> None:
            seen.append(path)
            _real(path, *rest, **more)

        monkeypatch.setattr(fs, name, watched)
    return seen


def test_a_use_is_noted_once_a_day_by_however_many_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, fs = memory_store()
    store.record("tuning", T, "a", A)
    clock_s = [0.0]
    monkeypatch.setattr(uses.time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(uses.time, "time_ns", lambda: fs.now_ns)
    seen = writes(fs, monkeypatch)
    store = Store(fs)
    for _ in range(3):
        assert store.lookup("tuning", T, "a") == A
        Store(fs).lookup("tuning", T, "a")
    assert set(seen) == {use_file("a")}
    made = len(seen)
    fs.advance(DAY_NS + 1)
    clock_s[0] += uses.INTERVAL_S + 1
    for _ in range(3):
        store.lookup("tuning", T, "a")
        Store(fs).lookup("tuning", T, "a")
    assert len(seen) == made + 1
    assert fs.stat(use_file("a")).mtime_ns == fs.now_ns


def test_a_memo_notes_uses_too_and_again_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that runs for months never reads the ref again: it seemed unused."""
    store, fs = memory_store()
    store.record("tuning", T, "a", A)
    clock_s = [0.0]
    monkeypatch.setattr(uses.time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(uses.time, "time_ns", lambda: fs.now_ns)
    memo: RefMemo[int] = RefMemo(store, lambda _: 1, clock_ns=lambda: fs.now_ns)
    name = ref.for_topology("tuning", T, "a")
    fs.advance(DAY_NS)
    for _ in range(3):
        memo.lookup("a", name)
    assert memo.known("a") == 1
    used_ns = fs.stat(use_file("a")).mtime_ns
    assert used_ns == fs.now_ns
    fs.advance(2 * DAY_NS)
    clock_s[0] += 2 * uses.INTERVAL_S
    assert memo.known("a") is None
    memo.lookup("a", name)
    assert memo.known("a") == 1
    assert fs.stat(use_file("a")).mtime_ns == fs.now_ns


def test_the_interface_of_a_library_notes_uses(tmp_path: Path) -> None:
    cache: Any = PersistentCache("attention", tmp_path / "s")
    cache.put("device", "op@v1", "ab" * 8, {"block": 64})
    assert cache.get("device", "op@v1", "ab" * 8).block == 64
    noted = [path for path in (tmp_path / "s/local/uses/config").rglob("*") if path.is_file()]
    assert len(noted) == 1


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", ["stat", "write_new", "make_folder"])
def test_a_use_that_cannot_be_noted_costs_the_lookup_nothing(
    fault: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fs = memory_store()
    store.record("tuning", T, "a", A)

    def fails(path: str, *_: Any, **__: Any) -> Any:
        if path.startswith(layout.USES):
            raise OSError(fault, "at random", path)
        raise AssertionError(path)

    monkeypatch.setattr(fs, call, fails)
    assert store.lookup("tuning", T, "a") == A
    assert store.lookup("tuning", T, "a") == A


def test_a_lookup_in_a_store_that_may_not_be_written_writes_nothing(tmp_path: Path) -> None:
    castore.open(tmp_path / "s").record("tuning", T, "a", A)
    store = castore.open(tmp_path / "s", read_only=True)
    assert store.lookup("tuning", T, "a") == A
    assert list((tmp_path / "s/local/uses").iterdir()) == []


def test_a_link_in_place_of_the_notes_is_not_followed(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "a", A)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s/local/uses/tuning").symlink_to(tmp_path / "elsewhere")
    assert store.lookup("tuning", T, "a") == A
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with pytest.raises(NotRegularFileError):
        forget.plan(store, unused_since_s=DAY_S)
    assert forget.apply(store, forget.plan(store)) == 1


def test_where_uses_were_not_noted_before_nothing_counts_as_unused(tmp_path: Path) -> None:
    """A store of an older castore, or a copy without local/: all its refs seemed unused."""
    store, fs = memory_store()
    store.record("tuning", T, "a", A)
    fs.advance(200 * DAY_NS)
    fs.remove(layout.USES_BEGUN)
    assert forget.plan(store, unused_since_s=90 * DAY_S).refs == ()
    fs.advance(93 * DAY_NS)
    assert kernels_of(forget.plan(store, unused_since_s=90 * DAY_S)) == ["a"]
    copy = castore.open(tmp_path / "s").root
    (copy / layout.USES_BEGUN).unlink()
    (copy / layout.USES).rmdir()
    castore.open(copy)
    assert (copy / layout.USES_BEGUN).exists()


def test_notes_of_refs_that_are_gone_are_removed_and_those_of_others_stay() -> None:
    store, fs = memory_store()
    for kernel in KERNELS:
        store.record("tuning", T, kernel, A)
        store.lookup("tuning", T, kernel)
    store.delete_ref("tuning", T, "b")
    forget.apply(store, forget.plan(store, kernel="a"))
    assert noted(fs) == [use_file("c")]
    assert errors_in(store) == []


# --- the last entries of a log --------------------------------------------------------------------


def with_history() -> tuple[Store, MemoryFileSystem]:
    store, fs = memory_store()
    for value in (A, B, C):
        store.record("tuning", T, "a", value, on_conflict="replace")
    store.record("tuning", T, "b", A)
    fs.advance(1)
    return store, fs


def shorten(store: Store, keep_last: int, **which: Any) -> int:
    planned = forget.plan_history(store, forget.plan(store, **which), keep_last=keep_last)
    done = forget.apply_history(store, planned)
    assert done.notes == ()
    assert done.entries == len(planned.entries)
    return done.entries


def test_the_newest_entries_of_a_ref_stay_and_the_ref_too() -> None:
    store, _ = with_history()
    assert shorten(store, 2) == 1
    assert [each.new for each in store.ref_log("tuning", T, "a")] == [id_of(C), id_of(B)]
    assert len(store.ref_log("tuning", T, "b")) == 1
    assert shorten(store, 2) == 0
    assert store.lookup("tuning", T, "a") == C


def test_what_only_older_entries_named_goes_with_the_next_gc_and_the_rest_is_restored() -> None:
    store, _ = with_history()
    store.delete_ref("tuning", T, "b")
    assert shorten(store, 1, kernel="a") == 2
    # The log of `b` names A as well.
    assert gc.apply(store, gc.plan(store, grace_s=0)).removed == 0
    store.record("tuning", T, "b", C)
    assert shorten(store, 1, kernel="b") == 2
    assert gc.apply(store, gc.plan(store, grace_s=0)).removed == 1
    assert not store.has(id_of(A))
    name = ref.for_topology("tuning", T, "a")
    assert restore.restore(store, name).object == id_of(B)
    assert errors_in(store) == []


def test_entries_of_other_refs_in_the_same_log_and_damaged_lines_stay() -> None:
    store, fs = with_history()
    path = layout.log_path("tuning", ref.topology_key(T, "a"))
    fs.append(path, b"torn " + b"\xff" * 10 + b"\n")
    other = next(
        kernel
        for kernel in map(str, range(10_000))
        if layout.log_path("tuning", ref.topology_key(T, kernel)) == path
    )
    for value in (A, B):
        store.record("tuning", T, other, value, on_conflict="replace")
    assert shorten(store, 1, kernel="a") == 2
    assert len(store.ref_log("tuning", T, other)) == 2
    assert b"torn " in fs.read(path, limit_bytes_max=10**6)


@pytest.mark.parametrize("keep_last", [0, -1])
def test_at_least_one_entry_is_kept(keep_last: int) -> None:
    store, _ = with_history()
    with pytest.raises(MalformedError):
        forget.plan_history(store, forget.plan(store), keep_last=keep_last)


def test_a_plan_of_entries_changes_nothing_and_what_came_since_counts() -> None:
    store, _ = with_history()
    planned = forget.plan_history(store, forget.plan(store, kernel="a"), keep_last=2)
    assert [each.new for each in planned.entries] == [id_of(A)]
    assert len(store.ref_log("tuning", T, "a")) == 3
    store.record("tuning", T, "a", A, on_conflict="replace")
    forget.apply_history(store, planned)
    assert [each.new for each in store.ref_log("tuning", T, "a")] == [id_of(A), id_of(C)]


def test_no_log_is_shortened_where_locks_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store, fs = with_history()
    monkeypatch.setattr(fs, "do_locks_work", lambda _: False)
    planned = forget.plan_history(store, forget.plan(store), keep_last=1)
    done = forget.apply_history(store, planned)
    assert (done.entries, len(done.notes)) == (0, 1)
    assert len(store.ref_log("tuning", T, "a")) == 3


def test_a_log_that_cannot_be_written_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    store, fs = with_history()

    def full(path: str, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    planned = forget.plan_history(store, forget.plan(store), keep_last=1)
    monkeypatch.setattr(fs, "write_new", full)
    done = forget.apply_history(store, planned)
    assert "No space" in done.notes[0]
    assert len(store.ref_log("tuning", T, "a")) == 3


# --- any policy over any history ------------------------------------------------------------------


Steps = list[tuple[str, str, int]]


class History:
    """A store on which steps are taken, and when each ref was changed and used by them."""

    def __init__(self, steps: Steps) -> None:
        self.store, self.fs = memory_store()
        self.fs.advance(365 * DAY_NS)
        self.changed: dict[str, int] = {}
        self.used: dict[str, int] = {}
        for what, kernel, number in steps:
            getattr(self, what)(kernel, number)
        self.fs.advance(1)

    def wait(self, _: str, days: int) -> None:
        self.fs.advance(days * DAY_NS)

    def record(self, kernel: str, number: int) -> None:
        self.lookup(kernel, number)
        now = self.store.get_ref("tuning", T, kernel)
        oid = self.store.record("tuning", T, kernel, manifest(number), on_conflict="replace")
        if now is None or now.object != oid:
            self.changed[kernel] = self.used[kernel] = self.fs.now_ns

    def lookup(self, kernel: str, _: int) -> None:
        if Store(self.fs).lookup("tuning", T, kernel) is not None:
            self.used[kernel] = self.fs.now_ns

    def delete(self, kernel: str, _: int) -> None:
        self.store.delete_ref("tuning", T, kernel)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["record", "lookup", "delete", "wait"]),
            st.sampled_from(KERNELS),
            st.integers(0, 40),
        ),
        max_size=15,
    ),
    days=st.integers(0, 60),
    policy=st.sampled_from(["older_than_s", "unused_since_s"]),
)
def test_a_policy_forgets_what_is_surely_too_old_and_nothing_within_its_age(
    steps: Steps, days: int, policy: str
) -> None:
    """Whatever it drops is restored as it was, also after a gc without grace."""
    history = History(steps)
    store = history.store
    before = {each.kernel: each.object for each in store.refs()}
    last_ns = history.changed if policy == "older_than_s" else history.used
    planned = forget.plan(store, **{policy: days * DAY_S})
    chosen = {each.kernel for each in planned.refs}
    for kernel in before:
        age_ns = history.fs.now_ns - last_ns[kernel or ""]
        assert age_ns >= days * DAY_NS or kernel not in chosen
        assert age_ns <= (days + 3) * DAY_NS or kernel in chosen
    assert forget.apply(store, planned) == len(chosen)
    assert {each.kernel for each in store.refs()} == set(before) - chosen
    store.set_name("kept", store.put(A))
    gc.apply(store, gc.plan(store, grace_s=0, log_expiry_s=10**9))
    for each in planned.refs:
        assert restore.restore(store, each.name).object == before[each.kernel]
    assert {each.kernel: each.object for each in store.refs()} == before
    assert errors_in(store) == []


@settings(max_examples=40, deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from(KERNELS), st.integers(0, 4)), max_size=12),
    keep_last=st.integers(1, 4),
)
def test_a_shortened_log_is_the_newest_part_of_what_it_was(
    changes: list[tuple[str, int]], keep_last: int
) -> None:
    store, fs = memory_store()
    for kernel, number in changes:
        if number == 0:
            store.delete_ref("tuning", T, kernel)
        else:
            store.record("tuning", T, kernel, manifest(number), on_conflict="replace")
    before = {kernel: store.ref_log("tuning", T, kernel) for kernel in KERNELS}
    refs = {each.kernel: each.object for each in store.refs()}
    shorten(store, keep_last)
    for kernel in KERNELS:
        kept = before[kernel][:keep_last] if kernel in refs else before[kernel]
        assert store.ref_log("tuning", T, kernel) == kept
    fs.advance(1)
    store.set_name("kept", store.put(A))
    gc.apply(store, gc.plan(store, grace_s=0))
    assert {each.kernel: each.object for each in store.refs()} == refs
    assert errors_in(store) == []
