"""Invariant 7, and where a store may be: opening, making, refusing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import (
    CastoreError,
    MalformedError,
    ReadOnlyStoreError,
    StoreNotFoundError,
    StoreVersionError,
    UnsafeStoreError,
)
from castore.format import layout
from castore.fs.posix import PosixFileSystem
from castore.maintenance import fsck, gc
from tests.store.worlds import FOREIGN_TOPOLOGY, TOPOLOGY, errors_in, id_of, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.fs.protocol import Entry

A, B = manifest(1), manifest(2)
T = FOREIGN_TOPOLOGY


def listing(root: Path) -> dict[str, bytes | None]:
    """Return every path below a folder, with the content of files."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if not path.is_symlink()
    }


def test_a_missing_folder_becomes_a_store_with_its_parents(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "a/b/c")
    assert (store.root / "format").read_bytes() == b"castore 1\n"
    assert len(list((store.root / "objects").iterdir())) == 256


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_no_store_is_made_where_that_was_not_wanted(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    with pytest.raises(StoreNotFoundError):
        castore.open(
            tmp_path / "s",
            create=options.get("create", True),
            read_only=options.get("read_only", False),
        )
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["thesis.tex", ".git", "Objects", "format.txt"])
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(StoreNotFoundError, match="not empty"):
        castore.open(tmp_path)
    assert listing(tmp_path) == before


def test_objects_without_a_format_file_are_left_alone(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.put(A)
    (store.root / "format").unlink()
    with pytest.raises(StoreNotFoundError):
        castore.open(store.root)


@pytest.mark.parametrize("kept", [0, 1, 3, 8])
def test_an_interrupted_creation_completes(tmp_path: Path, kept: int) -> None:
    root = castore.open(tmp_path / "s").root
    (root / "format").unlink()
    for folder in layout.SHARD_FOLDERS[kept:]:
        (root / folder).rmdir()
    if kept < 3:
        shutil.rmtree(root / "local")
    store = castore.open(root)
    assert store.get(store.put(A)) == A
    assert len(list((root / "objects").iterdir())) == 256
    assert fsck.check(store).findings == ()


def test_a_store_that_another_process_made_and_filled_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked for `format`, then for objects: a store made in between was taken for rubbish."""
    root = tmp_path / "s"
    list_folder = PosixFileSystem.list_folder

    def slower(self: PosixFileSystem, path: str) -> list[Entry]:
        found = list_folder(self, path)
        if path == "" and not (root / "format").exists():
            monkeypatch.setattr(PosixFileSystem, "list_folder", list_folder)
            castore.open(root).put(A)
        return found

    monkeypatch.setattr(PosixFileSystem, "list_folder", slower)
    assert castore.open(root).get(id_of(A)) == A


def test_many_processes_may_make_one_store_at_once(tmp_path: Path) -> None:
    code = (
        "import castore, sys; s = castore.open(sys.argv[1]);print(s.put({'n': int(sys.argv[2])}))"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "s"), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    ids = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 8
    assert set(castore.open(tmp_path / "s").ids()) == ids


def test_many_threads_may_make_one_store_at_once(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    got: list[str] = []

    def work(number: int) -> None:
        start.wait()
        got.append(castore.open(tmp_path / "s").put(manifest(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(castore.open(tmp_path / "s").ids())


@pytest.mark.parametrize(
    "text", [b"castore 2\n", b"castore 1\nreftable\n", b"castore 10\n", b"castore 1\npacks\nx\n"]
)
def test_an_unknown_version_or_extension_is_refused_and_nothing_is_written(
    tmp_path: Path, text: bytes
) -> None:
    root = castore.open(tmp_path / "s").root
    (root / "format").write_bytes(text)
    shutil.rmtree(root / "local")
    before = listing(root)
    for read_only in (False, True):
        with pytest.raises(StoreVersionError):
            castore.open(root, read_only=read_only)
    with pytest.raises(StoreVersionError):
        castore.open(tmp_path / "other", alternates=[root])
    assert listing(root) == before


@pytest.mark.parametrize("text", [b"", b"castore 1", b"castore one\n", b"\xff\xfe", b"git\n"])
def test_a_format_file_that_is_none_is_refused_and_nothing_is_written(
    tmp_path: Path, text: bytes
) -> None:
    root = castore.open(tmp_path / "s").root
    (root / "format").write_bytes(text)
    before = listing(root)
    with pytest.raises((MalformedError, StoreVersionError)):
        castore.open(root)
    assert listing(root) == before


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "large"])
def test_a_strange_format_file_is_a_typed_error_at_once(tmp_path: Path, kind: str) -> None:
    root = castore.open(tmp_path / "s").root
    path = root / "format"
    path.unlink()
    if kind == "link":
        path.symlink_to(tmp_path / "nothing")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"castore 1\n" * 1000)
    with pytest.raises(CastoreError):
        castore.open(root)


def test_a_copy_without_local_gets_one(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    oid = store.record("tuning", T, "k", A)
    shutil.copytree(store.root, tmp_path / "copy", ignore=shutil.ignore_patterns("local"))
    copy = castore.open(tmp_path / "copy")
    assert copy.lookup("tuning", T, "k") == A
    copy.record("tuning", T, "k2", B)
    gc.apply(copy, gc.plan(copy, grace_s=0))
    assert copy.get(oid) == A
    assert errors_in(copy) == []


def test_a_copy_without_empty_folders_is_readable_and_writable(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    store.record("tuning", T, "k", A)
    shutil.copytree(store.root, tmp_path / "copy", ignore=shutil.ignore_patterns("local"))
    for folder in [*(tmp_path / "copy/objects").iterdir(), tmp_path / "copy/packs"]:
        if not any(folder.iterdir()):
            folder.rmdir()
    copy = castore.open(tmp_path / "copy")
    assert copy.lookup("tuning", T, "k") == A
    copy.record("config", T, "k2", B)
    assert copy.lookup("config", T, "k2") == B
    assert fsck.check(copy).findings == tuple(
        each for each in fsck.check(copy).findings if each.id == "ref-topology-foreign"
    )


@pytest.mark.parametrize("name", ["local", "local/tmp", "local/trash", "local/leases"])
def test_a_local_folder_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    root = castore.open(tmp_path / "s").root
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / name, elsewhere)
    (root / name).symlink_to(elsewhere)
    with pytest.raises(UnsafeStoreError):
        castore.open(root)


def test_castore_dir_names_the_store_that_is_used_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASTORE_DIR", str(tmp_path / "named"))
    assert castore.open().root == tmp_path / "named"


def test_a_tilde_in_a_variable_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quoted one reaches the program; it must not make a folder called `~`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with castore.open(tmp_path / "below") as below:
        oid = below.put(1)
    monkeypatch.setenv("CASTORE_DIR", "~/named")
    monkeypatch.setenv("CASTORE_ALTERNATES", "~/below")
    with castore.open() as store:
        assert store.root == tmp_path / "named"
        assert store.get(oid) == 1


def test_without_castore_dir_the_cache_folder_of_the_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASTORE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert castore.open().root.is_relative_to(tmp_path)


def test_a_wrong_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match="durability"):
        castore.open(tmp_path / "s", durability="some")  # type: ignore[arg-type]  # on purpose


def test_an_empty_path_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset shell variable would otherwise turn any empty folder into a store."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MalformedError):
        castore.open("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["a\0b", b"a\0b", "a\ud800b", Path("a\0b")], ids=repr)
@pytest.mark.parametrize("as_alternate", [False, True])
def test_a_path_that_no_file_can_have_is_a_typed_error_in_printable_words(
    tmp_path: Path, path: str, *, as_alternate: bool
) -> None:
    root, alternates = (tmp_path / "s", [path]) if as_alternate else (path, [])
    with pytest.raises(MalformedError) as caught:
        castore.open(root, alternates=alternates)
    assert str(caught.value).isprintable()


def test_a_path_may_be_bytes(tmp_path: Path) -> None:
    store = castore.open(os.fsencode(tmp_path / "s"))
    assert store.root == tmp_path / "s"


@pytest.fixture
def group_shared(tmp_path: Path) -> Iterator[Path]:
    old = os.umask(0o077)
    root = tmp_path / "s"
    root.mkdir()
    root.chmod(0o2770)
    yield root
    os.umask(old)


def test_a_store_that_a_group_shares_stays_shared_whatever_the_umask(group_shared: Path) -> None:
    store = castore.open(group_shared)
    store.record("tuning", T, "k", A)
    for path in group_shared.rglob("*"):
        mode = path.stat().st_mode
        assert mode & 0o060 == 0o060, path
        assert mode & 0o007 == 0, path
        assert path.is_file() or mode & 0o010, path


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that any user may enter, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_two_users_of_one_group_share_a_store(public_folder: Path, umask: int) -> None:
    user, group = 65534, 65533
    root = public_folder / "s"
    root.mkdir()
    os.chown(root, -1, group)
    root.chmod(0o2770)
    old = os.umask(umask)
    try:
        store = castore.open(root)
        store.record("tuning", TOPOLOGY, "k", A)
        child = os.fork()
        if child == 0:
            os._exit(as_another_user(root, user, group))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.record("tuning", TOPOLOGY, "k", B, expected=id_of(manifest(7)))
        gc.apply(store, gc.plan(store, grace_s=0))
    finally:
        os.umask(old)
    assert store.lookup("tuning", TOPOLOGY, "theirs") == B
    assert fsck.check(store).findings == ()


def as_another_user(root: Path, user: int, group: int) -> int:
    """Read, write, replace and collect as another user of the group; return an exit status."""
    try:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        store = castore.open(root)
        assert store.lookup("tuning", TOPOLOGY, "k") == A
        before = store.fs.stat(layout.object_path(id_of(A))).mtime_ns
        store.put(A)
        assert store.fs.stat(layout.object_path(id_of(A))).mtime_ns > before
        store.record("tuning", TOPOLOGY, "theirs", B)
        store.record("tuning", TOPOLOGY, "k", manifest(7), on_conflict="replace")
        store.record("tuning", TOPOLOGY, "k", A, on_conflict="replace")
        store.record("tuning", TOPOLOGY, "k", manifest(7), on_conflict="replace")
        gc.apply(store, gc.plan(store, grace_s=0))
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must learn of it
        traceback.print_exc()
        return 1
    return 0


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_the_mode_of_the_root_is_that_of_what_is_in_it(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "s"
    root.mkdir()
    root.chmod(mode)
    old = os.umask(0o077)
    try:
        oid = castore.open(root).put(A)
    finally:
        os.umask(old)
    found = (root / layout.object_path(oid)).stat().st_mode & 0o777
    assert found == mode & 0o444
    assert (root / "objects/00").stat().st_mode & 0o777 == mode


def test_closing_and_using_with_is_a_courtesy(tmp_path: Path) -> None:
    with castore.open(tmp_path / "s") as store:
        store.put(A)
    store.close()
    assert store.get(id_of(A)) == A


def test_read_only_opening_of_a_store_needs_no_local(tmp_path: Path) -> None:
    root = castore.open(tmp_path / "s").root
    castore.open(root).record("tuning", T, "k", A)
    shutil.rmtree(root / "local")
    store = castore.open(root, read_only=True)
    assert store.lookup("tuning", T, "k") == A
    assert not (root / "local").exists()
    with pytest.raises(ReadOnlyStoreError):
        store.put(B)
