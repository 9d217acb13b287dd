"""Locks whose holders are stopped, killed, or other users: waiting ends, and nothing is stolen."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

import castore
from castore.cli.main import main
from castore.errors import LockTimeoutError
from castore.format import layout
from castore.fs.posix import PosixFileSystem
from castore.maintenance import gc
from castore.refs import transaction
from tests.matrix.users import ALICE, BOB, LAB, ROOT, User, act_as, start
from tests.matrix.work import A, B, collect
from tests.store.worlds import TOPOLOGY, errors_in, manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.matrix.users import Running

pytestmark = pytest.mark.root


class Holder:
    """A process that does something, then waits until it is told to go on."""

    def __init__(self, user: User, work: Callable[[Callable[[], None]], None]) -> None:
        is_there, there = os.pipe()
        goes_on, self._go_on = os.pipe()

        def pause() -> None:
            os.write(there, b".")
            os.read(goes_on, 1)

        self._running: Running = start(user, lambda: work(pause))
        os.close(there)
        os.close(goes_on)
        assert os.read(is_there, 1) == b".", self._running.result()
        os.close(is_there)
        self.pid = self._running.pid

    def end(self) -> None:
        """Let it run to its end, which must be a good one."""
        os.kill(self.pid, signal.SIGCONT)
        os.write(self._go_on, b".")
        os.close(self._go_on)
        self._running.result()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._go_on)
        os.close(self._running.pipe)
        os.waitpid(self.pid, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with castore.open(tmp_path / "s") as store:
        store.record("tuning", TOPOLOGY, "k", A)
    return tmp_path / "s"


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for half a minute in a test."""
    monkeypatch.setattr(transaction, "LOCK_WAIT_S", 0.2)


def holder_of(root: Path, path: str, user: User = ROOT) -> Holder:
    def hold(pause: Callable[[], None]) -> None:
        with PosixFileSystem(str(root)).lock(path, wait_s=0):
            pause()

    return Holder(user, hold)


def test_a_stopped_gc_is_waited_for_a_bounded_time_and_named(root: Path) -> None:
    holder = holder_of(root, layout.GC_LOCK)
    os.kill(holder.pid, signal.SIGSTOP)
    store = castore.open(root)
    start_s = time.monotonic()
    with pytest.raises(LockTimeoutError) as caught, gc.locked(store, wait_s=0.2):
        pytest.fail("it got a lock that another holds")
    assert time.monotonic() - start_s >= 0.2
    assert f"process {holder.pid} on {socket.gethostname()}" in str(caught.value)
    holder.end()
    collect(store)


@pytest.mark.usefixtures("_quick")
def test_a_stopped_writer_of_a_ref_is_named_to_the_next_who_changes_nothing(root: Path) -> None:
    store = castore.open(root)
    (ref,) = store.refs("tuning")
    holder = holder_of(root, layout.ref_lock_path("tuning", ref.key))
    os.kill(holder.pid, signal.SIGSTOP)
    with pytest.raises(LockTimeoutError, match=f"process {holder.pid} on"):
        store.record("tuning", TOPOLOGY, "k", B, on_conflict="replace")
    assert store.lookup("tuning", TOPOLOGY, "k") == A
    assert len(store.ref_log("tuning", TOPOLOGY, "k")) == 1
    holder.end()
    store.record("tuning", TOPOLOGY, "k", B, on_conflict="replace")
    assert store.lookup("tuning", TOPOLOGY, "k") == B
    assert errors_in(store) == []


def test_a_contender_that_got_no_lock_leaves_it_to_its_holder(root: Path) -> None:
    holder = holder_of(root, "local/locks/x")
    before = (root / "local/locks/x").stat()
    fs = PosixFileSystem(str(root))

    def contend() -> None:
        with pytest.raises(LockTimeoutError):
            fs.lock("local/locks/x", wait_s=0.01)

    for _ in range(3):
        contend()
        act_as(ROOT, contend)
    after = (root / "local/locks/x").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    holder.end()
    fs.lock("local/locks/x", wait_s=0).release()


def test_gc_takes_neither_the_lease_nor_the_objects_of_a_writer_that_is_stopped(
    root: Path,
) -> None:
    def work(pause: Callable[[], None]) -> None:
        store = castore.open(root)
        with store.batch():
            old = store.put(manifest(50))
            pause()
            store.set_ref("tuning", TOPOLOGY, "late", old)

    store = castore.open(root)
    holder = Holder(ROOT, work)
    os.kill(holder.pid, signal.SIGSTOP)
    leases = list((root / layout.LEASES).iterdir())
    assert len(leases) == 1
    written = store.put(manifest(51))  # since the batch began: it may be what it relies on
    for _ in range(2):
        collect(store)
    assert list((root / layout.LEASES).iterdir()) == leases
    assert store.has(written)
    holder.end()
    assert store.lookup("tuning", TOPOLOGY, "late") == manifest(50)
    assert list((root / layout.LEASES).iterdir()) == []


def test_a_killed_writers_lock_and_lease_hold_nobody_up(root: Path) -> None:
    def work(pause: Callable[[], None]) -> None:
        store = castore.open(root)
        with store.batch(), store.fs.lock(layout.GC_LOCK, wait_s=0):
            store.put(manifest(50))
            pause()

    Holder(ROOT, work).kill()
    store = castore.open(root)
    assert len(list((root / layout.LEASES).iterdir())) == 1
    collect(store)
    assert list((root / layout.LEASES).iterdir()) == []
    assert errors_in(store) == []


def test_the_command_says_in_one_line_who_holds_gc_up(root: Path) -> None:
    holder = holder_of(root, layout.GC_LOCK)
    os.kill(holder.pid, signal.SIGSTOP)
    with contextlib.redirect_stderr(io.StringIO()) as told:
        assert main(["--store", str(root), "gc", "--wait", "0s"]) == 5
    assert told.getvalue().count("\n") == 1
    assert f"process {holder.pid} on" in told.getvalue()
    holder.end()


def test_another_users_lock_in_a_shared_store_is_respected_and_named(public: Path) -> None:
    root = public / "s"
    root.mkdir()
    os.chown(root, ALICE.uid, LAB)
    root.chmod(0o2770)
    act_as(ALICE, lambda: str(castore.open(root).root), umask=0o077)
    holder = holder_of(root, layout.GC_LOCK, ALICE)

    def contend() -> None:
        with pytest.raises(LockTimeoutError, match=f"process {holder.pid} on"):
            PosixFileSystem(str(root)).lock(layout.GC_LOCK, wait_s=0)

    act_as(BOB, contend)
    holder.end()
    act_as(BOB, lambda: PosixFileSystem(str(root)).lock(layout.GC_LOCK, wait_s=0).release())
