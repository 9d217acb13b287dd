"""Stores on file systems of other kinds: read-only, full, layered, without links or modes.

They are mounted for the test.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.cli.main import main
from castore.compat import PersistentCache
from castore.errors import (
    ReadOnlyStoreError,
    RefConflictError,
    StoreNotFoundError,
    UnsafeStoreError,
)
from castore.format import layout
from castore.maintenance import fsck, gc
from tests.matrix.users import ROOT, start
from tests.matrix.work import A, B, collect, use_everything, work_beside_others
from tests.store.worlds import (
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    errors_in,
    id_of,
    leftovers_on_disk,
    manifest,
    object_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = FOREIGN_TOPOLOGY
needs_root = pytest.mark.root


def tell(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit status and what it told of its failure."""
    with contextlib.redirect_stderr(io.StringIO()) as told:
        status = main(list(arguments))
    return status, told.getvalue()


def use_as_a_library(root: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Keep two configurations as a library does; return the warnings."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="castore"):
        cache: Any = PersistentCache("attention", root)
        cache.put("device", "op@v1", "ab" * 8, {"block": 64})
        cache.put("device", "op@v1", "cd" * 8, {"block": 32})
        assert cache.get("device", "op@v1", "ab" * 8).block == 64
    return [record.getMessage() for record in caplog.records]


# --- read-only --------------------------------------------------------------------------------


@needs_root
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
        lambda: gc.apply(store, gc.plan(store)),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyStoreError):
            write()
    status, told = tell("--store", str(where), "gc")
    assert (status, told.count("\n")) == (7, 1)
    assert "read-only" in told


@needs_root
def test_a_library_on_a_read_only_mount_is_served_what_is_there_and_keeps_the_rest_in_memory(
    tmp_path: Path, mount: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "s"
    cache: Any = PersistentCache("attention", root)
    cache.put("device", "op@v1", "ef" * 8, {"block": 16})
    where = mount("ro", "--bind", str(root))
    subprocess.run(["mount", "-o", "remount,bind,ro", str(where)], check=True)
    warnings = use_as_a_library(where, caplog)
    assert len(warnings) == 1
    assert "in memory" in warnings[0]
    served: Any = PersistentCache("attention", where)
    assert served.get("device", "op@v1", "ef" * 8).block == 16


@needs_root
def test_no_store_is_made_on_a_read_only_file_system_and_a_library_runs_all_the_same(
    mount: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    where = mount("ro", "-t", "tmpfs", "-o", "ro,mode=755", "none")
    with pytest.raises((OSError, StoreNotFoundError)):
        castore.open(where / "s")
    status, told = tell("init", str(where / "s"))
    assert (status, told.count("\n")) == (1, 1)
    assert "ead-only" in told
    assert len(use_as_a_library(where / "s", caplog)) == 1


@needs_root
def test_a_store_that_becomes_read_only_while_it_is_open_fails_writes_and_goes_on_reading(
    mount: Callable[..., Path],
) -> None:
    where = mount("disk", "-t", "tmpfs", "-o", "mode=755", "none")
    store = castore.open(where / "s")
    store.record("tuning", T, "k", A)
    subprocess.run(["mount", "-o", "remount,ro", str(where)], check=True)
    for write in (lambda: store.put(B), lambda: store.record("tuning", T, "k2", B)):
        with pytest.raises(OSError, match="ead-only") as caught:
            write()
        assert caught.value.errno == errno.EROFS
    assert store.lookup("tuning", T, "k") == A
    subprocess.run(["mount", "-o", "remount,rw", str(where)], check=True)
    assert store.get(store.put(B)) == B
    assert errors_in(store) == []


# --- mounts inside a store --------------------------------------------------------------------


@needs_root
def test_a_mounted_local_folder_is_refused(tmp_path: Path, mount: Callable[..., Path]) -> None:
    root = castore.open(tmp_path / "s").root
    mount("s/local", "-t", "tmpfs", "-o", "mode=755", "none")
    with pytest.raises(UnsafeStoreError, match="mount"):
        castore.open(root)


# --- full -------------------------------------------------------------------------------------


def fill(store: castore.Store) -> int:
    """Put until nothing more fits; return the error's number."""
    for number in range(100_000):
        try:
            store.record("tuning", T, f"fill-{number}", {"noise": os.urandom(3000), "n": number})
        except OSError as error:
            return error.errno or 0
    pytest.fail("the disk never filled")


FULL = pytest.mark.parametrize(
    "options", ["size=4m", "size=64m,nr_inodes=420"], ids=["no space", "no inodes"]
)


@needs_root
@FULL
def test_on_a_full_disk_writes_fail_cleanly_reads_work_and_gc_makes_room(
    mount: Callable[..., Path], options: str
) -> None:
    where = mount("full", "-t", "tmpfs", "-o", f"{options},mode=755", "none")
    store = castore.open(where / "s")
    store.record("tuning", T, "kept", A)
    for rubbish in range(5):
        store.put({"rubbish": os.urandom(3000), "n": rubbish})
    assert fill(store) == errno.ENOSPC
    assert leftovers_on_disk(store.root) == []
    assert errors_in(store) == []
    assert store.lookup("tuning", T, "kept") == A
    with gc.locked(store):
        report = gc.apply(store, gc.plan(store, grace_s=0))
    assert report.removed >= 5
    assert store.put(B) == id_of(B)
    assert errors_in(store) == []


@needs_root
@FULL
def test_a_batch_that_does_not_fit_publishes_nothing_and_leaves_nothing(
    mount: Callable[..., Path], options: str
) -> None:
    where = mount("full", "-t", "tmpfs", "-o", f"{options},mode=755", "none")
    store = castore.open(where / "s")

    def too_much() -> None:
        with store.batch():
            for number in range(5000):
                store.record("tuning", T, f"k{number}", {"noise": os.urandom(3000), "n": number})

    with pytest.raises(OSError, match="No space"):
        too_much()
    assert list(store.refs()) == []
    assert leftovers_on_disk(store.root) == []
    assert store.lookup("tuning", T, "k0") is None
    assert store.put(A) == id_of(A)
    assert errors_in(store) == []


@needs_root
@FULL
def test_a_library_on_a_full_disk_keeps_its_configurations_in_memory(
    mount: Callable[..., Path], options: str, caplog: pytest.LogCaptureFixture
) -> None:
    where = mount("full", "-t", "tmpfs", "-o", f"{options},mode=755", "none")
    fill(castore.open(where / "s"))
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (where / f"ballast-{number}").write_bytes(b"x")
    warnings = use_as_a_library(where / "s", caplog)
    assert len(warnings) == 1
    assert "No space" in warnings[0]


@needs_root
def test_a_disk_with_no_room_for_a_store_is_an_error_and_a_later_try_completes(
    mount: Callable[..., Path],
) -> None:
    where = mount("small", "-t", "tmpfs", "-o", "nr_inodes=100,mode=755", "none")
    with pytest.raises(OSError, match="No space"):
        castore.open(where / "s")
    subprocess.run(["mount", "-o", "remount,nr_inodes=1000", str(where)], check=True)
    store = castore.open(where / "s")
    assert store.get(store.put(A)) == A
    assert errors_in(store) == []


# --- layered ----------------------------------------------------------------------------------


@pytest.fixture
def layered(tmp_path: Path, mount: Callable[..., Path]) -> tuple[Path, Path]:
    """Return a store that an image brings along, and the same with a layer to write above it."""
    disk = mount("disk", "-t", "tmpfs", "-o", "mode=755", "none")  # overlayfs is no upper itself
    lower, upper, work = (disk / name for name in ("lower", "upper", "work"))
    for folder in (lower, upper, work):
        folder.mkdir()
    with castore.open(lower / "s") as store:
        store.record("tuning", TOPOLOGY, "shared", A)
        store.record("tuning", TOPOLOGY, "dropped", B)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    above = mount("above", "-t", "overlay", "-o", options, "none")
    return lower / "s", above / "s"


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@needs_root
def test_a_store_in_a_layer_below_is_written_in_the_layer_above_alone(
    layered: tuple[Path, Path],
) -> None:
    below, above = layered
    before = contents(below)
    store = castore.open(above)
    with pytest.raises(RefConflictError):
        store.record("tuning", TOPOLOGY, "shared", B)
    inode = object_file(above, id_of(A)).stat().st_ino
    store.put(A)  # freshens what the layer below has, which copies it up
    assert object_file(above, id_of(A)).stat().st_mtime_ns > before[layout.object_path(id_of(A))][1]
    assert object_file(above, id_of(A)).stat().st_ino == inode
    store.delete_ref("tuning", TOPOLOGY, "dropped")
    use_everything(above, "above")
    assert store.lookup("tuning", TOPOLOGY, "dropped") is None
    assert contents(below) == before
    assert castore.open(below, read_only=True).lookup("tuning", TOPOLOGY, "shared") == A


@needs_root
@pytest.mark.slow
def test_processes_beside_each_other_over_a_layer_lose_nothing(layered: tuple[Path, Path]) -> None:
    crowd(layered[1])


def crowd(root: Path, *, writers: int = 3, rounds: int = 50) -> None:
    """Write from several processes with gc at grace 0 between; nothing reported may be lost."""
    running = [
        start(ROOT, lambda who=f"w{number}": work_beside_others(root, who, rounds))
        for number in range(writers)
    ]
    done = [kernel for each in running for kernel in each.result()]
    store = castore.open(root)
    assert len(done) == writers * rounds
    assert all(store.lookup("tuning", TOPOLOGY, kernel) is not None for kernel in done)
    assert errors_in(store) == []


# --- without links, modes, case or fine times -------------------------------------------------


@pytest.fixture
def exfat(mount: Callable[..., Path], loop_device: Callable[[int], str]) -> Callable[[str], Path]:
    """Return a function that mounts a new exFAT with these options."""

    def make(options: str) -> Path:
        device = loop_device(128 * 2**20)
        subprocess.run(["mkfs.exfat", device], check=True, capture_output=True)
        try:
            return mount("exfat", "-t", "exfat", "-o", options, device)
        except subprocess.CalledProcessError:  # the kernel has none
            return mount("exfat", "-o", options, device, program="mount.exfat-fuse")

    return make


on_exfat = pytest.mark.tools("mkfs.exfat", "mount.exfat-fuse")


@needs_root
@on_exfat
def test_a_store_on_exfat_works_and_says_once_what_it_cannot_promise(
    exfat: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    where = exfat("umask=022")
    (where / "Case").write_bytes(b"")
    assert (where / "cASE").exists(), "it tells names apart by case: not what is to be tried"
    with pytest.raises(PermissionError):
        os.link(where / "Case", where / "link")
    use_everything(where / "s", "first")
    use_everything(where / "s", "second")
    told = [record.getMessage() for record in caplog.records]
    assert any("no hard links here" in message for message in told)
    store = castore.open(where / "s")
    caplog.clear()
    for number in range(3):
        store.record("tuning", TOPOLOGY, f"new {number}", manifest(number))
    with pytest.raises(RefConflictError):
        store.record("tuning", TOPOLOGY, "new 0", B)
    assert len([record for record in caplog.records if "hard links" in record.getMessage()]) == 1


@needs_root
@on_exfat
def test_a_folder_that_exfat_shows_as_open_to_all_is_refused_and_not_made(
    exfat: Callable[[str], Path],
) -> None:
    where = exfat("umask=000")
    with pytest.raises(UnsafeStoreError, match="mount it so"):
        castore.open(where / "s")
    assert not (where / "s").exists()


@needs_root
@on_exfat
@pytest.mark.slow
def test_processes_beside_each_other_on_exfat_lose_nothing(exfat: Callable[[str], Path]) -> None:
    crowd(exfat("umask=022") / "s")


@pytest.fixture
def coarse(mount: Callable[..., Path], loop_device: Callable[[int], str]) -> Path:
    """Return a file system that keeps whole seconds: ext4 with small inodes."""
    device = loop_device(64 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-I", "128", "-N", "4096", device], check=True)
    return mount("coarse", device)


@needs_root
@pytest.mark.tools("mkfs.ext4")
@pytest.mark.slow
def test_where_times_are_whole_seconds_gc_takes_nothing_that_was_just_written(
    coarse: Path,
) -> None:
    (coarse / "f").write_bytes(b"")
    assert (coarse / "f").stat().st_mtime_ns % 10**9 == 0, "its times are finer than seconds"
    store = castore.open(coarse / "s")
    oid = store.put({"fresh": True})
    assert store.fs.clock_ns(layout.CLOCK) - store.fs.stat(layout.object_path(oid)).mtime_ns >= 0
    crowd(coarse / "s")


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


# --- what some file systems refuse ------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_where_folders_cannot_be_synced_all_works_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    fsync = os.fsync

    def files_only(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", files_only)
    use_everything(tmp_path / "s", "me")
    assert "folders cannot be synced here" in caplog.text


@pytest.mark.parametrize("number", [errno.ENOLCK, 0], ids=["ENOLCK", "a no-op"])
def test_where_locks_do_nothing_gc_keeps_to_the_default_grace_period_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import fcntl  # noqa: PLC0415 - Windows has none

    def flock(fd: int, operation: int) -> None:
        if number:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    use_everything(tmp_path / "s", "me")
    store = castore.open(tmp_path / "s")
    rubbish = store.put({"rubbish": 1})
    plan = gc.plan(store, grace_s=0)
    assert plan.prune == ()
    assert any("14 days" in note for note in plan.notes)
    collect(store)
    assert store.get(rubbish) == {"rubbish": 1}
    with pytest.raises(RefConflictError):
        store.record("tuning", TOPOLOGY, "shared", B)
