"""The file system that tests use to let one call fail."""

from __future__ import annotations

import errno

import pytest

from castore.fs.memory import MemoryFileSystem
from tests.fs.faults import FaultyFileSystem

FULL = OSError(errno.ENOSPC, "no space")


def use(fs: FaultyFileSystem) -> None:
    fs.write_new("f", b"data")
    scope = fs.open_sync_scope()
    scope.sync_files(["f"])
    scope.close()
    fs.rename("f", "g")


@pytest.mark.parametrize(
    ("fail_at", "failed", "left"),
    [
        (0, "write_new", set()),
        (1, "open_sync_scope", {"f"}),
        (2, "sync_files", {"f"}),
        (3, "rename", {"f"}),
    ],
)
def test_exactly_the_call_asked_for_fails(fail_at: int, failed: str, left: set[str]) -> None:
    inner = MemoryFileSystem()
    fs = FaultyFileSystem(inner, fail_at=fail_at, error=FULL)
    with pytest.raises(OSError, match="no space"):
        use(fs)
    assert fs.calls[-1] == failed
    assert {entry.name for entry in inner.list_folder("")} == left
    fs.write_new("later", b"")


def test_no_call_fails_beyond_the_last() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), fail_at=4, error=FULL)
    use(fs)
    assert len(fs.calls) == 4
