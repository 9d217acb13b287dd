"""kill -9 at the system calls of every operation: leftovers at worst, and it can be repeated."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import castore
from castore.maintenance import fsck, gc
from tests.real.operations import (
    ALLOWED,
    DAMAGED,
    HARDWARE,
    OPERATIONS,
    OTHER_HARDWARE,
    age,
    prepare,
)
from tests.real.strace import Call, Operator
from tests.store.worlds import errors_in, id_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POINTS_MAX = 130
"""How many of an operation's calls are tried; gc, for one, opens hundreds of folders to read."""

pytestmark = [pytest.mark.slow, pytest.mark.tools("strace")]


def sampled(calls: list[Call], count: int) -> list[Call]:
    """Return at most `count` of the calls, evenly: first those that change what is on disk."""
    changing = [call for call in calls if call.changes]
    reading = [call for call in calls if not call.changes]
    some = evenly(changing, count)
    return some + evenly(reading, count - len(some))


def evenly(calls: list[Call], count: int) -> list[Call]:
    if len(calls) <= count:
        return calls
    return [calls[index * len(calls) // count] for index in range(count)]


def check_survivor(root: Path, operation: str, *, is_acknowledged: bool) -> None:
    """Look at what a killed process has left: nothing is half done, or lost."""
    store = castore.open(root)
    may_be_damaged = {id_of(DAMAGED)} if operation == "put-over-damage" else set()
    assert [each for each in errors_in(store) if each.subject not in may_be_damaged] == []
    # A store that is only just being made has no refs.
    for kernel, allowed in ALLOWED.items() if OPERATIONS[operation].is_open else ():
        assert store.lookup("tuning", HARDWARE, kernel) in allowed, kernel
    assert store.lookup("tuning", OTHER_HARDWARE, "new") in ALLOWED["new"]
    if is_acknowledged:
        assert OPERATIONS[operation].holds(store)


def check_repetition(root: Path, operation: str) -> None:
    store = castore.open(root, durability="none")
    for _ in range(OPERATIONS[operation].repetitions):
        OPERATIONS[operation].work(store if OPERATIONS[operation].is_open else str(root))
    assert OPERATIONS[operation].holds(store)
    assert errors_in(store) == []


def check_sweeping(root: Path) -> None:
    """Let gc find the leftovers when they are old: then none are left, and no ref has suffered."""
    store = castore.open(root, durability="none")
    before = list(store.refs())
    for path in (root / "local/tmp").iterdir():
        age(path)
    with gc.locked(store):
        gc.apply(store, gc.plan(store, grace_s=0))
    for folder in ("tmp", "leases", "trash"):
        assert os.listdir(root / "local" / folder) == []
    assert list(store.refs()) == before
    findings = {found.id for found in fsck.check(store).findings}
    assert findings <= {"quarantined", "ref-topology-foreign"}


@pytest.fixture
def world(folder: Path) -> Callable[[str], Path]:
    """Return a function that lays out the store that an operation begins with."""
    template = folder / "template"
    prepare(template)

    def lay_out(operation: str) -> Path:
        root = folder / "store"
        shutil.rmtree(root, ignore_errors=True)
        if OPERATIONS[operation].is_open:
            shutil.copytree(template, root, symlinks=True)
            OPERATIONS[operation].spoil(root)
        return root

    return lay_out


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_killed_at_any_call_leaves_nothing_worse_than_leftovers(
    operation: str,
    folder: Path,
    world: Callable[[str], Path],
    tried: Callable[[str, int], None],
) -> None:
    with Operator(folder) as operator:
        calls = operator.calls(operation, world(operation))
        points = sampled(calls, POINTS_MAX)
        for call in points:
            root = world(operation)
            outcome = operator.killed_at(call, operation, root)
            assert outcome.status == -9, f"{call} was not reached\n{outcome.trace}"
            try:
                check_survivor(root, operation, is_acknowledged=outcome.is_acknowledged)
                check_repetition(root, operation)
                check_sweeping(root)
            except BaseException as error:
                error.add_note(f"killed before {call}")
                raise
    tried("kills", len(points))
    assert len(points) >= 2
