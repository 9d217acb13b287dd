"""repair, from the outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import castore
from castore.maintenance import gc

if TYPE_CHECKING:
    from pathlib import Path

    from castore.store.store import Store

    from .conftest import Run

_FOREIGN = "cd" * 32


def damage(store: Store, oid: str) -> None:
    path = store.root / "objects" / oid[:2] / oid[2:]
    path.chmod(0o600)
    path.write_bytes(b"junk")


def test_nothing_to_repair_ends_with_0_and_changes_nothing(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    ended = run("repair")
    assert (ended.status, ended.out) == (0, "nothing to repair\n")
    ended = run("repair", "--dry-run")
    assert (ended.status, ended.out) == (0, "nothing to repair\n")


def test_damage_is_shown_mended_from_another_store_and_then_gone(
    store: Store, run: Run, tmp_path: Path
) -> None:
    backup = castore.open(tmp_path / "backup")
    oid = store.record("tuning", _FOREIGN, "gemm", 1)
    backup.put(1)
    damage(store, oid)
    planned = run("repair", "-n", "--from", str(tmp_path / "backup"))
    assert planned.status == 4
    assert f"would copy object {oid} from {tmp_path}/backup" in planned.out
    assert run("fsck").status == 4
    ended = run("repair", "--from", str(tmp_path / "backup"))
    assert ended.status == 0
    assert "repaired: moved 1 damaged object, copied 1 object\n" in ended.out
    assert run("fsck").status == 0
    assert store.get(oid) == 1
    assert len(list((store.root / "local/quarantine").iterdir())) == 1


def test_what_nobody_has_is_told_and_ends_with_4(store: Store, run: Run) -> None:
    oid = store.record("tuning", _FOREIGN, "gemm", 1)
    damage(store, oid)
    ended = run("repair")
    assert ended.status == 4
    assert f"no good copy of object {oid}" in ended.out
    assert "left: error: ref-object-missing: tuning/gemm" in ended.out
    again = run("repair", "--refs")
    assert again.status == 4
    assert "nothing can be repaired from here\n" in again.out
    for step in ("repair --from STORE", "tune KERNEL", "forget --kernel TEXT"):
        assert f"  castore {step} " in again.out
    assert run("repair", "--json").document["left"][0]["missing"] == oid


def test_the_steps_that_repair_names_for_a_ref_without_its_object_end_the_error(
    store: Store, run: Run
) -> None:
    damage(store, store.record("tuning", _FOREIGN, "gemm", 1))
    store.set_name("kept", damaged := store.put(2))
    damage(store, damaged)
    run("repair", "--refs")
    assert run("forget", "--kernel", "gemm").status == 0
    store.delete_name("kept")
    assert run("fsck").status == 0
    assert run("repair").status == 0


def test_refs_come_back_from_their_log(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    damage(store, store.record("tuning", _FOREIGN, "gemm", 2, on_conflict="replace"))
    document = run("repair", "--refs", "--json").document
    assert document["report"]["refs_restored"] == 1
    assert [each["kernel"] for each in document["plan"]["restore"]] == ["gemm"]
    assert store.lookup("tuning", _FOREIGN, "gemm") == 1
    assert "repair" in run("log", "gemm").out


def test_leftovers_are_removed_by_age(store: Store, run: Run) -> None:
    half = store.root / "local/tmp/half"
    half.write_bytes(b"")
    assert run("repair").out == "nothing to repair\n"
    os.utime(half, (1, 1))
    assert "removed 1 leftover" in run("repair", "--leftovers", "30d").out
    assert not half.exists()


def test_repair_waits_for_gc_a_bounded_time(store: Store, run: Run) -> None:
    with gc.locked(store, wait_s=0):
        assert run("repair", "--wait", "0s").status == 5


@pytest.mark.parametrize("arguments", [["--from", "nowhere"], ["--leftovers", "3"]])
def test_repair_refuses_what_it_cannot_use(store: Store, run: Run, arguments: list[str]) -> None:
    assert run("repair", *arguments).status in (2, 3)
