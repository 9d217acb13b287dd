"""What gc remembers of links is a cache: right, or not used."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from castore.errors import ObjectNotFoundError
from castore.format import layout
from castore.format.value import Link, WeakLink
from castore.maintenance import gc
from castore.maintenance.known_links import KnownLinks
from castore.store.store import Store
from tests.store.worlds import errors_in, id_of, leftovers, manifest, memory_store

if TYPE_CHECKING:
    from castore.format.value import ObjectId, Value
    from castore.fs.memory import MemoryFileSystem

A, B = manifest(1), manifest(2)
WHOLE = manifest(3, part=Link(id_of(A)), evidence=WeakLink(id_of(B)))


def filled() -> tuple[Store, MemoryFileSystem]:
    """Return a store in which one ref keeps three objects, and of which a gc knows all."""
    store, fs = memory_store()
    for value in (A, B):
        store.put(value)
    store.set_name("kept", store.put(WHOLE))
    gc.plan(store)
    fs.advance(1)
    return store, fs


def reads(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that will hold the paths of the objects that are read."""
    seen: list[str] = []
    real = fs.read

    def watched(path: str, **limits: Any) -> bytes:
        if path.startswith(layout.OBJECTS):
            seen.append(path)
        return real(path, **limits)

    monkeypatch.setattr(fs, "read", watched)
    return seen


def test_a_second_gc_reads_only_what_has_come_since(monkeypatch: pytest.MonkeyPatch) -> None:
    store, fs = filled()
    new = store.put(manifest(4))
    seen = reads(fs, monkeypatch)
    assert gc.plan(store).reachable == 3
    assert seen == [layout.object_path(new)]


def test_what_is_known_keeps_what_reading_would_keep() -> None:
    store, fs = filled()
    rubbish = store.put(manifest(4, part=Link(id_of(A))))
    fs.advance(1)
    report = gc.apply(store, gc.plan(store, grace_s=0))
    assert report.removed == 1
    assert not store.has(rubbish)
    assert set(store.ids()) == {id_of(A), id_of(B), id_of(WHOLE)}
    assert gc.plan(store, grace_s=0).prune == ()


def test_a_weak_target_that_comes_later_is_kept() -> None:
    store, fs = memory_store()
    store.put(A)
    store.set_name("kept", store.put(WHOLE))
    gc.plan(store)
    store.put(B)
    fs.advance(1)
    assert gc.apply(store, gc.plan(store, grace_s=0)).removed == 0
    assert store.get(id_of(B)) == B


def test_every_flipped_bit_and_every_cut_of_the_cache_is_noticed() -> None:
    store, fs = filled()
    data = fs.read(layout.GC_LINKS, limit_bytes_max=10**6)
    known = KnownLinks(store)._known
    assert set(known) == {bytes.fromhex(id_of(value)) for value in (A, B, WHOLE)}
    damaged = [data[:size] for size in range(len(data))]
    damaged += [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]
    for each in damaged:
        fs.remove(layout.GC_LINKS)
        fs.write_new(layout.GC_LINKS, each)
        assert KnownLinks(store)._known == {}


ID = b"i" * 32


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91" * 2000,
        *map(
            msgpack.packb,
            [
                1,
                [],
                {ID: 1},
                {ID: [b""]},
                {ID: [b"", b"x"]},
                {ID: [[], []]},
                {b"x": [b"", b""]},
                {1: [b"", b""]},
                {ID: [ID, "text"]},
            ],
        ),
    ],
)
def test_what_hangs_together_and_is_no_table_counts_as_nothing_known(body: bytes) -> None:
    store, fs = filled()
    fs.remove(layout.GC_LINKS)
    fs.write_new(layout.GC_LINKS, blake3(body).digest() + body)
    assert KnownLinks(store)._known == {}
    assert gc.plan(store).reachable == 3


def test_a_plan_of_a_store_that_is_only_read_writes_no_cache() -> None:
    _, fs = filled()
    fs.remove(layout.GC_LINKS)
    before = len(fs.calls)
    assert gc.plan(Store(fs, read_only="it was opened so")).reachable == 3
    assert fs.calls[before:] == []


@pytest.mark.parametrize("call", ["read", "write_new", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_cache_that_cannot_be_read_or_written_stops_nothing(
    call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fs = filled()
    store.put(manifest(4))
    fs.advance(1)
    real = getattr(fs, call)

    def fails(path: str, *rest: Any, **more: Any) -> Any:
        is_cache = layout.GC_LINKS in (path, *rest) or path.startswith(layout.TMP)
        if is_cache:
            raise OSError(number, "made up", path)
        return real(path, *rest, **more)

    monkeypatch.setattr(fs, call, fails)
    assert gc.apply(store, gc.plan(store, grace_s=0)).removed == 1
    assert leftovers(fs) == []
    assert errors_in(store) == []


def test_what_is_neither_known_nor_there_is_not_found() -> None:
    store, _ = memory_store()
    with pytest.raises(ObjectNotFoundError):
        KnownLinks(store).of(id_of(A))


def test_what_is_gone_is_forgotten_with_the_next_news() -> None:
    store, fs = filled()
    rubbish = store.put(manifest(4))
    fs.advance(1)
    gc.apply(store, gc.plan(store, grace_s=0))
    store.put(manifest(5))
    gc.plan(store)
    assert bytes.fromhex(rubbish) not in KnownLinks(store)._known


@settings(max_examples=80, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "name", "drop", "gc", "look"]),
            st.integers(0, 5),
            st.sets(st.integers(0, 5), max_size=3),
        ),
        max_size=25,
    )
)
def test_with_and_without_the_cache_every_plan_is_the_same(
    steps: list[tuple[str, int, set[int]]],
) -> None:
    store, fs = memory_store()
    store.set_name("kept", store.put(A))
    made: dict[int, ObjectId] = {}
    for what, number, targets in steps:
        fs.advance(1)
        if what == "put":
            links: list[Value] = [
                (Link if target % 2 else WeakLink)(made[target])
                for target in sorted(targets)
                if target in made and (target % 2 == 0 or store.has(made[target]))
            ]
            made[number] = store.put(manifest(10 + number, links=links))
        elif what == "name" and number in made and not _lacks_a_part(store, made[number]):
            store.set_name(f"n{number}", made[number], on_conflict="replace")
        elif what == "drop":
            store.delete_name(f"n{number}")
        elif what in ("gc", "look"):
            expiry_s = 0 if number % 2 else 10**9
            planned = gc.plan(store, grace_s=0, log_expiry_s=expiry_s)
            if _exists(fs):
                fs.remove(layout.GC_LINKS)
            again = gc.plan(store, grace_s=0, log_expiry_s=expiry_s)
            assert set(planned.prune) == set(again.prune)
            assert planned.reachable == again.reachable
            if what == "gc":
                gc.apply(store, planned)
    assert [each for each in errors_in(store) if each.id != "object-link-missing"] == []


def _exists(fs: MemoryFileSystem) -> bool:
    return any(each.name == "gc-links" for each in fs.list_folder(layout.LOCKS))


def _lacks_a_part(store: Store, oid: ObjectId) -> bool:
    """Tell whether setting a ref to it would be refused: gc has taken it, or a part."""
    try:
        store.freshen(oid)
    except ObjectNotFoundError:
        return True
    return False
