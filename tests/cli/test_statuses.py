"""Every exit status, and errors that take one line."""

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from castore.cli.status import ExitStatus
from castore.errors import (
    CastoreError,
    CorruptObjectError,
    CorruptRefError,
    FileTooLargeError,
    LockTimeoutError,
    MaintenanceRefusedError,
    MalformedError,
    NotRegularFileError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
    RefConflictError,
    RefNotFoundError,
    StoreNotFoundError,
    StoreVersionError,
    UnsafeStoreError,
)
from castore.store.store import Store
from castore.tuning import DeviceUnavailableError, NothingAcceptableError, UnknownKernelError

from .conftest import Run

ID = "ab" * 32

_ERRORS = [
    (CastoreError("x"), ExitStatus.FAILED),
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a\nb"), ExitStatus.FAILED),
    (OSError("without a number"), ExitStatus.FAILED),
    (RuntimeError("a\nbug"), ExitStatus.FAILED),
    (MalformedError(".a", "b"), ExitStatus.USAGE),
    (ObjectNotFoundError(ID), ExitStatus.NOT_FOUND),
    (RefNotFoundError("x"), ExitStatus.NOT_FOUND),
    (StoreNotFoundError("x", "y"), ExitStatus.NOT_FOUND),
    (UnknownKernelError("x", ()), ExitStatus.NOT_FOUND),
    (CorruptObjectError(ID, "x", "y"), ExitStatus.DAMAGE),
    (CorruptRefError("x", "y"), ExitStatus.DAMAGE),
    (NotRegularFileError("x", "a FIFO"), ExitStatus.DAMAGE),
    (FileTooLargeError("x", 2, 1), ExitStatus.DAMAGE),
    (LockTimeoutError("x", 1.0, ""), ExitStatus.LOCKED),
    (RefConflictError("x", ID, ID), ExitStatus.CONFLICT),
    (StoreVersionError("x", "castore 2"), ExitStatus.UNUSABLE),
    (ReadOnlyStoreError("x", "y"), ExitStatus.UNUSABLE),
    (UnsafeStoreError("x", "y"), ExitStatus.UNUSABLE),
    (MaintenanceRefusedError("gc", "y"), ExitStatus.UNUSABLE),
    (NothingAcceptableError("x", 1, ()), ExitStatus.NOTHING_ACCEPTABLE),
    (DeviceUnavailableError("wgpu", "y"), ExitStatus.INCOMPLETE),
]


@pytest.mark.parametrize(("error", "status"), _ERRORS, ids=lambda each: type(each).__name__)
def test_an_error_takes_one_line_and_has_its_status(
    error: Exception, status: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("castore.cli.ls.run", fail)
    ended = run("ls")
    assert ended.status == status
    assert ended.out == ""
    assert ended.err.startswith("castore: ")
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


def test_an_error_of_the_system_names_the_path(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = run("put", str(tmp_path))
    assert ended.status == ExitStatus.FAILED
    assert ended.err == f"castore: {tmp_path}: Is a directory\n"


@pytest.mark.parametrize(
    "arguments",
    [["bogus"], ["cat"], ["gc", "--bogus"], ["ls", "extra"], ["tune", "--samples", "0"]],
)
def test_wrong_usage_takes_one_line(arguments: list[str], run: Run) -> None:
    ended = run(*arguments)
    assert ended.status == ExitStatus.USAGE
    assert ended.err.startswith("castore: ")
    assert ended.err.count("\n") == 1
    assert "--help" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["cat", "abcd"],
        ["show", "abcd"],
        ["log", "x"],
        ["restore", "x"],
        ["fsck"],
        ["gc"],
        ["forget", "--kernel", "x"],
        ["stats"],
        ["pin"],
        ["pin", "abcd"],
        ["topology", "--list"],
        ["why", "affine_f32"],
    ],
)
def test_a_missing_store_is_named_with_the_way_to_make_one(
    arguments: list[str], run: Run, tmp_path: Path
) -> None:
    ended = run("--store", str(tmp_path / "no store"), *arguments)
    assert ended.status == ExitStatus.NOT_FOUND
    assert f"castore init '{tmp_path}/no store'\n" in ended.err
    assert not (tmp_path / "no store").exists()


def test_a_store_of_an_unknown_version_is_left_alone(
    store: Store, run: Run, tmp_path: Path
) -> None:
    store.put(1)
    (tmp_path / "store" / "format").write_text("castore 2\n")
    for arguments in (["ls"], ["gc"], ["fsck"]):
        ended = run(*arguments)
        assert ended.status == ExitStatus.UNUSABLE
        assert "upgrade" in ended.err


def test_ctrl_c_ends_without_a_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("castore.cli.ls.run", interrupt)
    ended = run("ls")
    assert (ended.status, ended.out, ended.err) == (ExitStatus.INTERRUPTED, "", "")


def test_store_may_stand_before_or_after_the_command(run: Run, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    run("init", elsewhere)
    for arguments in (["--store", elsewhere, "stats"], ["stats", "--store", elsewhere]):
        assert run(*arguments, "--json").document["store"] == elsewhere
    assert run("--json", "--store", elsewhere, "stats").document["store"] == elsewhere


def _started(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "castore", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.parametrize("arguments", [["cat", "big"], ["--version"], ["ls"]])
def test_a_reader_that_goes_away_ends_the_command_quietly(
    store: Store, arguments: list[str]
) -> None:
    store.set_name("big", store.put(["line"] * 100_000))
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as gone:
        ended = subprocess.run(
            [sys.executable, "-m", "castore", *arguments],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (ExitStatus.READER_GONE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_behind_stdout_is_told_once(store: Store) -> None:
    store.set_name("value", store.put(1))
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "castore", "cat", "value"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, b"castore: No space left on device\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "affine_f32", "--device", "numpy", "--candidates", "1", "--samples", "1"],
        ["fsck"],
        ["gc"],
        ["stats"],
        ["cat", "value"],
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_a_stream_that_the_shell_has_closed_is_as_one_to_nowhere(
    store: Store, arguments: list[str], closed: str
) -> None:
    store.set_name("value", store.put(1))
    command = shlex.join([sys.executable, "-m", "castore", *arguments])
    ended, usual = (
        subprocess.run(["sh", "-c", f"{command} {streams}"], capture_output=True, check=False)
        for streams in (closed, closed.replace("&-", "/dev/null"))
    )
    assert (ended.returncode, usual.returncode) == (0, 0)
    assert ended.stderr == usual.stderr or arguments[0] == "tune"  # which does less the next time
    # Nothing that belongs on stderr is on stdout.
    assert ended.stdout.count(b"\n") == usual.stdout.count(b"\n")


def test_a_terminal_that_lacks_letters_gets_escapes(store: Store) -> None:
    store.record("tuning", ID, "gemm_漢", 1)
    with _started("ls", env={**os.environ, "PYTHONIOENCODING": "ascii"}) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"gemm_\\u6f22" in out


def test_the_module_runs_as_the_command(run: Run) -> None:
    run("init")
    with _started("put", stdin=subprocess.PIPE) as process:
        out, _ = process.communicate(b"1")
    assert process.returncode == 0
    assert run("cat", out.decode().strip()).out == "1\n"
