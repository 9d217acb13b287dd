"""The everyday operations, each against its floor, on 5,000 tuning manifests.

Limits: `put` 1.2, `put` in a batch 1.6, `get` 1.3, `lookup` 1.6.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import castore
from bench import manifests
from bench.floor import Floor
from bench.measure import Plan, Result, Row, chunked, compare, in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from castore import ObjectId, Store, Value

NAMESPACE = "tuning"

_NOTES = (
    "a batch holds all of the data, in a fresh store each; the others work on chunks of it",
    "both sides of a put write into the folders of one store, the floor manifests of its own:",
    "a file system may create files far more slowly in one folder than in its neighbour, and",
    "for minutes after many were deleted: then the floor's time is large and the ratio near 1",
    "files that are read were written moments before: they come from the page cache",
    "floor of put: encode, hash, look, compress, decompress, compare, write, fsync, rename, fsync",
    "of the folder; the rows `without checks` leave out look, decompress and compare",
    "floor of get: open, fstat, read, close, decompress, hash, decode",
    "floor of lookup: two times open, fstat, read, close; decompress, decode; nothing hashed",
)


@dataclass(frozen=True, slots=True)
class _Data:
    """What is stored.

    Attributes:
        ours: The manifests that castore stores.
        theirs: As many of the same shape, none of them the same, for the floor.
        read: How many of `ours` are read back.
    """

    ours: list[Value]
    theirs: list[Value]
    read: int

    @classmethod
    def make(cls, plan: Plan) -> _Data:
        size = plan.sized(manifests.COUNT, 60)
        made: list[Value] = list(manifests.make(2 * size))
        return cls(made[:size], made[size:], plan.sized(1_000, 60))


def run(plan: Plan) -> Result:
    """Measure every operation of the store."""
    data = _Data.make(plan)
    with castore.open(f"{plan.folder}/store") as store:
        rows = (
            _put_durable(plan, store, data, limit=1.2),
            _put_again(plan, store, data),
            _get(plan, store, data),
            _lookup(plan, store, data),
        )
    with castore.open(f"{plan.folder}/unchecked") as store:
        unchecked = _put_durable(plan, store, data, checks=False)
    batches = (
        _put_in_batch(plan, data, limit=1.6),
        _put_in_batch(plan, data, checks=False),
    )
    return Result((rows[0], unchecked, *batches, *rows[1:]), _NOTES)


def _put_durable(
    plan: Plan, store: Store, data: _Data, *, checks: bool = True, limit: float | None = None
) -> Row:
    floor = Floor(str(store.root), checks=checks)
    chunks = chunked(range(len(data.ours)), plan.sized(100, 20))
    rounds = in_turns(
        chunks,
        lambda chunk: [store.put(data.ours[number]) for number in chunk],
        lambda chunk: [floor.put_durable(data.theirs[number]) for number in chunk],
    )
    name = _named("put, durable", checks=checks)
    return compare(name, rounds, operations=len(chunks[0]), limit=limit)


def _put_again(plan: Plan, store: Store, data: _Data) -> Row:
    floor = Floor(str(store.root))
    chunks = chunked(range(data.read), plan.sized(50, 20))
    rounds = in_turns(
        chunks,
        lambda chunk: [store.put(data.ours[number]) for number in chunk],
        lambda chunk: [floor.put_again(data.theirs[number]) for number in chunk],
    )
    return compare("put of what is there", rounds, operations=len(chunks[0]))


def _put_in_batch(
    plan: Plan, data: _Data, *, checks: bool = True, limit: float | None = None
) -> Row:
    def put_batch(chunk: Sequence[Store]) -> list[ObjectId]:
        with chunk[0].batch() as batch:
            return [batch.put(value) for value in data.ours]

    def floor_batch(chunk: Sequence[Store]) -> list[str]:
        return Floor(str(chunk[0].root), checks=checks).put_batch(data.theirs)

    folders = (f"{plan.folder}/batch-{checks}-{n}" for n in range(plan.sized(10, 3)))
    stores = [castore.open(folder) for folder in folders]
    rounds = in_turns([[store] for store in stores], put_batch, floor_batch)
    name = _named("put, in a batch", checks=checks)
    return compare(name, rounds, operations=len(data.ours), limit=limit)


def _named(operation: str, *, checks: bool) -> str:
    return operation if checks else f"{operation}; floor without checks"


def _get(plan: Plan, store: Store, data: _Data) -> Row:
    floor = Floor(str(store.root))
    ids = [castore.object_id(castore.encode(value)) for value in data.ours[: data.read]]
    chunks = _shuffled_chunks(plan, ids)

    def get_all(chunk: Sequence[str]) -> None:
        for oid in chunk:
            store.get(oid)

    def floor_all(chunk: Sequence[str]) -> None:
        for oid in chunk:
            floor.get(oid)

    rounds = in_turns(chunks, get_all, floor_all)
    return compare("get", rounds, operations=len(chunks[0]), limit=1.3)


def _lookup(plan: Plan, store: Store, data: _Data) -> Row:
    floor = Floor(str(store.root))
    paths: dict[str, str] = {}
    with store.batch():
        for number, value in enumerate(data.ours[: data.read]):
            kernel = manifests.kernel(number)
            store.record(NAMESPACE, manifests.TOPOLOGY, kernel, value)
            key = castore.topology_key(manifests.TOPOLOGY, kernel)
            paths[kernel] = f"refs/{NAMESPACE}/{key[:2]}/{key[2:]}"
    chunks = _shuffled_chunks(plan, list(paths))

    def lookup_all(chunk: Sequence[str]) -> None:
        for kernel in chunk:
            store.lookup(NAMESPACE, manifests.TOPOLOGY, kernel)

    def floor_all(chunk: Sequence[str]) -> None:
        for kernel in chunk:
            floor.lookup(paths[kernel])

    rounds = in_turns(chunks, lookup_all, floor_all)
    return compare("lookup", rounds, operations=len(chunks[0]), limit=1.6)


def _shuffled_chunks(plan: Plan, items: Sequence[str]) -> list[Sequence[str]]:
    """Return chunks that go through the items in chance order, each several times."""
    chance = random.Random(manifests.SEED)  # noqa: S311 - repeatable order, no secrets
    drawn = [item for _ in range(plan.sized(12, 2)) for item in chance.sample(items, len(items))]
    return chunked(drawn, plan.sized(250, 20))
