"""What was tried and lost nothing, and what upkeep costs against git's on the same contents.

Limits: fsck takes less time per object than `git fsck`, and a gc that finds a tenth of
all objects unreachable at most the time of `git prune --expire=now`. All are whole
processes, on the same manifests as loose objects.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import castore
from bench import manifests
from bench.measure import Plan, Result, Row, compare
from castore.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from castore import ObjectId, Value

OBJECTS = 100_000
_BATCH = 5_000
_CASTORE = (sys.executable, "-m", "castore")
_TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests")
_SWEEPS = (
    "store/test_power_loss.py",
    "store/test_faults.py",
    "maintenance/test_fsck.py",
    "real/test_kill.py",
    "real/test_power_cut.py",
    "real/test_crowd.py",
)
_QUICK_SWEEPS = (
    "store/test_faults.py::test_whichever_call_fails_nothing_is_half_published[delete-28]",
)
_tried = re.compile("^tried: (.+)$", re.MULTILINE).search

_NOTES = (
    "tried, and nothing was lost: {tried}",
    "{count:,} manifests of 2 to 3 KB, all loose; one object (in git, a tree) keeps nine in ten",
    "fsck reads and hashes everything on both sides; castore also resolves links, on {cores} cores",
    "each gc and each prune works on a fresh copy; before all but `the first` ran another gc",
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The same contents twice.

    Attributes:
        store: castore's folder.
        git: git's, without a working tree.
    """

    store: str
    git: str

    def copied(self) -> _Pair:
        """Return a copy of both, made anew."""
        copy = _Pair(f"{self.store}-copy", f"{self.git}-copy")
        for source, target in ((self.store, copy.store), (self.git, copy.git)):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        return copy


def run(plan: Plan) -> Result:
    """Run the sweeps, then measure fsck and gc."""
    tried = _sweep(plan)
    count = plan.count or plan.sized(OBJECTS, 200)
    pair = _fill(plan.folder, manifests.make(count))
    rounds = plan.sized(5, 1)
    rows = (
        _fsck(pair, rounds, count),
        _gc("gc, a tenth unreachable", pair, rounds, limit=1.0),
        _gc("the first gc, likewise", pair, rounds, is_first=True),
    )
    notes = (
        _NOTES[0].format(tried=tried),
        _NOTES[1].format(count=count),
        _NOTES[2].format(cores=os.cpu_count()),
        *_NOTES[3:],
    )
    return Result(rows, notes)


def _sweep(plan: Plan) -> str:
    """Run the tests that try things, and return what they say they have tried."""
    sweeps = [f"{_TESTS}/{each}" for each in (_QUICK_SWEEPS if plan.quick else _SWEEPS)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sweeps],
        cwd=os.path.dirname(_TESTS),
        capture_output=True,
        text=True,
        check=False,
    )
    found = _tried(done.stdout)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"the sweeps failed:\n{done.stdout}{done.stderr}")
    return found[1]


def _fill(folder: str, values: Sequence[Value]) -> _Pair:
    pair = _Pair(f"{folder}/store", f"{folder}/git")
    kept = len(values) * 9 // 10
    with castore.open(pair.store, durability="none") as store:
        ids: list[ObjectId] = []
        for start in range(0, len(values), _BATCH):
            with store.batch():
                ids += [store.put(value) for value in values[start : start + _BATCH]]
        listed: list[Value] = [castore.Link(oid) for oid in ids[:kept]]
        store.set_name("kept", store.put({"kind": "list", "schema": 1, "items": listed}))
    subprocess.run([*_CASTORE, "--store", pair.store, "gc"], check=True, capture_output=True)
    subprocess.run(["git", "init", "-q", "--bare", "-b", "kept", pair.git], check=True)
    blobs = [_git_object(pair.git, "blob", castore.encode(value)) for value in values]
    lines = (b"100644 %08d\0" % at + bytes.fromhex(name) for at, name in enumerate(blobs[:kept]))
    tree = _git_object(pair.git, "tree", b"".join(lines))
    who = "castore <castore@localhost> 0 +0000"
    text = f"tree {tree}\nauthor {who}\ncommitter {who}\n\nkept\n"
    commit = _git_object(pair.git, "commit", text.encode())
    subprocess.run(["git", "-C", pair.git, "update-ref", "refs/heads/kept", commit], check=True)
    return pair


def _git_object(git: str, kind: str, content: bytes) -> str:
    """Write a loose object as git does by default, and return its name."""
    whole = f"{kind} {len(content)}\0".encode() + content
    name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    folder = f"{git}/objects/{name[:2]}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name[2:]}", "wb") as file:
        file.write(zlib.compress(whole, 1))
    return name


def _fsck(pair: _Pair, rounds: int, count: int) -> Row:
    ours = (*_CASTORE, "--store", pair.store, "fsck")
    theirs = ("git", "-C", pair.git, "fsck", "--no-dangling", "--no-progress")
    times = [_both(ours, theirs, ours_first=number % 2 == 0) for number in range(rounds + 1)]
    return compare("fsck, per object", times[1:], operations=count, limit=1.0)


def _gc(
    name: str, pair: _Pair, rounds: int, *, limit: float | None = None, is_first: bool = False
) -> Row:
    times = []
    for number in range(rounds + 1):
        copy = pair.copied()
        if is_first:
            os.unlink(f"{copy.store}/{layout.GC_LINKS}")
        ours = (*_CASTORE, "--store", copy.store, "gc", "--grace", "0s")
        theirs = ("git", "-C", copy.git, "prune", "--expire=now")
        times.append(_both(ours, theirs, ours_first=number % 2 == 0))
    return compare(name, times[1:], operations=1, limit=limit)


def _both(ours: Iterable[str], theirs: Iterable[str], *, ours_first: bool) -> tuple[int, int]:
    """Return the (castore, git) times of a process each, in nanoseconds."""
    if ours_first:
        castore_ns = _process_ns(ours)
        return castore_ns, _process_ns(theirs)
    git_ns = _process_ns(theirs)
    return _process_ns(ours), git_ns


def _process_ns(arguments: Iterable[str]) -> int:
    start_ns = time.perf_counter_ns()
    subprocess.run(list(arguments), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter_ns() - start_ns
