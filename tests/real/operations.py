"""The operations that are traced and killed, and what holds before and after each of them.

Run as `python -m tests.real.operations SCRATCH` it is a server: for each line on stdin, a JSON
object with an operation, a root and a durability, it forks a child that opens the store,
says its process id, waits for one more line, and does the operation. What the child
acknowledged, and how it ended, is said at the end. So a tracer can attach to a process
in which nothing but the operation is left to do, and no interpreter is started for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import castore
from castore.maintenance import gc
from castore.maintenance.pins import pin, pins, unpin
from tests.store.worlds import TOPOLOGY, id_of, manifest, object_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.store.store import Store

DAY_S = 24 * 3600
HARDWARE = id_of(TOPOLOGY)
PART = manifest(1)
KEPT = manifest(2, part=castore.Link(id_of(PART)))
THERE, OLD, NEW, DAMAGED = manifest(3), manifest(4), manifest(5), manifest(6)
PINNED, GONE = manifest(7), manifest(8)
OTHER_HARDWARE: dict[str, Any] = {"kind": "topology", "schema": 1, "silicon": {"device": "other"}}
RUBBISH = [manifest(100)]
RUBBISH += [manifest(100 + n, part=castore.Link(id_of(RUBBISH[0]))) for n in range(1, 6)]
MANY = [manifest(1000 + number) for number in range(20)]

# What a ref may name at any moment, whatever is killed; None where it may be missing.
ALLOWED: dict[str, list[Any]] = {
    "kept": [KEPT],
    "replaced": [OLD, NEW],
    "deleted": [GONE, None],
    "new": [NEW, None],
    "in a batch": [MANY[0], None],
}

Place: TypeAlias = "Store | str"
_READY = b"ready"
_PR_SET_PTRACER = 0x59616D61


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a process is killed in.

    Attributes:
        work: Does it; returns what it acknowledges. It may be repeated.
        holds: Tells whether it is done, in a store whose writer was told so.
        spoil: What is wrong with the store before, and may be until it is done.
        is_open: Whether the store is opened before the work, not as a part of it.
        repetitions: How often to do it again until it is done.
    """

    work: Callable[[Any], object]
    holds: Callable[[Store], object]
    spoil: Callable[[Path], object] = field(default=lambda _: None)
    is_open: bool = True
    repetitions: int = 1


def prepare(root: Path) -> None:
    """Make a store that has something for every operation."""
    store = castore.open(root, durability="none")
    for value in (PART, TOPOLOGY, THERE, DAMAGED, PINNED, *RUBBISH):
        store.put(value)
    for kernel, value in (("kept", KEPT), ("replaced", OLD), ("deleted", GONE)):
        store.record("tuning", HARDWARE, kernel, value)
    pin(store, id_of(PINNED), reason="a test")
    pin(store, id_of(DAMAGED), reason="a test")
    for abandoned in (root / "local/tmp" / ("ab" * 12), root / "local/leases" / ("cd" * 12)):
        abandoned.write_bytes(b"half of something")
        age(abandoned)


def age(path: Path, *, days: int = 2) -> None:
    """Make a file look as if it had been written some days ago."""
    then_s = path.stat().st_mtime - days * DAY_S
    os.utime(path, (then_s, then_s))


def _has(*values: Any) -> Callable[[Store], bool]:
    return lambda store: all(store.get(id_of(value)) == value for value in values)


def _names(kernel: str, value: Any) -> Callable[[Store], bool]:
    return lambda store: store.lookup("tuning", HARDWARE, kernel) == value


def _init(root: str) -> object:
    return castore.open(root).root.name


def _collect(store: Store) -> object:
    with gc.locked(store):
        return gc.apply(store, gc.plan(store, grace_s=0, log_expiry_s=0)).removed


def _record_new(store: Store) -> object:
    return store.record("tuning", OTHER_HARDWARE, "new", NEW)


def _set_ref(store: Store) -> object:
    return store.set_ref("tuning", HARDWARE, "new", store.put(NEW)).object


def _set_ref_again(store: Store) -> object:
    return store.set_ref("tuning", HARDWARE, "kept", id_of(KEPT)).object


def _replace(store: Store) -> object:
    return store.record("tuning", HARDWARE, "replaced", NEW, on_conflict="replace")


def _batch(store: Store) -> object:
    with store.batch():
        store.put(THERE)
        store.put(MANY[1])
        store.record("tuning", HARDWARE, "replaced", NEW, on_conflict="replace")
        return store.record("tuning", HARDWARE, "in a batch", MANY[0])


def _large_batch(store: Store) -> object:
    with store.batch():
        return [store.put(value) for value in MANY]


def _damage(root: Path) -> None:
    path = object_file(root, id_of(DAMAGED))
    path.chmod(0o644)
    path.write_bytes(b"")


OPERATIONS: dict[str, Operation] = {
    "init": Operation(_init, lambda _: True, is_open=False),
    "put": Operation(lambda store: store.put(NEW), _has(NEW)),
    "put-again": Operation(lambda store: store.put(THERE), _has(THERE)),
    "put-over-damage": Operation(lambda store: store.put(DAMAGED), _has(DAMAGED), _damage),
    "record": Operation(
        _record_new, lambda store: store.lookup("tuning", OTHER_HARDWARE, "new") == NEW
    ),
    "set-ref": Operation(_set_ref, _names("new", NEW)),
    "set-ref-again": Operation(_set_ref_again, _names("kept", KEPT)),
    "replace": Operation(_replace, _names("replaced", NEW)),
    "delete": Operation(
        lambda store: store.delete_ref("tuning", HARDWARE, "deleted"), _names("deleted", None)
    ),
    "batch": Operation(
        _batch,
        lambda store: _names("replaced", NEW)(store) and _names("in a batch", MANY[0])(store),
    ),
    "large-batch": Operation(_large_batch, _has(*MANY)),
    # What a gc that was killed had in hand is put back by the next one, and judged by the third.
    "gc": Operation(
        _collect,
        lambda store: not any(store.has(id_of(each)) for each in RUBBISH),
        repetitions=2,
    ),
    "pin": Operation(
        lambda store: pin(store, id_of(THERE), reason="a test"),
        lambda store: id_of(THERE) in {each.oid for each in pins(store)},
    ),
    "unpin": Operation(
        lambda store: unpin(store, id_of(PINNED)),
        lambda store: id_of(PINNED) not in {each.oid for each in pins(store)},
    ),
}


def warm_up(place: str) -> None:
    """Do everything once, so that no child imports or looks up anything for the first time."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for name, operation in OPERATIONS.items():
            root = Path(folder, name)
            if operation.is_open:
                prepare(root)
                operation.spoil(root)
            operation.work(castore.open(root) if operation.is_open else str(root))


def serve(scratch: str) -> None:
    """Do what stdin asks for, a line each."""
    warm_up(scratch)
    for line in sys.stdin:
        request = json.loads(line)
        go_read, go_write = os.pipe()
        said_read, said_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go_write)
            os.close(said_read)
            _be_the_child(request, go_read, said_write)
        os.close(go_read)
        os.close(said_write)
        # Whoever traces it now sees the operation, and nothing of what it needs first.
        os.read(said_read, len(_READY))
        _say(pid=child)
        sys.stdin.readline()
        os.close(go_write)
        with os.fdopen(said_read, encoding="utf-8") as said:
            acknowledged = said.read()
        _, status = os.waitpid(child, 0)
        _say(status=os.waitstatus_to_exitcode(status), said=acknowledged)


def _be_the_child(request: dict[str, Any], go: int, said: int) -> None:
    status = 1
    try:
        # Where only a parent may trace, whoever asks for this child may as well.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, -1)
        operation = OPERATIONS[request["operation"]]
        place: Place = request["root"]
        if operation.is_open:
            place = castore.open(request["root"], durability=request["durability"])
        os.write(said, _READY)
        os.read(go, 1)
        operation.work(place)
        os.write(said, b"acknowledged")
        status = 0
    except BaseException:  # noqa: BLE001 - a forked child must never return
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
