"""What is done with a store of every kind."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

import castore
from castore.errors import RefConflictError
from castore.maintenance import gc, pins
from tests.store.worlds import TOPOLOGY, errors_in, id_of, manifest, object_file

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = manifest(1), manifest(2), manifest(3)


def collect(store: castore.Store) -> gc.Report:
    with gc.locked(store):
        return gc.apply(store, gc.plan(store, grace_s=0))


def use_everything(root: Path, who: str) -> None:
    """Write in all the ways there are, some of them over what others wrote."""
    store = castore.open(root)
    assert store.read_only == ""
    store.put(A)
    store.record("tuning", TOPOLOGY, f"by {who}", manifest(10, who=who))
    store.record("tuning", TOPOLOGY, "shared", manifest(11, who=who), on_conflict="replace")
    with store.batch():
        for number in range(20):
            store.record("config", TOPOLOGY, f"batch {number}", manifest(20 + number))
    store.record("config", TOPOLOGY, "dropped", manifest(12, who=who), on_conflict="replace")
    store.delete_ref("config", TOPOLOGY, "dropped")
    store.set_name("best", id_of(A), on_conflict="replace")
    pins.pin(store, id_of(A))
    damaged = object_file(root, store.put(B))
    with contextlib.suppress(PermissionError):
        damaged.chmod(damaged.stat().st_mode | stat.S_IWUSR)
    os.truncate(damaged, 0)
    assert store.get(store.put(B)) == B
    collect(store)
    assert store.get(id_of(A)) == A
    assert store.lookup("tuning", TOPOLOGY, "shared") == manifest(11, who=who)
    assert store.lookup("config", TOPOLOGY, "batch 19") == manifest(39)
    assert errors_in(store) == []


def work_beside_others(root: Path, who: str, rounds: int) -> list[str]:
    """Return the kernels whose refs were reported as set."""
    store = castore.open(root)
    done = []
    for number in range(rounds):
        store.record("tuning", TOPOLOGY, f"{who} {number}", manifest(number, who=who))
        done.append(f"{who} {number}")
        store.put(manifest(number))  # the same for all
        with contextlib.suppress(RefConflictError):
            store.record("tuning", TOPOLOGY, f"race {number}", manifest(100 + number, who=who))
        store.record("config", TOPOLOGY, "hot", manifest(number, who=who), on_conflict="replace")
        if number % 5 == 0:
            collect(store)
    return done
