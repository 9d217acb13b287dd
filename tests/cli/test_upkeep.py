"""init, fsck, gc, stats and pin."""

import errno
import json
from pathlib import Path

import pytest

import castore
from castore.fs.posix import PosixFileSystem
from castore.fs.protocol import Entry
from castore.maintenance import gc
from castore.store.store import Store

from .conftest import Run

_FOREIGN = "cd" * 32


def _damage(store: Store, oid: str) -> None:
    path = store.root / "objects" / oid[:2] / oid[2:]
    path.chmod(0o600)
    path.write_bytes(b"junk")


def test_init_makes_a_store_once(run: Run, tmp_path: Path) -> None:
    assert run("init").out == f"made a store at {tmp_path}/store\n"
    assert "already" in run("init").out
    assert run("init", str(tmp_path / "other"), "--json").document == {
        "store": str(tmp_path / "other"),
        "is_new": True,
    }


def test_init_refuses_a_folder_with_other_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    ended = run("init", str(tmp_path))
    assert ended.status == 3
    assert "mine" in ended.err


def test_fsck_of_a_clean_store_ends_with_0(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    ended = run("fsck")
    assert ended.status == 0
    assert ended.out.splitlines()[-1] == "checked 1 object and 1 ref: 1 remark"


def test_fsck_names_damage_and_ends_with_4(store: Store, run: Run) -> None:
    oid = store.record("tuning", _FOREIGN, "gemm", 1)
    _damage(store, oid)
    ended = run("fsck")
    assert ended.status == 4
    assert any(
        line.startswith(f"error: object-damaged: {oid}: ") for line in ended.out.splitlines()
    )
    *findings, summary = map(json.loads, run("fsck", "--json").out.splitlines())
    assert ("error", "object-damaged", oid) in {
        (each["severity"], each["id"], each["subject"]) for each in findings
    }
    assert {each["type"] for each in findings} == {"finding"}
    assert (summary["type"], summary["errors"], summary["objects"]) == ("summary", 1, 1)


def test_fsck_that_cannot_read_everything_ends_with_9(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    real = PosixFileSystem.list_folder

    def list_folder(fs: PosixFileSystem, path: str) -> list[Entry]:
        if path == "objects/42":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(fs, path)

    monkeypatch.setattr(PosixFileSystem, "list_folder", list_folder)
    ended = run("fsck")
    assert ended.status == 9
    assert "objects/42" in ended.out
    assert ended.out.endswith("not everything could be read\n")


def test_a_warning_alone_is_no_damage(store: Store, run: Run, tmp_path: Path) -> None:
    store.put(1)
    (tmp_path / "store" / "objects" / "00" / "notes\x1b.txt").write_text("x")
    ended = run("fsck")
    assert ended.status == 0
    assert "warning: object-foreign-file" in ended.out
    assert "notes\\x1b.txt" in ended.out


def test_gc_removes_what_nothing_needs(store: Store, run: Run) -> None:
    kept = store.record("tuning", _FOREIGN, "gemm", 1)
    loose = store.put(2)
    assert run("gc").out.startswith("removed 0 objects (0 bytes); kept 1 reachable and 1 recent")
    planned = run("gc", "--grace", "0s", "-n")
    assert planned.out.splitlines()[0] == f"would remove {loose}"
    assert store.has(loose)
    document = run("gc", "--grace", "0s", "--json").document
    assert document["plan"]["prune"] == [loose]
    assert document["report"]["removed"] == 1
    assert set(store.ids()) == {kept}


@pytest.mark.parametrize("grace", ["14", "1y", "", "-1s"])
def test_gc_refuses_an_unclear_grace_period(store: Store, run: Run, grace: str) -> None:
    loose = store.put(2)
    ended = run("gc", f"--grace={grace}")
    assert ended.status == 2
    assert "with a unit, such as 90s, 12h or 14d" in ended.err
    assert store.has(loose)


def test_gc_waits_a_bounded_time_for_another(store: Store, run: Run) -> None:
    with gc.locked(store, wait_s=0):
        ended = run("gc", "--wait", "0s")
    assert ended.status == 5
    assert "held by" in ended.err


def test_gc_is_refused_where_all_refs_are_gone(store: Store, run: Run) -> None:
    store.put(1)
    ended = run("gc", "--grace", "0s")
    assert ended.status == 7
    assert "name an object" in ended.err
    assert len(list(store.ids())) == 1


def test_gc_says_what_the_plan_notes(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    monkeypatch.setattr("castore.fs.posix.PosixFileSystem.do_locks_work", lambda *_: False)
    ended = run("gc", "--grace", "0s")
    assert (
        ended.err == "castore: file locks do nothing here: the grace period is raised to 14 days\n"
    )


def test_stats_count_what_is_there(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    found = run("stats", "--json").document
    assert (found["objects"], found["refs"], found["pins"]) == (1, {"tuning": 1}, 0)
    lines = run("stats").out.splitlines()
    assert [line.split() for line in lines[:1]] == [["store", str(store.root)]]
    assert "refs in tuning  1" in lines


def test_a_pin_keeps_an_object_until_it_is_removed(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    oid = store.put({"figure": 3})
    assert run("pin", oid[:8], "--reason", "figure\x1b 3").out == f"pinned {oid[:12]}\n"
    run("gc", "--grace", "0s")
    assert store.has(oid)
    assert run("pin", "--json").document == [{"object": oid, "reason": "figure\x1b 3"}]
    assert "figure\\x1b 3" in run("pin").out
    assert run("pin", "--remove", oid[:8]).out == f"unpinned {oid[:12]}\n"
    assert run("pin").out == ""
    run("gc", "--grace", "0s")
    assert not store.has(oid)


def test_a_pin_of_an_object_that_is_gone_can_be_removed(store: Store, run: Run) -> None:
    oid = store.put(1)
    run("pin", oid)
    (store.root / "objects" / oid[:2] / oid[2:]).unlink()
    assert run("pin", oid, "--remove").status == 0


def test_pin_of_what_is_not_there_or_not_pinned_says_so(store: Store, run: Run) -> None:
    oid = store.put(1)
    assert run("pin", "ab" * 32).status == 3
    ended = run("pin", "--remove", oid)
    assert ended.status == 3
    assert "the pins" in ended.err
    assert run("pin", "--remove").status == 2


def test_a_store_of_this_command_opens_in_python(run: Run, tmp_path: Path) -> None:
    run("--store", str(tmp_path / "mine"), "init")
    with castore.open(tmp_path / "mine", create=False) as store:
        assert list(store.ids()) == []
