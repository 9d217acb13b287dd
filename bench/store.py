"""The everyday operations, each against its floor, on 5,000 tuning manifests.

Limits: `put` 1.2, `put` in a batch 1.6, `get` 1.3, `lookup` 1.6.
"""

from __future__ import annotations

import random
from itertools import count
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
    "files that are read were written moments before: they come from the page cache",
    "floor of get: open, fstat, read, close, decompress, hash, decode",
    "floor of lookup: two times open, fstat, read, close; decompress, decode; nothing hashed",
    "floor of put: encode, hash, compress, write, fsync, rename, fsync of the folder",
    "a floor does not look whether an object is there, nor decompress what it compressed",
)


def run(plan: Plan) -> Result:
    """Measure every operation of the store."""
    values: list[Value] = list(manifests.make(plan.sized(manifests.COUNT, 60)))
    with castore.open(f"{plan.folder}/store") as store:
        floor = Floor(f"{plan.folder}/floor")
        floor.lay_out()
        rows = [_put_durable(plan, store, floor, values), _put_again(plan, store, floor, values)]
        rows.append(_put_in_batch(plan, values))
        rows.append(_get(plan, store, values))
        rows.append(_lookup(plan, store, values))
    return Result(tuple(rows), _NOTES)


def _put_durable(plan: Plan, store: Store, floor: Floor, values: Sequence[Value]) -> Row:
    chunks = chunked(values, plan.sized(100, 20))
    rounds = in_turns(
        chunks,
        lambda chunk: [store.put(value) for value in chunk],
        lambda chunk: [floor.put_durable(value) for value in chunk],
    )
    return compare("put, durable", rounds, operations=len(chunks[0]), limit=1.2)


def _put_again(plan: Plan, store: Store, floor: Floor, values: Sequence[Value]) -> Row:
    chunks = chunked(values[: plan.sized(1000, 60)], plan.sized(50, 20))
    rounds = in_turns(
        chunks,
        lambda chunk: [store.put(value) for value in chunk],
        lambda chunk: [floor.put_again(value) for value in chunk],
    )
    return compare("put of what is there", rounds, operations=len(chunks[0]))


def _put_in_batch(plan: Plan, values: Sequence[Value]) -> Row:
    folders = count()
    total = plan.sized(10, 3)
    stores = [castore.open(f"{plan.folder}/batch-{next(folders)}") for _ in range(total)]
    floors = [Floor(f"{plan.folder}/batch-{next(folders)}") for _ in range(total)]
    for floor in floors:
        floor.lay_out()
    fresh_stores, fresh_floors = iter(stores), iter(floors)

    def put_batch(chunk: Sequence[Value]) -> list[ObjectId]:
        with next(fresh_stores).batch() as batch:
            return [batch.put(value) for value in chunk]

    rounds = in_turns(
        [values] * total, put_batch, lambda chunk: next(fresh_floors).put_batch(chunk)
    )
    return compare("put, in a batch", rounds, operations=len(values), limit=1.6)


def _get(plan: Plan, store: Store, values: Sequence[Value]) -> Row:
    floor = Floor(str(store.root))
    ids = [castore.object_id(castore.encode(value)) for value in values[: plan.sized(1000, 60)]]
    chunks = _shuffled_chunks(plan, ids)

    def get_all(chunk: Sequence[str]) -> None:
        for oid in chunk:
            store.get(oid)

    def floor_all(chunk: Sequence[str]) -> None:
        for oid in chunk:
            floor.get(oid)

    rounds = in_turns(chunks, get_all, floor_all)
    return compare("get", rounds, operations=len(chunks[0]), limit=1.3)


def _lookup(plan: Plan, store: Store, values: Sequence[Value]) -> Row:
    floor = Floor(str(store.root))
    paths: dict[str, str] = {}
    with store.batch():
        for number, value in enumerate(values[: plan.sized(1000, 60)]):
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
