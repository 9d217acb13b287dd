"""Invariants 4 and 5 among real processes: one winner, no lost ref, gc beside writers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.maintenance import gc
from tests.store.children import all_said, beside, losses, said, start
from tests.store.worlds import errors_in, leftovers_on_disk
from tests.store.writers import TOPOLOGY, value

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return castore.open(tmp_path / "s").root


@pytest.mark.slow
@pytest.mark.parametrize("locks", ["flock", "none"])
def test_of_two_creators_exactly_one_wins_and_the_other_learns_both_ids(
    root: Path, locks: str
) -> None:
    rounds = 1000
    children = [start("create", root, me, rounds, CASTORE_TEST_LOCKS=locks) for me in range(2)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    first, second = (said(child) for child in children)
    store = castore.open(root)
    won_by_first = 0
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        assert ("won" in one) != ("won" in other), number
        winner, loser = (one, other) if "won" in one else (other, one)
        won_by_first += winner is one
        assert loser["existing"] == winner["won"]
        assert loser["wanted"] == castore.object_id(
            castore.encode(value(0 if loser is one else 1, number))
        )
        now = store.get_ref("tuning", TOPOLOGY, f"k{number}")
        assert now is not None
        assert now.object == winner["won"]
    assert len(first) == rounds
    assert leftovers_on_disk(root) == []


@pytest.mark.slow
@pytest.mark.parametrize("locks", ["flock", "none"])
def test_four_processes_that_make_a_hundred_refs_each_make_four_hundred(
    root: Path, locks: str
) -> None:
    all_said([start("many_refs", root, me, 100, CASTORE_TEST_LOCKS=locks) for me in range(4)])
    store = castore.open(root)
    assert len(list(store.refs("tuning"))) == 400
    for me in range(4):
        for number in range(100):
            assert store.lookup("tuning", TOPOLOGY, f"{me}-{number}") == value(me, number)
    assert errors_in(store) == []


@pytest.mark.slow
def test_eight_processes_that_put_the_same_objects_make_each_once(root: Path) -> None:
    children = [start("same_object", root, 40) for _ in range(8)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    all_said(children)
    store = castore.open(root)
    assert len(list(store.ids())) == 40
    assert errors_in(store) == []
    assert leftovers_on_disk(root) == []


def run_beside_gc(root: Path, rounds: int, **environment: str) -> tuple[list[Any], int]:
    """Let three writers work beside two gcs without grace; return all they said, and what went."""
    castore.open(root).record("tuning", TOPOLOGY, "kept", value("kept"))
    with beside("collect", root, 2, **environment) as collected:
        writers = [start("write_beside_gc", root, me, rounds, **environment) for me in range(3)]
        answers = all_said(writers)
    return answers, sum(each["removed"] for each in collected)


@pytest.mark.slow
def test_every_acknowledged_ref_resolves_beside_two_gcs_without_grace(root: Path) -> None:
    answers, removed = run_beside_gc(root, 800)
    assert losses(root, answers) == []
    assert len(answers) > 600
    assert removed > 50, "gc had nothing to do, so the test showed nothing"


@pytest.mark.slow
@pytest.mark.parametrize("step", ["freshen", "second look", "leases"])
def test_the_same_test_fails_when_a_step_of_the_protocol_is_left_out(
    tmp_path: Path, step: str
) -> None:
    for attempt in range(12):
        root = castore.open(tmp_path / str(attempt)).root
        try:
            answers, _ = run_beside_gc(root, 250, CASTORE_TEST_BREAK=step)
        except AssertionError:
            return
        if losses(root, answers):
            return
    pytest.fail(f"leaving out {step!r} was not noticed")


@pytest.mark.slow
def test_fsck_beside_writers_and_a_gc_finds_nothing(root: Path) -> None:
    castore.open(root).record("tuning", TOPOLOGY, "kept", value("kept"))
    with beside("check", root, 1) as checked, beside("collect", root, 1):
        all_said([start("write_beside_gc", root, me, 300) for me in range(2)])
    # A bare put may link to what a gc has taken: that is one, until its ref is refused.
    found = [each for each in checked if each.get("finding") not in (None, "object-link-missing")]
    assert found == []
    assert checked[-1]["rounds"] > 1


@pytest.mark.slow
def test_writers_that_are_killed_leave_nothing_worse_than_leftovers(root: Path) -> None:
    castore.open(root).record("tuning", TOPOLOGY, "kept", value("kept"))
    acknowledged: dict[str, str] = {}
    for me in range(12):
        child = start("endless", root, me)
        assert child.stdout is not None
        for _ in range(3 + 5 * me):
            line = json.loads(child.stdout.readline())
            acknowledged[line["kernel"]] = line["oid"]
        child.kill()
        rest, _ = child.communicate()
        for text in rest.splitlines():
            if text.endswith("}"):
                acknowledged[json.loads(text)["kernel"]] = json.loads(text)["oid"]
        store = castore.open(root)
        assert errors_in(store) == []
        store.record("tuning", TOPOLOGY, f"after-{me}", value("after", me))
    for kernel, oid in acknowledged.items():
        found = store.get_ref("tuning", TOPOLOGY, kernel)
        # The one write that was not acknowledged may have deleted or replaced it.
        assert found is None or store.has(found.object)
        assert oid
    gc.apply(store, gc.plan(store, grace_s=0))
    assert errors_in(store) == []
    for kept in store.refs("tuning"):
        assert store.get(kept.object)


@pytest.mark.slow
def test_a_gc_that_is_killed_loses_nothing(root: Path) -> None:
    store = castore.open(root)
    for attempt in range(8):
        kept = [
            store.record("tuning", TOPOLOGY, f"{attempt}-{n}", value(attempt, n)) for n in range(5)
        ]
        for number in range(60):
            store.put(value("rubbish", attempt, number))
        child = start("collect", root)
        # It is at work when the first of the rubbish has gone.
        while len(list(store.ids())) > 5 * (attempt + 1) + 55 and child.poll() is None:
            pass
        child.kill()
        child.communicate()
        assert errors_in(store) == []
        assert all(store.get(oid) for oid in kept)
    with gc.locked(store):
        gc.apply(store, gc.plan(store, grace_s=0))
    assert list((root / "local/trash").iterdir()) == []
    assert len(list(store.refs("tuning"))) == 40
    assert errors_in(store) == []
