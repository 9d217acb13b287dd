"""Who may use a store, and whose the files are: umasks, groups, root, and strangers."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.cli.main import main
from castore.compat import PersistentCache
from castore.errors import MaintenanceRefusedError, ReadOnlyStoreError, UnsafeStoreError
from castore.format import layout
from castore.fs.posix import PosixFileSystem
from castore.store.opening import create_store
from tests.matrix.users import ALICE, BOB, CAROL, LAB, ROOT, User, act_as, start
from tests.matrix.work import A, B, collect, use_everything, work_beside_others
from tests.store.worlds import TOPOLOGY, errors_in, manifest, object_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.root

UMASKS = [0o022, 0o002, 0o077]


def everything_in(root: Path) -> list[Path]:
    return [root, *root.rglob("*")]


def shared_store(public: Path, *, umask: int = 0o022) -> Path:
    """Let Alice make a store that her group shares, by the command."""
    root = public / "s"
    root.mkdir()
    os.chown(root, ALICE.uid, LAB)
    assert act_as(ALICE, lambda: main(["init", "--shared=group", str(root)]), umask=umask) == 0
    return root


def a_store_of(user: User, public: Path, *, umask: int = 0o022) -> Path:
    root = public / "s"

    def make() -> None:
        castore.open(root).record("tuning", TOPOLOGY, "k", A)

    act_as(user, make, umask=umask)
    return root


# --- a group shares a store -------------------------------------------------------------------


@pytest.mark.parametrize("umask", UMASKS)
def test_users_of_a_group_use_one_store_in_all_ways_whatever_their_umask(
    public: Path, umask: int
) -> None:
    root = shared_store(public, umask=umask)
    for user, who in ((ALICE, "alice"), (BOB, "bob"), (ALICE, "alice"), (ROOT, "root"), (BOB, "b")):
        act_as(user, lambda who=who: use_everything(root, who), umask=umask)
    for path in everything_in(root):
        found = path.lstat()
        assert found.st_gid == LAB, path
        assert found.st_mode & 0o060 == 0o060, path
        assert not found.st_mode & stat.S_IWOTH, path
        assert path.is_file() or found.st_mode & 0o2010 == 0o2010, path


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o2775), (0o077, 0o2770), (0o000, 0o2775)])
def test_init_shared_gives_the_group_all_and_others_what_the_umask_gives(
    public: Path, umask: int, mode: int
) -> None:
    root = public / "new"
    act_as(ALICE, lambda: create_store(str(root), shared="group"), umask=umask)
    for path in everything_in(root):
        wanted = mode if path.is_dir() else mode & 0o666
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_init_shared_leaves_a_store_that_is_not_shared_alone_and_says_how_to_share_it(
    public: Path,
) -> None:
    root = a_store_of(ALICE, public)
    before = root.stat().st_mode

    def try_it() -> str:
        with pytest.raises(MaintenanceRefusedError, match=r"chmod -R g\+rwX") as caught:
            create_store(str(root), shared="group")
        return str(caught.value)

    advice = act_as(ALICE, try_it)
    assert root.stat().st_mode == before
    os.chown(root, ALICE.uid, LAB)
    for path in everything_in(root):
        os.chown(path, -1, LAB)
    assert os.system(advice.partition("its owner: ")[2]) == 0  # noqa: S605 - a command that we print
    for user, who in ((ALICE, "alice"), (BOB, "bob")):
        act_as(user, lambda who=who: use_everything(root, who), umask=0o077)


def test_a_folder_of_a_foreign_group_cannot_be_shared(public: Path) -> None:
    root = public / "s"
    root.mkdir()
    os.chown(root, CAROL.uid, LAB)

    def try_it() -> None:
        with pytest.raises(UnsafeStoreError, match="none of yours"):
            create_store(str(root), shared="group")

    act_as(CAROL, try_it)


@pytest.mark.slow
def test_users_who_work_beside_each_other_with_a_tight_umask_lose_nothing(public: Path) -> None:
    """What one makes is closed to the others until he has given it its mode."""
    root = shared_store(public, umask=0o077)
    crowd = [
        start(user, lambda who=who: work_beside_others(root, who, 40), umask=0o077)
        for user, who in ((ALICE, "alice"), (BOB, "bob"), (ALICE, "alice2"), (BOB, "bob2"))
    ]
    done = [kernel for running in crowd for kernel in running.result()]
    store = castore.open(root)
    assert len(done) == 160
    assert all(store.lookup("tuning", TOPOLOGY, kernel) is not None for kernel in done)
    assert all(store.lookup("tuning", TOPOLOGY, f"race {n}") is not None for n in range(40))
    assert errors_in(store) == []


def test_putting_another_users_object_again_freshens_it_in_place(public: Path) -> None:
    root = shared_store(public)
    oid = act_as(ALICE, lambda: castore.open(root).put(A))
    path = object_file(root, oid)
    os.utime(path, ns=(1, 1))
    before = path.stat()
    act_as(BOB, lambda: castore.open(root).put(A))
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns > 1


def test_putting_an_object_again_that_one_may_not_touch_writes_it_anew(public: Path) -> None:
    root = shared_store(public)
    oid = act_as(ALICE, lambda: castore.open(root).put(A))
    path = object_file(root, oid)
    path.chmod(0o444)  # as a copy may have it
    os.utime(path, ns=(1, 1))
    act_as(BOB, lambda: castore.open(root).put(A))
    assert path.stat().st_uid == BOB.uid
    assert castore.open(root).get(oid) == A


def test_a_folder_whose_maker_was_killed_before_it_had_its_mode_is_mended_by_him(
    public: Path,
) -> None:
    root = shared_store(public)
    folder = f"{root}/refs/tuning"

    def make_half() -> None:
        os.mkdir(folder, 0o700)

    def make() -> None:
        PosixFileSystem(str(root)).make_folder("refs/tuning")

    act_as(ALICE, make_half)
    act_as(ALICE, make)
    assert stat.S_IMODE(os.stat(folder).st_mode) == stat.S_IMODE(root.stat().st_mode)


@pytest.mark.parametrize("kind", ["log", "lock", "folder"])
def test_what_another_is_about_to_open_up_is_waited_for(public: Path, kind: str) -> None:
    root = shared_store(public)
    path = root / "local/made"
    path.mkdir(0o700) if kind == "folder" else path.touch(0o600)
    os.chown(path, ALICE.uid, LAB)

    def open_up(seconds: float) -> None:
        """Stand in for the pause: meanwhile Alice, who runs on, gives it its mode."""
        os.write(waits, b".")
        os.read(goes_on, 1)

    def work() -> None:
        fs = PosixFileSystem(str(root))
        if kind == "log":
            fs.append("local/made", b"line\n")
        elif kind == "lock":
            fs.lock("local/made", wait_s=0).release()
        else:
            fs.write_new("local/made/f", b"")

    is_waiting, waits = os.pipe()
    goes_on, go_on = os.pipe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("castore.fs.posix.time.sleep", open_up)
        bob = start(BOB, work)
    os.close(waits)
    assert os.read(is_waiting, 1) == b".", bob.result()
    path.chmod(0o2770 if kind == "folder" else 0o660)
    os.write(go_on, b".")
    bob.result()
    for fd in (is_waiting, goes_on, go_on):
        os.close(fd)


# --- root in a user's store -------------------------------------------------------------------


@pytest.mark.parametrize("umask", UMASKS)
def test_what_root_does_in_a_users_store_is_the_users(public: Path, umask: int) -> None:
    root = a_store_of(ALICE, public, umask=umask)
    mode = stat.S_IMODE(root.stat().st_mode)
    shutil.rmtree(root / "local")
    act_as(ROOT, lambda: use_everything(root, "root"), umask=umask)
    for path in everything_in(root):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (ALICE.uid, ALICE.gid), path
        assert stat.S_IMODE(found.st_mode) | mode == mode, path
    act_as(ALICE, lambda: use_everything(root, "alice"), umask=umask)


UPKEEP = (
    ("fsck", "--strict"),
    ("repair", "--refs"),
    ("restore", "k"),
    ("forget", "--keep-last", "1"),
    ("pin", "k"),
    ("pin", "--remove", "k"),
    ("gc", "--grace", "0s", "--log-expiry", "0s"),
    ("gc", "--auto"),
    ("forget", "--unused-since", "0s"),
    ("forget", "--older-than", "0s"),
)


@pytest.mark.parametrize("umask", UMASKS)
def test_upkeep_that_root_runs_leaves_the_users_store_the_users(public: Path, umask: int) -> None:
    root = a_store_of(ALICE, public, umask=umask)

    def change() -> None:
        store = castore.open(root)
        store.record("tuning", TOPOLOGY, "k", B, on_conflict="replace")
        assert store.lookup("tuning", TOPOLOGY, "k") == B
        store.put(manifest(99))
        os.truncate(object_file(root, store.put(manifest(98))), 0)

    def keep_up() -> None:
        for command in UPKEEP:
            assert main(["--store", str(root), *command]) in (0, 4), command

    act_as(ROOT, change, umask=umask)
    act_as(ROOT, keep_up, umask=umask)
    for path in everything_in(root):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (ALICE.uid, ALICE.gid), path
    act_as(ALICE, lambda: use_everything(root, "alice"), umask=umask)


def test_uses_of_a_shared_store_are_noted_by_each_of_its_users(public: Path) -> None:
    root = shared_store(public)
    act_as(ALICE, lambda: void(castore.open(root).record("tuning", TOPOLOGY, "k", A)))

    def use() -> None:
        assert castore.open(root).lookup("tuning", TOPOLOGY, "k") == A

    act_as(ALICE, use, umask=0o077)
    (noted,) = (path for path in (root / layout.USES / "tuning").rglob("*") if path.is_file())
    os.utime(noted, (1, 1))
    act_as(BOB, use)
    assert noted.stat().st_mtime > 1
    assert noted.stat().st_uid == ALICE.uid


def void(_: object) -> None:
    """Drop a result that JSON cannot tell."""


def test_root_is_not_led_to_give_away_a_file_by_its_second_name(public: Path) -> None:
    root = a_store_of(ALICE, public)
    secret = public / "secret"
    secret.touch(0o600)
    for name in ("local/locks/gc", layout.CLOCK):
        (root / name).unlink()
        os.link(secret, root / name)  # what an attacker does
    collect(castore.open(root))
    assert secret.stat().st_uid == 0
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


# --- what is one's own, and what is a stranger's ----------------------------------------------


def test_a_system_wide_store_of_root_is_read_by_users_and_below_their_own(public: Path) -> None:
    root = public / "s"
    castore.open(root).record("tuning", TOPOLOGY, "k", A)

    def read() -> None:
        store = castore.open(root)
        assert store.lookup("tuning", TOPOLOGY, "k") == A
        with pytest.raises(ReadOnlyStoreError):
            store.put(B)
        mine = castore.open(public / "mine", alternates=[root])
        assert mine.lookup("tuning", TOPOLOGY, "k") == A
        mine.record("tuning", TOPOLOGY, "k", B, on_conflict="replace")
        assert mine.lookup("tuning", TOPOLOGY, "k") == B

    act_as(ALICE, read)


def refused(root: Path, folder: Path, about: str) -> None:
    """Try every door; each must say why, and what to do."""
    doors: list[Callable[[], object]] = [
        lambda: castore.open(root),
        lambda: castore.open(root, read_only=True),
        lambda: castore.open(root, create=False),
        lambda: castore.open(folder / "mine", alternates=[root]),
    ]
    for door in doors:
        with pytest.raises(UnsafeStoreError, match=about) as caught:
            door()
        assert f"CASTORE_TRUST={root}" in str(caught.value)
    with contextlib.redirect_stderr(io.StringIO()) as told:
        assert main(["--store", str(root), "ls"]) == 7
    assert told.getvalue().count("\n") == 1
    assert about in told.getvalue()


def test_a_strangers_store_is_refused_at_every_door(public: Path) -> None:
    root = a_store_of(ALICE, public)
    act_as(BOB, lambda: refused(root, public, "belongs to another user"))


def test_a_store_that_a_group_shares_is_refused_to_who_is_not_in_it(public: Path) -> None:
    root = shared_store(public)
    act_as(CAROL, lambda: refused(root, public, "belongs to another user"))


def test_a_store_that_the_group_writes_without_sharing_it_is_a_strangers(public: Path) -> None:
    """A folder with the umask 002 and a group such as `users` is no invitation."""
    root = a_store_of(ALICE, public, umask=0o002)
    os.chown(root, ALICE.uid, LAB)
    act_as(BOB, lambda: refused(root, public, "belongs to another user"))


@pytest.mark.parametrize("folder", ["", "objects", "refs", "local"])
@pytest.mark.parametrize("user", [ALICE, ROOT], ids=["owner", "root"])
def test_a_store_that_every_user_may_write_is_refused_to_its_owner_too(
    public: Path, folder: str, user: User
) -> None:
    root = a_store_of(ALICE, public)
    (root / folder).chmod(0o777)
    act_as(user, lambda: refused(root, public, "every user"))


@pytest.mark.parametrize("trust", ["{root}", "/nowhere:{root}/", "*", "{link}", "~/s"])
def test_castore_trust_lists_what_is_used_all_the_same(
    public: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    root = a_store_of(ALICE, public)
    link = public / "link"
    link.symlink_to(root)
    monkeypatch.setenv("CASTORE_TRUST", trust.format(root=root, link=link))
    monkeypatch.setenv("HOME", str(root.parent))

    def read() -> None:
        assert castore.open(root).lookup("tuning", TOPOLOGY, "k") == A
        mine = castore.open(public / "mine", alternates=[root])
        assert mine.lookup("tuning", TOPOLOGY, "k") == A

    act_as(BOB, read)


@pytest.mark.parametrize("trust", ["", ":", "/", "{root}/objects", "{public}"])
def test_castore_trust_means_the_store_itself_and_no_other(
    public: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    root = a_store_of(ALICE, public)
    monkeypatch.setenv("CASTORE_TRUST", trust.format(root=root, public=public))
    act_as(BOB, lambda: refused(root, public, "belongs to another user"))


def test_a_librarys_cache_in_a_strangers_store_stays_in_memory_with_one_warning(
    public: Path,
) -> None:
    root = a_store_of(ALICE, public)
    before = sorted(str(path) for path in everything_in(root))

    def use() -> list[str]:
        kept: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: kept.append(record.getMessage())  # type: ignore[method-assign]  # a test double
        logging.getLogger("castore").addHandler(handler)
        cache: Any = PersistentCache("attention", root)
        cache.put("device", "op@v1", "ab" * 8, {"block": 64})
        assert cache.get("device", "op@v1", "ab" * 8).block == 64
        cache.put("device", "op@v1", "cd" * 8, {"block": 32})
        return kept

    warnings = act_as(BOB, use)
    assert len(warnings) == 1
    assert "belongs to another user" in warnings[0]
    assert sorted(str(path) for path in everything_in(root)) == before


def test_no_store_is_made_in_a_folder_that_every_user_may_write(public: Path) -> None:
    (public / "s").mkdir()
    os.chown(public / "s", ALICE.uid, -1)
    (public / "s").chmod(0o777)

    def make() -> None:
        with pytest.raises(UnsafeStoreError, match="every user"):
            castore.open(public / "s")

    act_as(ALICE, make)
    assert list((public / "s").iterdir()) == []


def test_a_new_store_is_never_open_to_all_whatever_the_umask(public: Path) -> None:
    root = a_store_of(ALICE, public, umask=0)
    assert not any(path.stat().st_mode & stat.S_IWOTH for path in everything_in(root))


def test_a_store_that_may_not_be_looked_into_is_no_missing_one(public: Path) -> None:
    root = a_store_of(ALICE, public)
    root.chmod(0o700)

    def look() -> str:
        with pytest.raises(PermissionError):
            castore.open(root, create=False)
        mine = castore.open(public / "mine", alternates=[root])
        assert mine.get(mine.put(B)) == B
        with contextlib.redirect_stderr(io.StringIO()) as told:
            assert main(["--store", str(root), "ls"]) == 1
        return told.getvalue()

    assert "ermission denied" in act_as(BOB, look)


def test_json_of_init_tells_of_a_shared_store_that_was_there(public: Path) -> None:
    root = shared_store(public)

    def again() -> dict[str, object]:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main(["init", "--shared=group", "--json", str(root)]) == 0
        found: dict[str, object] = json.loads(told.getvalue())
        return found

    assert act_as(BOB, again) == {"store": str(root), "is_new": False}
