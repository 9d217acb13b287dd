"""RefMemo: what is remembered is what the ref still names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.format import ref
from castore.fs.memory import MemoryFileSystem
from castore.store.memo import RefMemo
from castore.store.opening import lay_out
from castore.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from castore.format.ref import RefName

TOPOLOGY = "cd" * 32
LATER_NS = 10**18 * 4
TICK_NS = 50_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with castore.open(tmp_path / "store") as opened:
        yield opened


def name_of(kernel: str) -> RefName:
    return ref.for_topology("config", TOPOLOGY, kernel)


def record(store: Store, value: Any, kernel: str = "k") -> None:
    store.record("config", TOPOLOGY, kernel, value, on_conflict="replace")


class Made:
    """Makes something of a value, and notes that it did."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def __call__(self, value: object) -> object:
        self.values.append(value)
        return (value,)


def test_a_settled_ref_is_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record(store, 1)
    made = Made()
    memo: RefMemo[object] = RefMemo(store, made, clock_ns=lambda: LATER_NS)
    assert memo.known("key") is None
    assert [memo.lookup("key", name_of("k")) for _ in range(2)] == [(1,)] * 2
    monkeypatch.setattr(type(store.fs), "read", None)
    assert memo.known("key") == (1,)
    assert made.values == [1]


@pytest.mark.parametrize(
    ("age_ns", "fraction_ns", "is_trusted"),
    [
        (TICK_NS, 1, False),
        (TICK_NS + 1, 1, True),
        (TICK_NS + 1, 0, False),
        (2_100_000_000, 0, False),
        (2_100_000_001, 0, True),
        (-1, 1, False),
    ],
)
def test_a_ref_younger_than_a_tick_is_read_each_time(
    store: Store, age_ns: int, fraction_ns: int, *, is_trusted: bool
) -> None:
    record(store, 1)
    mtime_ns = 10**18 + fraction_ns
    os.utime(store.root / name_of("k").path, ns=(mtime_ns, mtime_ns))
    memo: RefMemo[object] = RefMemo(store, Made(), clock_ns=lambda: mtime_ns + age_ns)
    for _ in range(2):
        memo.lookup("key", name_of("k"))
    assert (memo.known("key") is not None) is is_trusted


def test_a_replaced_ref_is_not_known(store: Store) -> None:
    record(store, 1)
    memo: RefMemo[object] = RefMemo(store, Made(), clock_ns=lambda: LATER_NS)
    for _ in range(2):
        memo.lookup("key", name_of("k"))
    record(store, 2)
    assert memo.known("key") is None
    assert memo.lookup("key", name_of("k")) == (2,)


def test_a_ref_replaced_during_the_lookup_is_not_taken_for_the_old(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, 1)
    memo: RefMemo[object] = RefMemo(store, Made(), clock_ns=lambda: LATER_NS)
    memo.lookup("key", name_of("k"))
    target = RefMemo._target

    def target_then_replaced(self: Any, name: RefName) -> Any:
        found = target(self, name)
        record(store, 2)
        return found

    monkeypatch.setattr(RefMemo, "_target", target_then_replaced)
    assert memo.lookup("key", name_of("k")) == (1,)
    monkeypatch.undo()
    assert memo.known("key") is None
    assert memo.lookup("key", name_of("k")) == (2,)


def test_a_deleted_ref_is_not_known(store: Store) -> None:
    record(store, 1)
    memo: RefMemo[object] = RefMemo(store, Made(), clock_ns=lambda: LATER_NS)
    for _ in range(2):
        memo.lookup("key", name_of("k"))
    store.delete_ref("config", TOPOLOGY, "k")
    assert memo.known("key") is None
    assert memo.lookup("key", name_of("k")) is None


def test_the_oldest_is_forgotten_first(store: Store) -> None:
    memo: RefMemo[object] = RefMemo(store, Made(), entries_max=2, clock_ns=lambda: LATER_NS)
    for kernel in "abc":
        record(store, kernel, kernel)
        for _ in range(2):
            memo.lookup(kernel, name_of(kernel))
    assert [memo.known(kernel) for kernel in "abc"] == [None, ("b",), ("c",)]


def test_what_could_not_be_made_is_tried_again(store: Store) -> None:
    record(store, 1)
    answers = iter([None, "made"])
    memo: RefMemo[object] = RefMemo(store, lambda _: next(answers), clock_ns=lambda: LATER_NS)
    assert [memo.lookup("key", name_of("k")) for _ in range(3)] == [None, "made", "made"]


def test_it_works_over_any_file_system() -> None:
    fs = MemoryFileSystem()
    lay_out(fs)
    store = Store(fs)
    memo: RefMemo[object] = RefMemo(store, Made())
    for n in range(3):
        record(store, n)
        assert [memo.lookup("key", name_of("k")) for _ in range(2)] == [(n,)] * 2
        assert memo.known("key") == (n,)
