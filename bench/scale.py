"""What one operation costs in a store of 100,000 entries, against one of 1,000.

Limit: 1.25. Here the small store takes the floor's place.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import castore
from bench import manifests
from bench.measure import Plan, Result, Row, chunked, compare, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from castore import ObjectId, Store, Value

LIMIT = 1.25
NAMESPACE = "tuning"

_SMALL = 1_000
_LARGE = 100_000
_FILL = 5_000  # entries recorded in one batch

_NOTES = (
    "each entry is an object and a ref; castore's side has {large:,}, the floor's {small:,}",
    "durability is none, so that no sync hides anything, except where a row says durable",
    "both sides use as many different entries, drawn over the whole store",
    "each of them was read once before: nothing here measures a cold cache",
    "what put and set_ref add is removed after each round, untimed",
)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A store with entries, and a sample of them.

    Attributes:
        store: The store, writing without syncs.
        durable: The same store, writing with them.
        ids: Objects of the sample.
        kernels: The kernel texts of the refs that name them.
    """

    store: Store
    durable: Store
    ids: list[ObjectId]
    kernels: list[str]

    @classmethod
    def make(cls, folder: str, values: Sequence[Value], sample: Sequence[int]) -> _Filled:
        store = castore.open(folder, durability="none")
        ids: list[ObjectId] = []
        for start in range(0, len(values), _FILL):
            with store.batch():
                for number in range(start, min(start + _FILL, len(values))):
                    kernel = manifests.kernel(number)
                    record = store.record
                    ids.append(record(NAMESPACE, manifests.TOPOLOGY, kernel, values[number]))
        kernels = [manifests.kernel(number) for number in sample]
        return cls(store, castore.open(folder), [ids[number] for number in sample], kernels)


def run(plan: Plan) -> Result:
    """Measure each operation in both stores."""
    small_size, large_size = plan.sized(_SMALL, 60), plan.sized(_LARGE, 240)
    values: list[Value] = list(manifests.make(large_size + plan.sized(1_200, 60)))
    filling, new = values[:large_size], values[large_size:]
    sample_size = plan.sized(1_000, 60)
    chance = random.Random(manifests.SEED)  # noqa: S311 - repeatable order, no secrets
    sample = chance.sample(range(large_size), sample_size)
    small = _Filled.make(f"{plan.folder}/small", filling[:small_size], range(sample_size))
    large = _Filled.make(f"{plan.folder}/large", filling, sample)
    rows = (
        _get(plan, small, large),
        _lookup(plan, small, large),
        _put(plan, small.store, large.store, new, "put"),
        _put(plan, small.durable, large.durable, new, "put, durable"),
        _set_ref(plan, small, large),
    )
    notes = (_NOTES[0].format(small=small_size, large=large_size), *_NOTES[1:])
    return Result(rows, notes)


def _get(plan: Plan, small: _Filled, large: _Filled) -> Row:
    def get(side: _Filled) -> Callable[[Sequence[int]], None]:
        def get_all(chunk: Sequence[int]) -> None:
            for index in chunk:
                side.store.get(side.ids[index])

        return get_all

    chunks = _reading_chunks(plan, len(small.ids))
    rounds = in_turns(chunks, get(large), get(small))
    return compare("get", rounds, operations=len(chunks[-1]), limit=LIMIT)


def _lookup(plan: Plan, small: _Filled, large: _Filled) -> Row:
    def lookup(side: _Filled) -> Callable[[Sequence[int]], None]:
        def lookup_all(chunk: Sequence[int]) -> None:
            for index in chunk:
                side.store.lookup(NAMESPACE, manifests.TOPOLOGY, side.kernels[index])

        return lookup_all

    chunks = _reading_chunks(plan, len(small.ids))
    rounds = in_turns(chunks, lookup(large), lookup(small))
    return compare("lookup", rounds, operations=len(chunks[-1]), limit=LIMIT)


def _put(plan: Plan, small: Store, large: Store, new: Sequence[Value], name: str) -> Row:
    def remove(chunk: Sequence[Value]) -> None:
        for value in chunk:
            oid = castore.object_id(castore.encode(value))
            for store in (small, large):
                os.unlink(f"{store.root}/objects/{oid[:2]}/{oid[2:]}")

    chunks = chunked(new, plan.sized(50, 20))
    rounds = in_turns(
        chunks,
        lambda chunk: [large.put(value) for value in chunk],
        lambda chunk: [small.put(value) for value in chunk],
        between=remove,
    )
    return compare(name, rounds, operations=len(chunks[0]), limit=LIMIT)


def _set_ref(plan: Plan, small: _Filled, large: _Filled) -> Row:
    def set_ref(side: _Filled) -> Callable[[Sequence[int]], None]:
        def set_all(chunk: Sequence[int]) -> None:
            for index in chunk:
                oid = side.ids[index % len(side.ids)]
                side.store.set_ref(NAMESPACE, manifests.TOPOLOGY, f"new[{index}]", oid)

        return set_all

    def remove(chunk: Sequence[int]) -> None:
        for index in chunk:
            key = castore.topology_key(manifests.TOPOLOGY, f"new[{index}]")
            for side in (small, large):
                os.unlink(f"{side.store.root}/refs/{NAMESPACE}/{key[:2]}/{key[2:]}")

    chunks = chunked(range(plan.sized(1_200, 60)), plan.sized(50, 20))
    rounds = in_turns(chunks, set_ref(large), set_ref(small), between=remove)
    return compare("set_ref", rounds, operations=len(chunks[0]), limit=LIMIT)


def _reading_chunks(plan: Plan, sample_size: int) -> list[Sequence[int]]:
    """Return rounds of indices into the sample; the first, which warms up, has all of it."""
    chance = random.Random(manifests.SEED)  # noqa: S311 - repeatable order, no secrets
    size = plan.sized(250, 20)
    drawn = [i for _ in range(plan.sized(12, 2)) for i in chance.sample(range(sample_size), size)]
    return [range(sample_size), *chunked(drawn, size)]
