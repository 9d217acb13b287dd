"""Invariants 1 and 2 on file systems of other kinds: read-only, full, without free inodes.

They are mounted for the test, which only root may do; elsewhere these tests are skipped
and say so.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import ReadOnlyStoreError, StoreNotFoundError, UnsafeStoreError
from castore.maintenance import fsck, gc
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    errors_in,
    id_of,
    leftovers_on_disk,
    manifest,
    object_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = FOREIGN_TOPOLOGY
A, B = manifest(1), manifest(2)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that mounts something on a new folder, until the test ends."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("needs the right to mount")
    mounted: list[Path] = []

    def mount_on(name: str, *arguments: str) -> Path:
        where = tmp_path / name
        where.mkdir(exist_ok=True)
        ran = subprocess.run(
            ["mount", *arguments, str(where)], capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            pytest.skip(f"mounting is not permitted here: {ran.stderr.strip()}")
        if where not in mounted:
            mounted.append(where)
        return where

    yield mount_on
    for where in mounted:
        subprocess.run(["umount", str(where)], check=True)


def test_a_store_on_a_read_only_mount_is_read_and_refuses_writes_with_one_clear_error(
    tmp_path: Path, mount: Callable[..., Path]
) -> None:
    root = castore.open(tmp_path / "s").root
    castore.open(root).record("tuning", T, "k", A)
    where = mount("ro", "--bind", str(root))
    subprocess.run(["mount", "-o", "remount,bind,ro", str(where)], check=True)
    store = castore.open(where)
    assert store.lookup("tuning", T, "k") == A
    assert fsck.check(store).findings[0].id == "ref-topology-foreign"
    writes: list[Callable[[], object]] = [
        lambda: store.put(B),
        lambda: store.record("tuning", T, "k2", B),
        lambda: gc.plan(store),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyStoreError):
            write()


def test_a_store_cannot_be_made_on_a_read_only_mount(mount: Callable[..., Path]) -> None:
    where = mount("ro", "-t", "tmpfs", "-o", "ro", "none")
    with pytest.raises((OSError, StoreNotFoundError)):
        castore.open(where / "s")


def test_a_mounted_local_folder_is_refused(tmp_path: Path, mount: Callable[..., Path]) -> None:
    root = castore.open(tmp_path / "s").root
    mount("s/local", "-t", "tmpfs", "none")
    with pytest.raises(UnsafeStoreError, match="mount"):
        castore.open(root)


def fill(store: castore.Store) -> int:
    """Put until nothing more fits; return the error's number."""
    for number in range(100_000):
        try:
            store.record("tuning", T, f"fill-{number}", {"noise": os.urandom(3000), "n": number})
        except OSError as error:
            return error.errno or 0
    pytest.fail("the disk never filled")


@pytest.mark.parametrize(
    ("options", "number"),
    [("size=4m", errno.ENOSPC), ("size=64m,nr_inodes=420", errno.ENOSPC)],
    ids=["no space", "no inodes"],
)
def test_on_a_full_disk_writes_fail_cleanly_reads_work_and_gc_makes_room(
    mount: Callable[..., Path], options: str, number: int
) -> None:
    where = mount("full", "-t", "tmpfs", "-o", options, "none")
    store = castore.open(where / "s")
    store.record("tuning", T, "kept", A)
    for rubbish in range(5):
        oid = store.put({"rubbish": os.urandom(3000), "n": rubbish})
        os.utime(object_file(store.root, oid), (1, 1))
    assert fill(store) == number
    assert leftovers_on_disk(store.root) == []
    assert errors_in(store) == []
    assert store.lookup("tuning", T, "kept") == A
    with gc.locked(store):
        report = gc.apply(store, gc.plan(store, grace_s=0))
    assert report.removed >= 5
    assert store.put(B) == id_of(B)
    assert errors_in(store) == []


def test_a_store_works_on_a_file_system_that_is_case_insensitive_in_effect(
    tmp_path: Path,
) -> None:
    """No two names that castore makes differ in case alone."""
    store = castore.open(tmp_path / "s")
    for kernel in ("k", "K", "Kernel", "kernel"):
        store.record("tuning", T, kernel, {"kernel": kernel})
    store.set_name("best", id_of({"kernel": "k"}))
    names = [str(path.relative_to(store.root)) for path in store.root.rglob("*")]
    assert len({name.lower() for name in names}) == len(names)
    assert all(name == name.lower() for name in names)
