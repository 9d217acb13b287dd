"""Files of eight gigabytes under each name that castore reads: no memory is spent on them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import castore
from castore.format import layout, ref
from castore.maintenance.pins import pin
from tests.store.worlds import FOREIGN_TOPOLOGY, id_of, manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A, B = manifest(1), manifest(2)
T = FOREIGN_TOPOLOGY
NAME = ref.for_topology("tuning", T, "k")
SIZE_BYTES = 8 * 2**30
ALLOWED_BYTES = 300 * 2**20
PATIENCE_S = 60.0
PLACES = {
    "object": layout.object_path(id_of(A)),
    "ref": NAME.path,
    "named ref": ref.for_name("n").path,
    "log": layout.log_path("tuning", NAME.key),
    "format": layout.FORMAT,
    "pin": layout.pin_path(id_of(B)),
    "note of the last gc": layout.GC_DONE,
    "cache of links": layout.GC_LINKS,
    "trash": layout.trash_path(id_of(A)),
    "lock": layout.GC_LOCK,
}

# Each step ends with a result or a typed error; the last line tells that all were taken.
SCRIPT = """
import logging, resource, sys
from castore.maintenance import auto_gc, forget, fsck, gc, log_expiry, repair, restore, stats
from castore.maintenance.pins import pins
from castore.errors import CastoreError
from castore.format import ref
import castore

logging.getLogger("castore").disabled = True
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
try:
    store = castore.open(sys.argv[1])
except CastoreError:
    print("done")
    sys.exit()
T, A, B = sys.argv[3:]
name = ref.for_topology("tuning", T, "k")
for step in (
    lambda: store.get(A),
    lambda: store.lookup("tuning", T, "k"),
    lambda: list(store.refs()),
    lambda: list(store.names()),
    lambda: store.ref_log("tuning", T, "k"),
    lambda: list(pins(store)),
    lambda: fsck.check(store),
    lambda: stats.collect(store),
    lambda: auto_gc.decide(store),
    lambda: gc.plan(store),
    lambda: log_expiry.trim(store),
    lambda: forget.plan_history(store, forget.plan(store), keep_last=1),
    lambda: restore.restore(store, name),
    lambda: repair.plan(store, restore_refs=True),
    lambda: store.put({"kind": "test", "schema": 1, "number": 1}),
    lambda: store.record("tuning", T, "k", {"n": 3}, on_conflict="replace"),
):
    try:
        step()
    except CastoreError:
        pass
assert store.lookup("tuning", T, "other") is not None
print("done")
"""


@pytest.mark.parametrize("what", PLACES)
def test_a_huge_file_under_any_name_is_refused_before_memory_is_spent(
    what: str, tmp_path: Path, tried: Callable[[str, int], None]
) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "other", B)
    store.set_name("n", id_of(A))
    pin(store, id_of(B))
    path = store.root / PLACES[what]
    if path.exists():
        path.chmod(0o600)
    with path.open("ab") as file:
        file.truncate(SIZE_BYTES)
    tried("damages", 1)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(store.root), str(ALLOWED_BYTES), T, id_of(A), id_of(B)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr[-2000:]
