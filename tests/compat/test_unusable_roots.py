"""A root that cannot be used costs one warning, and configurations stay in memory."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import castore
from castore.compat import ManifestCache, PersistentCache, backing
from castore.errors import MalformedError

CALL = ("cpu|cpu", "attention@v0", "5645c67752613303")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def assert_works_in_memory(first: Any, second: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert first.get(*CALL) is None
    for n in range(3):
        first.put(*CALL, {"n": [n]})
        first.get(*CALL).n.append("changed")
        assert first.get(*CALL).n == [n]
    assert second.get(*CALL) is None, "another operation's"
    assert len(warnings_of(caplog)) == 1, warnings_of(caplog)


def two_caches(path: Path | str | None) -> tuple[Any, Any]:
    given = None if path is None else str(path)
    return PersistentCache("one", given), PersistentCache("two", given)


class PathInBytes(os.PathLike[bytes]):
    """A path that gives bytes, as `os.DirEntry` of a listing in bytes does."""

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __fspath__(self) -> bytes:
        return self._path


PUT = """
import sys
from castore.compat import PersistentCache
PersistentCache("one", sys.argv[1]).put("cpu|cpu", "attention@v0", "5645c67752613303",
                                        {"n": sys.argv[2]})
"""


def put_elsewhere(root: Path, n: str) -> None:
    subprocess.run([sys.executable, "-c", PUT, str(root), n], check=True)


def test_a_file_in_the_way_of_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert_works_in_memory(*two_caches(tmp_path / "file/store"), caplog)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_folder_that_holds_something_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    assert_works_in_memory(*two_caches(tmp_path), caplog)
    assert os.listdir(tmp_path) == ["precious"]


def test_a_place_where_no_folder_can_be_made(caplog: pytest.LogCaptureFixture) -> None:
    assert_works_in_memory(*two_caches("/proc/self/castore"), caplog)


def test_a_store_of_an_unknown_version_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    castore.open(root).close()
    (root / "format").chmod(0o644)
    (root / "format").write_bytes(b"castore 99\n")
    before = sorted(path for path in root.rglob("*"))
    assert_works_in_memory(*two_caches(root), caplog)
    assert sorted(path for path in root.rglob("*")) == before


def test_a_store_that_vanishes_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = two_caches(tmp_path / "store")
    first.put("other", *CALL[1:], 1)
    shutil.rmtree(tmp_path / "store")
    assert_works_in_memory(first, second, caplog)


# Paths that no file system can have, and places that are gone.

ODD_PATHS = [
    "/tmp/a\0b",  # noqa: S108 - nothing can be made there
    "/tmp/a\0b.json",  # noqa: S108 - as above
    b"/tmp/a\0b",
    "/tmp/\ud800",  # noqa: S108 - as above
    "/tmp/\ud800.json",  # noqa: S108 - as above
    "\0",
    "",
    "x" * 5000,
]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_a_path_that_cannot_be(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backing, "_shared", {})
    assert_works_in_memory(PersistentCache("one", path), PersistentCache("two", path), caplog)
    assert warnings_of(caplog)[0].isprintable()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ODD_PATHS)
def test_a_manifest_cache_refuses_a_path_that_cannot_be(path: Any) -> None:
    with pytest.raises((castore.CastoreError, OSError)) as refused:
        ManifestCache(path)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", [b"store", b"caf\xc3\xa9", b"\xff"])
@pytest.mark.parametrize("make", [lambda path: path, PathInBytes])
def test_a_path_in_bytes_is_a_path(tmp_path: Path, name: bytes, make: Any) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    PersistentCache("one", make(path)).put(*CALL, {"n": 1})
    ManifestCache(make(path)).store_tuning({"cache_key": "ab" * 32})
    assert PersistentCache("one", os.fsdecode(path)).get(*CALL).n == 1
    assert ManifestCache(os.fsdecode(path)).load_tuning("ab" * 32) is not None


@pytest.mark.parametrize("path", ["store", "fa.json", "."])
def test_a_relative_path_in_a_folder_that_is_gone(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backing, "_shared", {})
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        assert_works_in_memory(*two_caches(path), caplog)
    finally:
        os.chdir(tmp_path)


@pytest.mark.parametrize("opname", ["a\0b", "\ud800", "../up", "", 7, None, b"bytes"])
def test_an_operation_that_cannot_be_named_is_missed_and_refused(
    opname: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EJKERNEL_PERSISTENT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CASTORE_DIR", str(tmp_path / "store"))
    kept: PersistentCache[Any] = PersistentCache(opname)
    if opname in ("../up", ""):
        kept.put(*CALL, 1)
        assert kept.get(*CALL) == 1
        return
    assert kept.get(*CALL) is None or opname == "a\0b"
    if opname != "a\0b":
        with pytest.raises(MalformedError):
            kept.put(*CALL, 1)


# What stayed in memory, and the store.


def closed(root: Path) -> Path:
    """Make writing fail, and nothing else."""
    locks = root / "local/leases"
    locks.rmdir()
    return locks


def test_what_another_process_replaced_is_seen_after_a_put_that_failed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    kept, _ = two_caches(root)
    kept.put(*CALL, {"n": "before"})
    locks = closed(root)
    kept.put(*CALL, {"n": "memory"})
    assert [kept.get(*CALL).n for _ in range(3)] == ["memory"] * 3
    locks.mkdir()
    put_elsewhere(root, "theirs")
    assert [kept.get(*CALL).n for _ in range(3)] == ["theirs"] * 3
    assert kept._backing._memory == {}


def test_what_another_process_put_first_is_seen_after_a_put_that_failed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    kept, _ = two_caches(root)
    locks = closed(root)
    kept.put(*CALL, {"n": "memory"})
    locks.mkdir()
    put_elsewhere(root, "theirs")
    assert [kept.get(*CALL).n for _ in range(3)] == ["theirs"] * 3


def test_what_is_put_while_a_put_fails_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    kept, _ = two_caches(root)
    kept.put(*CALL, {"n": "before"})

    def replaced_first(*_: object, **__: object) -> None:
        put_elsewhere(root, "theirs")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(kept._backing.store, "record", replaced_first)
    kept.put(*CALL, {"n": "memory"})
    assert kept.get(*CALL).n == "theirs"


def test_what_cannot_be_read_leaves_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    kept, _ = two_caches(root)
    kept.put(*CALL, {"n": "before"})
    closed(root)
    kept.put(*CALL, {"n": "memory"})

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(kept._backing.store, "get_ref", fails)
    assert kept.get(*CALL).n == "memory"


def test_what_the_store_has_comes_before_a_file_that_could_not_be_imported(
    tmp_path: Path,
) -> None:
    root = tmp_path / "fa.castore"
    PersistentCache("one", str(root)).put(*CALL, {"n": "store"})
    locks = closed(root)
    new = ("gpu|gpu", *CALL[1:])
    content = {"|".join(CALL): {"n": "file"}, "|".join(new): {"n": "file"}}
    (tmp_path / "fa.json").write_text(json.dumps(content))
    kept: PersistentCache[Any] = PersistentCache("one", str(tmp_path / "fa.json"))
    assert kept.get(*CALL).n == "store"
    assert kept.get(*new).n == "file"
    locks.mkdir()


def test_a_store_that_can_be_written_again_forgets_the_memory(tmp_path: Path) -> None:
    kept, _ = two_caches(tmp_path / "store")
    locks = tmp_path / "store/local/leases"
    locks.rmdir()
    kept.put(*CALL, {"n": "memory"})
    assert kept.get(*CALL).n == "memory"
    locks.mkdir()
    kept.put(*CALL, {"n": "store"})
    assert kept.get(*CALL).n == "store"
    assert kept._backing._memory == {}


# Everything is imported, and tried once, before the rights are dropped: the interpreter's own
# files may be closed to others.
AS_NOBODY = """
import logging, os, sys
from castore.compat import PersistentCache
CALL = ("cpu|cpu", "attention@v0", "5645c67752613303")
warm = PersistentCache("one", sys.argv[2])
warm.put(*CALL, {"n": 0}); warm.get(*CALL); os.environ["CASTORE_DIR"] = sys.argv[2]
PersistentCache("one"); import platformdirs, platformdirs.unix
del os.environ["CASTORE_DIR"]
for name in ("HOME", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="WARNED %(message)s")
os.setgroups([]); os.setgid(54321); os.setuid(54321)
kept = PersistentCache("one", sys.argv[1] or None)
print("FOUND", kept.get(*CALL))
kept.put(*CALL, {"n": 2}); kept.put(*CALL, {"n": 3})
print("THEN", kept.get(*CALL))
"""

as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else"
)


def run_as_nobody(path: Path | str, tmp_path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path), str(tmp_path / "warm")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def assert_found_and_then(lines: list[str], found: str) -> None:
    said = [line for line in lines if "WARNED" not in line]
    assert said == [f"FOUND {found}", "THEN Namespace(n=3)"]
    assert len(lines) - len(said) == 1, lines


def opened_to_all(folder: Path) -> None:
    """Let another user reach what is below pytest's own folders, which are closed to others."""
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)


@as_root
def test_a_store_of_somebody_else_is_read_and_puts_stay_in_memory(tmp_path: Path) -> None:
    root = tmp_path / "store"
    PersistentCache("one", str(root)).put(*CALL, {"n": 1})
    opened_to_all(tmp_path)
    assert_found_and_then(run_as_nobody(root, tmp_path), "Namespace(n=1)")
    assert PersistentCache("one", str(root)).get(*CALL).n == 1


@as_root
def test_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    root = tmp_path / "closed"
    PersistentCache("one", str(root / "store")).put(*CALL, {"n": 1})
    opened_to_all(tmp_path)
    root.chmod(0o700)
    assert_found_and_then(run_as_nobody(root / "store", tmp_path), "None")


@as_root
@pytest.mark.parametrize("path", ["", "~/store", "~/fa.json"])
def test_no_home(tmp_path: Path, path: str) -> None:
    opened_to_all(tmp_path)
    assert_found_and_then(run_as_nobody(path, tmp_path), "None")
    assert os.listdir(tmp_path) == ["warm"]
