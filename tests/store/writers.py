"""What child processes of the concurrency tests do, each in a fresh interpreter.

Run as `python -m tests.store.writers TASK ROOT ARGUMENT...`; says on stdout, a JSON
line each, what was acknowledged. With CASTORE_TEST_LOCKS=none, file locks do nothing;
CASTORE_TEST_BREAK names a step of the protocol to leave out.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import castore
from castore.errors import LockTimeoutError, ObjectNotFoundError, RefConflictError
from castore.format.value import Link
from castore.fs import flock
from castore.maintenance import fsck, gc
from castore.objects.loose import LooseObjects

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.store.store import Store

TOPOLOGY = "5a" * 32


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def value(*numbers: object, **more: Any) -> dict[str, Any]:
    return {"kind": "test", "schema": 1, "numbers": [str(each) for each in numbers], **more}


def create(store: Store, me: str, rounds: str) -> None:
    """Try to create each of many refs; the test starts the processes at one moment."""
    sys.stdin.readline()
    for number in range(int(rounds)):
        oid = store.put(value(me, number))
        try:
            store.set_ref("tuning", TOPOLOGY, f"k{number}", oid)
            say(number=number, won=oid)
        except RefConflictError as error:
            say(number=number, existing=error.existing, wanted=error.wanted)


def many_refs(store: Store, me: str, count: str) -> None:
    for number in range(int(count)):
        store.record("tuning", TOPOLOGY, f"{me}-{number}", value(me, number))


def same_object(store: Store, count: str) -> None:
    sys.stdin.readline()
    for number in range(int(count)):
        store.put(value("same", number))


def write_beside_gc(store: Store, me: str, rounds: str) -> None:
    """Make refs in every way there is, over few objects that are ever new again or collected."""
    chance = random.Random(int(me))  # noqa: S311 - no secret
    for number in range(int(rounds)):
        kernel = f"{me}-{chance.randrange(12)}"
        part = value("part", chance.randrange(6))
        whole = value(
            "whole", chance.randrange(6), part=Link(castore.object_id(castore.encode(part)))
        )
        way = WAYS[chance.randrange(len(WAYS))]
        try:
            way(store, kernel, part, whole)
        except ObjectNotFoundError:
            continue  # a bare put is not safe until its ref is made, and that is said
        got = store.lookup("tuning", TOPOLOGY, kernel)
        if got != whole:
            say(lost=kernel, number=number, got=got)
            return
        ref = store.get_ref("tuning", TOPOLOGY, kernel)
        if ref is not None and store.get(castore.object_id(castore.encode(part))) != part:
            say(lost_part=kernel)
        say(kernel=kernel, oid=castore.object_id(castore.encode(whole)))


def _put_then_set(store: Store, kernel: str, part: Any, whole: Any) -> None:
    store.put(part)
    store.set_ref("tuning", TOPOLOGY, kernel, store.put(whole), on_conflict="replace")


def _record(store: Store, kernel: str, part: Any, whole: Any) -> None:
    store.put(part)
    store.record("tuning", TOPOLOGY, kernel, whole, on_conflict="replace")


def _batch(store: Store, kernel: str, part: Any, whole: Any) -> None:
    with store.batch():
        store.put(part)
        store.record("tuning", TOPOLOGY, kernel, whole, on_conflict="replace")


def _batch_of_the_top(store: Store, kernel: str, part: Any, whole: Any) -> None:
    store.put(part)
    with store.batch():
        store.set_ref("tuning", TOPOLOGY, kernel, store.put(whole), on_conflict="replace")


def _delete_and_set(store: Store, kernel: str, part: Any, whole: Any) -> None:
    store.delete_ref("tuning", TOPOLOGY, kernel)
    _put_then_set(store, kernel, part, whole)


WAYS: list[Callable[[Store, str, Any, Any], None]] = [
    _put_then_set,
    _record,
    _batch,
    _batch_of_the_top,
    _delete_and_set,
]


def collect(store: Store) -> None:
    """Collect without any grace, and without the logs' help, until stdin is closed."""
    removed = 0
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.readline() == "" and not _is_closed():
        try:
            with gc.locked(store, wait_s=30):
                removed += gc.apply(store, gc.plan(store, grace_s=0, log_expiry_s=-(10**9))).removed
        except LockTimeoutError:
            continue
    say(removed=removed)


def _is_closed() -> bool:
    try:
        return os.read(sys.stdin.fileno(), 1) == b""
    except BlockingIOError:
        return False


def check(store: Store) -> None:
    """Run fsck again and again until stdin is closed."""
    rounds = 0
    os.set_blocking(sys.stdin.fileno(), False)
    while not _is_closed():
        rounds += 1
        for found in fsck.check(store).findings:
            if found.severity == "error":
                say(finding=found.id, subject=found.subject, message=found.message)
    say(rounds=rounds)


def endless(store: Store, me: str) -> None:
    """Write in every way until killed."""
    number = 0
    while True:
        number += 1
        part = value("part", me, number)
        whole = value(me, number, part=Link(castore.object_id(castore.encode(part))))
        WAYS[number % len(WAYS)](store, f"{me}-{number % 7}", part, whole)
        say(kernel=f"{me}-{number % 7}", oid=castore.object_id(castore.encode(whole)))


def break_the_protocol(step: str) -> None:
    if step == "freshen":
        LooseObjects.freshen = lambda *_: True  # type: ignore[method-assign]  # on purpose
    elif step == "second look":
        gc._prune = lambda store, oid, _: _remove(store, oid)  # type: ignore[assignment]  # on purpose
    elif step == "leases":
        gc.oldest_lease_ns = lambda store: None


def _remove(store: Store, oid: str) -> int:
    try:
        store.fs.remove(f"objects/{oid[:2]}/{oid[2:]}")
    except FileNotFoundError:
        return -1
    return 1


TASKS: dict[str, Callable[..., None]] = {
    "create": create,
    "many_refs": many_refs,
    "same_object": same_object,
    "write_beside_gc": write_beside_gc,
    "collect": collect,
    "check": check,
    "endless": endless,
}


def main(task: str, root: str, *arguments: str) -> None:
    if os.environ.get("CASTORE_TEST_LOCKS") == "none":
        flock._flock = lambda *_: None
    break_the_protocol(os.environ.get("CASTORE_TEST_BREAK", ""))
    TASKS[task](castore.open(root, durability="none"), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
