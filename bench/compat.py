"""PersistentCache, as a library asks it: a known key again and again, and each key once.

Limits: 8 us for a key that this process asked for before. For one that it did not,
2.0 times reading, decompressing and decoding: both the two files that answer, a ref and
an object, and the object alone, which is what a store without refs would read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TYPE_CHECKING

import castore
from bench import manifests
from bench.floor import Floor
from bench.measure import Plan, Result, Row, chunked, compare, in_turns
from castore.compat import PersistentCache

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICE = "NVIDIA H100 80GB HBM3|cuda 12.4"
OPERATION = "flash_attention@v2"

_NOTES = (
    "a configuration is a dataclass of six fields; warm: asked for before by this process",
    "cold: a new cache object, each key once; the files come from the page cache",
    "floors of cold: open, fstat, read, close of a ref and an object, or of an object alone",
    "they decompress and decode, but hash no key, check no content and make no dataclass",
    "not in cold: what a process pays once for each folder, and once a day for each key",
)


@dataclass(frozen=True, slots=True)
class _Config:
    """A kernel's configuration as such libraries have them."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int
    platform: str
    backend: str


def run(plan: Plan) -> Result:
    """Measure gets, warm and cold."""
    folder = f"{plan.folder}/store"
    castore.open(folder, durability="none").close()
    keys = [f"{number:016x}" for number in range(plan.sized(500, 60))]
    cache = _cache(folder)
    chance = random.Random(manifests.SEED)  # noqa: S311 - repeatable data, no secrets
    for key in keys:
        block, warps = chance.choice((32, 64, 128)), chance.choice((1, 2, 4, 8))
        cache.put(DEVICE, OPERATION, key, _Config(block, 2 * block, warps, 3, "triton", "gpu"))
    return Result((_warm(plan, cache, keys), *_cold(plan, folder, keys)), _NOTES)


def _cache(folder: str) -> PersistentCache[_Config]:
    return PersistentCache("flash_attention", folder, cfg_type=_Config)


def _warm(plan: Plan, cache: PersistentCache[_Config], keys: Sequence[str]) -> Row:
    def get_all(chunk: Sequence[str]) -> None:
        for key in chunk:
            cache.get(DEVICE, OPERATION, key)

    get_all(keys)
    chunks = chunked(list(keys) * plan.sized(20, 4), plan.sized(250, 20))
    rounds = in_turns(chunks, get_all, len)
    times_ns = [spent_ns for spent_ns, _ in rounds]
    return Row(
        "PersistentCache.get, warm",
        castore_us=median(times_ns) / len(chunks[0]) / 1e3,
        limit_us=8.0,
        rounds=len(rounds),
        operations=len(chunks[0]),
    )


def _cold(plan: Plan, folder: str, keys: Sequence[str]) -> tuple[Row, Row]:
    floor = Floor(folder)
    with castore.open(folder) as store:
        refs = list(store.refs("config"))
    paths = [f"refs/config/{ref.key[:2]}/{ref.key[2:]}" for ref in refs]
    total = plan.sized(20, 4)
    caches = [_cache(folder) for _ in range(2 * total)]
    rounds_done = count()

    def get_all(chunk: Sequence[int]) -> None:
        cache = caches[next(rounds_done)]
        for number in chunk:
            cache.get(DEVICE, OPERATION, keys[number])

    def floor_all(chunk: Sequence[int]) -> None:
        for number in chunk:
            floor.lookup(paths[number])

    def load_all(chunk: Sequence[int]) -> None:
        for number in chunk:
            floor.load(refs[number].object)

    chunks = [range(len(keys))] * total
    to_both = in_turns(chunks, get_all, floor_all)
    to_object = in_turns(chunks, get_all, load_all)
    name = "PersistentCache.get, cold"
    return (
        compare(f"{name}, to both files", to_both, operations=len(keys), limit=2.0),
        compare(f"{name}, to the object", to_object, operations=len(keys), limit=2.0),
    )
