"""Whether a gc is worth its time: a look that is cheap enough to take after every tuning run.

A gc reads all that is reachable, so one that finds nothing is dear. What it could
find are objects that came since the last one: their number is estimated from a few
shards, over which ids are spread evenly.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import CastoreError
from castore.format import layout
from castore.maintenance.shards import estimated_objects
from castore.objects.loose import temp_path

if TYPE_CHECKING:
    from castore.store.store import Store

INTERVAL_S = 24 * 3600.0
"""At least this long lies between two, in seconds."""

QUIET_S = 30 * 24 * 3600.0
"""After this long, in seconds, one is due even where little has changed."""

GROWTH_MIN = 1000
"""How many objects at least have to be new."""

GROWTH_RATIO = 0.2
"""How many have to be new in a large store, as a share of what the last gc left."""

_DONE_BYTES_MAX = 200
_NS = 10**9
_done = re.compile("time_ns ([0-9]{1,20})\nobjects ([0-9]{1,12})\n").fullmatch


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a gc is due.

    Attributes:
        is_due: Whether it is.
        reason: Why, or why not, in words.
    """

    is_due: bool
    reason: str


def decide(store: Store) -> Decision:
    """Return whether a gc is due; reads the names in a few folders and no object."""
    objects = estimated_objects(store.fs)
    last = _last(store)
    if last is None:
        told = f"{_told(objects, GROWTH_MIN)}, and no gc yet"
        return Decision(objects >= GROWTH_MIN, told)
    time_ns, objects_then = last
    age_s = (store.fs.clock_ns(layout.CLOCK) - time_ns) / _NS
    if 0 <= age_s < INTERVAL_S:
        return Decision(is_due=False, reason="the last gc ended less than a day ago")
    if age_s >= QUIET_S:
        return Decision(is_due=True, reason=f"the last gc ended {age_s / INTERVAL_S:.0f} days ago")
    growth, wanted = objects - objects_then, max(GROWTH_MIN, int(GROWTH_RATIO * objects_then))
    return Decision(growth >= wanted, f"{_told(growth, wanted)} more than after the last gc")


def _told(objects: int, wanted: int) -> str:
    """Return an estimate in words; of a small store it is too rough to be told."""
    return (
        f"about {objects:,} objects"
        if objects >= wanted
        else f"fewer than about {wanted:,} objects"
    )


def note_done(store: Store) -> None:
    """Write down that a gc has just ended; a disk that is full, or a fault, loses only that."""
    staged = temp_path()
    with contextlib.suppress(OSError, CastoreError):
        time_ns = store.fs.clock_ns(layout.CLOCK)
        text = f"time_ns {time_ns}\nobjects {estimated_objects(store.fs)}\n"
        store.fs.write_new(staged, text.encode())
        store.fs.rename(staged, layout.GC_DONE)
        return
    with contextlib.suppress(OSError):
        store.fs.remove(staged)


def _last(store: Store) -> tuple[int, int] | None:
    """Return when the last gc ended and how many objects it left; None where that is unknown."""
    try:
        data = store.fs.read(layout.GC_DONE, limit_bytes_max=_DONE_BYTES_MAX)
    except (FileNotFoundError, CastoreError):
        return None
    found = _done(data.decode("ascii", "replace"))
    return None if found is None else (int(found[1]), int(found[2]))
