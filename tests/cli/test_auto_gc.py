"""gc --auto and the trimming of logs, from the outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from castore.format import layout
from castore.maintenance import auto_gc, gc

if TYPE_CHECKING:
    import pytest

    from castore.store.store import Store

    from .conftest import Run

_FOREIGN = "cd" * 32


def test_auto_says_why_there_is_nothing_to_do(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    ended = run("gc", "--auto")
    assert ended.status == 0
    assert ended.out == "nothing to do: fewer than about 1,000 objects, and no gc yet\n"
    document = run("gc", "--auto", "--json").document
    assert document["plan"] is None
    assert "no gc yet" in document["reason"]


def test_auto_collects_when_it_is_due_and_not_again_at_once(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    loose = store.put(2)
    os.utime(store.root / "objects" / loose[:2] / loose[2:], (1, 1))
    monkeypatch.setattr(auto_gc, "GROWTH_MIN", 0)
    assert run("gc", "--auto", "--grace", "0s").out.startswith("removed 1 object")
    assert not store.has(loose)
    assert "less than a day" in run("gc", "--auto", "--grace", "0s").out


def test_auto_leaves_the_work_to_a_gc_that_is_running(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_gc, "GROWTH_MIN", 0)
    with gc.locked(store, wait_s=0):
        ended = run("gc", "--auto")
    assert (ended.status, ended.out) == (0, "nothing to do: another gc is running\n")


def test_gc_trims_logs_and_a_dry_run_does_not(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    store.record("tuning", _FOREIGN, "gemm", 2, on_conflict="replace")
    run("gc", "--log-expiry", "0s", "-n")
    assert len(store.ref_log("tuning", _FOREIGN, "gemm")) == 2
    assert not (store.root / layout.GC_DONE).exists()
    ended = run("gc", "--grace", "0s", "--log-expiry", "0s")
    assert "removed 1 object" in ended.out
    assert "trimmed 1 log line" in ended.out
    assert len(store.ref_log("tuning", _FOREIGN, "gemm")) == 1
    assert run("gc", "--json").document["report"]["log_entries_trimmed"] == 0
