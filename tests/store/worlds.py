"""Stores for tests: in memory, laid out once and copied, or on disk and spoiled on purpose."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from castore.format import layout
from castore.format.canonical import encode, object_id
from castore.format.frame import compress
from castore.fs.memory import MemoryFileSystem
from castore.maintenance import fsck
from castore.store.opening import lay_out
from castore.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from castore.format.value import ObjectId, Value
    from castore.maintenance.findings import Finding

TOPOLOGY: dict[str, Value] = {"kind": "topology", "schema": 1, "silicon": {"device": "llvmpipe"}}
FOREIGN_TOPOLOGY = "5a" * 32
DAY_NS = 24 * 3600 * 10**9


@cache
def _template() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    lay_out(fs)
    return fs


def copy_of(fs: MemoryFileSystem, *, power_ops: int | None = None) -> MemoryFileSystem:
    """Return a copy in which everything is durable; it counts its calls from 0."""
    copy = fs.after_power_loss(unsynced="kept", unsynced_names="kept")
    copy._power_ops = power_ops
    return copy


def new_disk() -> MemoryFileSystem:
    """Return the file system of an empty store, durable."""
    return copy_of(_template())


def memory_store() -> tuple[Store, MemoryFileSystem]:
    fs = new_disk()
    return Store(fs), fs


def id_of(value: Value) -> ObjectId:
    return object_id(encode(value))


def manifest(number: int, **more: Value) -> dict[str, Value]:
    return {"kind": "test", "schema": 1, "number": number, **more}


def object_file(root: Path, oid: str) -> Path:
    return root / "objects" / oid[:2] / oid[2:]


def frame_of(value: Value) -> bytes:
    return compress(encode(value))


def errors_in(store: Store) -> list[Finding]:
    """Return what fsck calls an error."""
    return [found for found in fsck.check(store).findings if found.severity == "error"]


def finding_ids(store: Store) -> set[str]:
    return {found.id for found in fsck.check(store).findings}


def leftovers(fs: MemoryFileSystem) -> list[str]:
    """Return the temp and lease files that lie about."""
    return [
        f"{folder}/{entry.name}"
        for folder in (layout.TMP, layout.LEASES)
        for entry in fs.list_folder(folder)
    ]


def leftovers_on_disk(root: Path) -> list[str]:
    return [
        str(path) for folder in ("tmp", "leases") for path in (root / "local" / folder).iterdir()
    ]


def restat(path: Path) -> tuple[int, int]:
    """Return the inode and the mtime of a file."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns
