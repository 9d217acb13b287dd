"""Cutting the power of a real file system: its image is copied at one moment, and mounted.

Run as `unshare --mount python -m tests.real.power_cut FOLDER KIND VARIANT CUTS SEED`: all
mounts live in a namespace of their own, so nothing is left of them however this ends.
Says a JSON line for each cut: how much was acknowledged before it, and what of that the
copy lacks.

The image lies on an XFS that shares extents, so a copy holds what the image held at one
moment: all that the file system under test had given to its disk, and nothing of what
was still in memory. That is a disk that keeps what it was given, flushed or not.
"""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import castore
from castore.fs import posix
from castore.maintenance import gc
from tests.store.worlds import FOREIGN_TOPOLOGY, errors_in, manifest, object_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from castore.store.store import Store

MEBIBYTE = 2**20
OUTER_BYTES = 3000 * MEBIBYTE
KINDS: dict[str, tuple[list[str], int]] = {
    "ext4": (["mkfs.ext4", "-q", "-F"], 128 * MEBIBYTE),
    "xfs": (["mkfs.xfs", "-q", "-f"], 320 * MEBIBYTE),
    "btrfs": (["mkfs.btrfs", "-q", "-f"], 160 * MEBIBYTE),
}
"""How each kind of file system is made, and the size of its image, in bytes."""

LARGE = 20
HOUR_S = 3600
_STEPS_MAX = 14
_DELAY_MAX_S = 0.02


@dataclass(slots=True)
class Acknowledged:
    """What a writer has been told is durable.

    Attributes:
        objects: Ids of objects that were put.
        refs: The least number that the value of each ref may have.
        gone: Refs that were deleted for good.
        steps: How many operations there were.
    """

    objects: list[str] = field(default_factory=list)
    refs: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    steps: int = 0

    def note(self, told: dict[str, Any]) -> None:
        self.objects += told.get("objects", [])
        self.refs |= told.get("refs", {})
        self.gone += told.get("gone", [])
        self.steps += 1

    def copy(self) -> Acknowledged:
        return Acknowledged([*self.objects], {**self.refs}, [*self.gone], self.steps)


# The writer.


def write(root: str, variant: str) -> None:
    """Write in every way, wait for a line after each, and say what was acknowledged."""
    store = castore.open(root)  # a store is made durably, whatever the variant
    break_it(variant)
    store = castore.open(root, durability="none" if variant == "none" else "full")
    say(made=root)
    for number in count(1):
        if not sys.stdin.readline():
            return
        say(**STEPS[number % len(STEPS)](store, number))


def break_it(variant: str) -> None:
    """Leave the syncs of all files out, or those of all folders."""
    forgotten = {"no file sync": stat.S_ISREG, "no folder sync": stat.S_ISDIR}.get(variant)
    if forgotten is None:
        return
    real = posix.fsync

    def fsync(fd: int) -> None:
        if not forgotten(os.fstat(fd).st_mode):
            real(fd)

    posix.fsync = fsync  # type: ignore[attr-defined]  # on purpose
    posix.syncfs = lambda _: False  # type: ignore[attr-defined]  # on purpose: one by one


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _record(store: Store, kernel: str, number: int) -> str:
    value = manifest(number)
    return store.record("tuning", FOREIGN_TOPOLOGY, kernel, value, on_conflict="replace")


def _put(store: Store, number: int) -> dict[str, Any]:
    return {"objects": [store.put(manifest(number))]}


def _create(store: Store, number: int) -> dict[str, Any]:
    kernel = f"new-{number}"
    return {"objects": [_record(store, kernel, number)], "refs": {kernel: number}}


def _replace(store: Store, number: int) -> dict[str, Any]:
    return {"objects": [_record(store, "latest", number)], "refs": {"latest": number}}


def _set_ref(store: Store, number: int) -> dict[str, Any]:
    kernel, oid = f"set-{number}", store.put(manifest(number, part="of a ref"))
    store.set_ref("tuning", FOREIGN_TOPOLOGY, kernel, oid)
    return {"objects": [oid], "refs": {kernel: number}}


def _delete(store: Store, number: int) -> dict[str, Any]:
    kernel = f"gone-{number}"
    oid = _record(store, kernel, number)
    store.delete_ref("tuning", FOREIGN_TOPOLOGY, kernel)
    return {"objects": [oid], "gone": [kernel]}


def _batch(store: Store, number: int, *, size: int = 3) -> dict[str, Any]:
    kernel = f"batch-{number}"
    with store.batch():
        oids: list[str] = [store.put(manifest(number, part=part)) for part in range(size)]
        oids += [_record(store, kernel, number), _record(store, "latest", number)]
    return {"objects": oids, "refs": {kernel: number, "latest": number}}


def _large_batch(store: Store, number: int) -> dict[str, Any]:
    return _batch(store, number, size=LARGE)


def _collect(store: Store, number: int) -> dict[str, Any]:
    """Let gc remove what is two hours old, and nothing that was acknowledged is."""
    for part in range(3):
        path = object_file(store.root, store.put(manifest(number, rubbish=part)))
        then_s = path.stat().st_mtime - 2 * HOUR_S
        os.utime(path, (then_s, then_s))
    with gc.locked(store):
        report = gc.apply(store, gc.plan(store, grace_s=HOUR_S))
    assert report.removed >= 3, report
    return {}


STEPS: list[Callable[[Store, int], dict[str, Any]]] = [
    *(_put, _create, _replace, _set_ref, _delete, _batch, _large_batch, _collect),
]


# The power.


@contextmanager
def mounted(image: Path, folder: Path, *options: str) -> Iterator[Path]:
    """Mount an image for the duration of the body."""
    folder.mkdir()
    try:
        _run("mount", "-o", ",".join(["loop", *options]), str(image), str(folder))
        try:
            yield folder
        finally:
            _run("umount", str(folder))
    finally:
        folder.rmdir()


def make_image(path: Path, command: list[str], size_bytes: int) -> Path:
    with open(path, "wb") as image:
        image.truncate(size_bytes)
    _run(*command, str(path))
    return path


def cut(folder: Path, kind: str, variant: str, cuts: int, seed: int) -> None:
    """Let a writer work, cut the power some times, and say what each cut has cost."""
    with ExitStack() as cleanup:
        outer = make_image(folder / "outer.img", ["mkfs.xfs", "-q", "-f"], OUTER_BYTES)
        place = cleanup.enter_context(mounted(outer, folder / "outer"))
        image = make_image(place / "image", *KINDS[kind])
        with mounted(image, folder / "live") as live:
            copies = _cut_while_writing(live / "store", image, variant, cuts, seed)
        for copy, acknowledged in copies:
            with mounted(copy, folder / "copy") as found:
                lost = losses(found / "store", acknowledged)
            say(acknowledged=acknowledged.steps, lost=lost)
            copy.unlink()


def _cut_while_writing(
    root: Path, image: Path, variant: str, cuts: int, seed: int
) -> list[tuple[Path, Acknowledged]]:
    chance = random.Random(seed)  # noqa: S311 - no secret
    acknowledged = Acknowledged()
    copies = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.real.power_cut", "write", str(root), variant],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert "made" in json.loads(writer.stdout.readline())
        for number in range(cuts):
            # The first comes when the store has only just been made.
            for _ in range(chance.randint(1, _STEPS_MAX) if number else 0):
                writer.stdin.write("go\n")
                acknowledged.note(json.loads(writer.stdout.readline()))
            is_at_work = number % 2 == 0
            if is_at_work:
                writer.stdin.write("go\n")
                # No event can be waited for: the moment within the operation is what is drawn.
                time.sleep(chance.uniform(0, _DELAY_MAX_S))
            copy = image.with_name(f"copy-{number}")
            _run("cp", "--reflink=always", str(image), str(copy))
            copies.append((copy, acknowledged.copy()))
            if is_at_work:
                acknowledged.note(json.loads(writer.stdout.readline()))
    return copies


def losses(root: Path, acknowledged: Acknowledged) -> list[str]:
    """Return what a store lacks of what was acknowledged, and what is wrong with the rest."""
    try:
        store = castore.open(root, create=False)
    except castore.CastoreError as error:
        return [str(error)]
    lost = [f"{found.id} {found.subject}" for found in errors_in(store)]
    lost += [f"object {oid}" for oid in acknowledged.objects if not _can_get(store, oid)]
    for kernel, least in acknowledged.refs.items():
        found = store.lookup("tuning", FOREIGN_TOPOLOGY, kernel)
        if not isinstance(found, dict) or found["number"] < least:  # type: ignore[operator]  # a number
            lost.append(f"ref {kernel}, found {found}, want {least} or later")
    refs = {ref.kernel for ref in store.refs("tuning")}
    lost += [f"ref {kernel} is back" for kernel in acknowledged.gone if kernel in refs]
    _record(store, "after the cut", -1)
    if not lost and store.lookup("tuning", FOREIGN_TOPOLOGY, "after the cut") != manifest(-1):
        lost.append("what is written after the cut cannot be read")
    return lost


def _can_get(store: Store, oid: str) -> bool:
    try:
        store.get(oid)
    except castore.CastoreError:
        return False
    return True


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr}")


def main(first: str, *rest: str) -> None:
    """Be the writer, or the one who cuts."""
    if first == "write":
        write(*rest)
    else:
        kind, variant, cuts, seed = rest
        cut(Path(first), kind, variant, int(cuts), int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
