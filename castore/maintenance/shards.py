"""Check all shards of a store, in this process or in several.

Threads would not help: small objects are decoded in Python, one at a time. So a
large store is checked by processes that open it again by its path. They cost about
as much to start as thousands of objects take to check: a small store is checked
here, and so is one that has no path.
"""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from castore.errors import NotRegularFileError
from castore.format import layout
from castore.fs.posix import PosixFileSystem
from castore.maintenance.object_check import check_shard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.fs.protocol import FileSystem
    from castore.maintenance.findings import Level
    from castore.maintenance.object_check import Schemas, ShardReport

OBJECTS_MIN = 10_000
"""From about how many objects on several processes are worth their start."""

_SHARDS_SAMPLED = layout.SHARDS[::32]
_SHARDS_AT_ONCE = 4


def in_processes(
    fs: FileSystem, level: Level, schemas: Schemas, *, processes: int
) -> Iterator[ShardReport]:
    """Yield the reports of the first shards, in order, made by other processes.

    It ends early, maybe before the first, where processes are of no use or fail: the caller
    does the rest.

    Args:
        fs: The store's file system.
        level: How closely to look.
        schemas: Functions that another process can import by their names.
        processes: How many to start.
    """
    if processes < 2 or type(fs) is not PosixFileSystem or estimated_objects(fs) < OBJECTS_MIN:
        return
    work = partial(_check, fs.root, level, schemas)
    try:
        with ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_ignore_interrupts
        ) as pool:
            yield from pool.map(work, layout.SHARDS, chunksize=_SHARDS_AT_ONCE)
    except (BrokenProcessPool, OSError):
        return


def estimated_objects(fs: FileSystem) -> int:
    """Return about how many loose objects there are, from a few shards: ids are spread evenly."""
    counted = 0
    for shard in _SHARDS_SAMPLED:
        try:
            counted += len(fs.list_folder(f"{layout.OBJECTS}/{shard}"))
        except (OSError, NotRegularFileError):
            continue  # the check itself says it
    return counted * len(layout.SHARDS) // len(_SHARDS_SAMPLED)


def _check(root: str, level: Level, schemas: Schemas, shard: str) -> ShardReport:
    return check_shard(_opened(root), shard, level, schemas)


@cache
def _opened(root: str) -> PosixFileSystem:
    return PosixFileSystem(root)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that is in charge."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
