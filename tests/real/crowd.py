"""What the members of a crowd do, beside the tasks of `tests.store.writers`.

Each says at its end how much it did, and what of its own must still be there.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import castore
from castore.errors import ObjectNotFoundError, RefConflictError
from castore.format.value import Link
from castore.fs.posix import PosixFileSystem
from castore.store.store import PreviousValue
from tests.store import writers
from tests.store.worlds import id_of
from tests.store.writers import TOPOLOGY, WAYS, say, value

if TYPE_CHECKING:
    from castore.store.store import Store

OWN = 12
SHARED = 4
_LOOKS_MAX = 5


def crowd_write(store: Store, me: str, seconds: str) -> None:
    """Change refs of my own and refs that all write, in every way; look at each of my own."""
    chance = random.Random(int(me))  # noqa: S311 - no secret
    mine: dict[str, str | None] = {}
    operations = refused = 0
    end_s = time.monotonic() + float(seconds)
    while time.monotonic() < end_s:
        operations += 1
        part = value("part", chance.randrange(6))
        whole = value("whole", chance.randrange(6), part=Link(id_of(part)))
        try:
            if chance.randrange(4) == 0:
                _contend(store, chance, part, whole)
            else:
                kernel = f"{me}-{chance.randrange(OWN)}"
                _change_mine(store, chance, kernel, part, whole, mine)
        except (ObjectNotFoundError, RefConflictError):
            refused += 1  # a bare put is not safe until its ref is made, and that is said
    say(operations=operations, refused=refused, mine=mine)


def _change_mine(
    store: Store,
    chance: random.Random,
    kernel: str,
    part: Any,
    whole: Any,
    mine: dict[str, str | None],
) -> None:
    if chance.randrange(8) == 0:
        store.delete_ref("tuning", TOPOLOGY, kernel)
        mine[kernel] = None
        return
    way = WAYS[chance.randrange(len(WAYS))]
    if way is writers._delete_and_set:
        store.delete_ref("tuning", TOPOLOGY, kernel)
        mine[kernel] = None
    way(store, kernel, part, whole)
    mine[kernel] = id_of(whole)
    found = store.lookup("tuning", TOPOLOGY, kernel)
    if found != whole or store.get(id_of(part)) != part:
        say(lost=kernel, found=found, want=whole)


def _contend(store: Store, chance: random.Random, part: Any, whole: Any) -> None:
    kernel = f"shared-{chance.randrange(SHARED)}"
    now = store.get_ref("tuning", TOPOLOGY, kernel)
    expected = PreviousValue.MUST_NOT_EXIST if now is None else now.object
    with store.batch():
        store.put(part)
        store.record("tuning", TOPOLOGY, kernel, whole, expected=expected)
    if chance.randrange(4) == 0:
        store.delete_ref("tuning", TOPOLOGY, kernel, expected=id_of(whole))


def crowd_read(store: Store) -> None:
    """List and read everything until stdin is closed; say what should not have been seen."""
    _tell_temp_files()
    rounds = reads = 0
    os.set_blocking(sys.stdin.fileno(), False)
    while not writers._is_closed():
        rounds += 1
        for oid in store.ids():
            # Raises where a name that is no id was listed; the object may have gone since.
            store.has(castore.ObjectId(oid))
        for ref in store.refs():
            reads += 1
            if _is_lost(store, ref.kernel):
                say(lost=ref.kernel)
    say(rounds=rounds, operations=reads)


def _is_lost(store: Store, kernel: str | None) -> bool:
    """Tell whether a ref goes on naming the same object, which goes on not being there."""
    for _ in range(_LOOKS_MAX):
        before = store.get_ref("tuning", TOPOLOGY, kernel)
        found = store.lookup("tuning", TOPOLOGY, kernel)
        if found is not None or before is None:
            return False
        if store.get_ref("tuning", TOPOLOGY, kernel) != before:
            return False
    return True


def _tell_temp_files() -> None:
    """Say it when this process opens a temp file, or lists the folder that they are in."""
    read, list_folder = PosixFileSystem.read, PosixFileSystem.list_folder

    def watched_read(self: PosixFileSystem, path: str, **limits: Any) -> bytes:
        _tell(path)
        return read(self, path, **limits)

    def watched_list(self: PosixFileSystem, path: str) -> Any:
        _tell(path)
        return list_folder(self, path)

    PosixFileSystem.read = watched_read  # type: ignore[method-assign]  # on purpose
    PosixFileSystem.list_folder = watched_list  # type: ignore[method-assign]  # on purpose


def _tell(path: str) -> None:
    if path.startswith("local/tmp"):
        say(opened=path)


writers.TASKS |= {"crowd_write": crowd_write, "crowd_read": crowd_read}

if __name__ == "__main__":
    writers.main(*sys.argv[1:])
