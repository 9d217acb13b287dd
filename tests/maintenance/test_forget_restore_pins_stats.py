"""Dropping refs, bringing them back, keeping objects by hand, and counting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import castore
from castore.errors import (
    MalformedError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
    RefNotFoundError,
)
from castore.format import ref
from castore.format.value import Link, ObjectId
from castore.maintenance import forget, gc, restore, stats
from castore.maintenance.pins import pin, pins, unpin
from castore.store.store import Store
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    errors_in,
    id_of,
    leftovers,
    manifest,
    memory_store,
)

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = manifest(1), manifest(2), manifest(3)
T, OTHER_T = FOREIGN_TOPOLOGY, "5b" * 32
NAME = ref.for_topology("tuning", T, "k")
KEY = "c0" * 32


def several() -> Store:
    store, _ = memory_store()
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "k2", A)
    store.record("tuning", OTHER_T, "k", B)
    store.record("config", T, "k", C)
    store.record("by-key-tuning", key=KEY, value=C)
    return store


def chosen(plan: forget.ForgetPlan) -> set[tuple[str, str | None, str | None]]:
    return {(each.namespace, each.topology, each.kernel) for each in plan.refs}


def test_forget_chooses_what_meets_every_condition() -> None:
    store = several()
    assert len(forget.plan(store).refs) == 5
    assert chosen(forget.plan(store, namespace="tuning", topology=T)) == {
        ("tuning", T, "k"),
        ("tuning", T, "k2"),
    }
    assert chosen(forget.plan(store, kernel="k")) == {
        ("tuning", T, "k"),
        ("tuning", OTHER_T, "k"),
        ("config", T, "k"),
    }
    assert forget.plan(store, namespace="certification").refs == ()


def test_forget_goes_by_the_age_of_the_ref() -> None:
    store, fs = memory_store()
    store.record("tuning", T, "old", A)
    fs.advance(10 * DAY_NS)
    store.record("tuning", T, "new", B)

    found = forget.plan(store, older_than_s=5 * 24 * 3600)
    assert [each.kernel for each in found.refs] == ["old"]


def test_forget_drops_refs_and_no_objects_and_leaves_log_entries() -> None:
    store = several()
    before = set(store.ids())
    assert forget.apply(store, forget.plan(store, namespace="tuning")) == 3
    assert list(store.refs("tuning")) == []
    assert set(store.ids()) == before
    assert store.ref_log("tuning", T, "k")[0].reason == "forget"
    assert forget.apply(store, forget.plan(store, namespace="by-key-tuning")) == 1
    assert errors_in(store) == []


def test_a_plan_to_forget_changes_nothing() -> None:
    store = several()
    forget.plan(store)
    assert len(list(store.refs())) == 5


def test_forget_leaves_a_ref_that_was_replaced_after_the_plan() -> None:
    store = several()
    planned = forget.plan(store, namespace="tuning", topology=T)
    store.record("tuning", T, "k", C, on_conflict="replace")
    assert forget.apply(store, planned) == 1
    assert store.lookup("tuning", T, "k") == C


def test_forget_goes_on_when_a_ref_is_replaced_at_the_last_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The conflict came up at the end of the batch, and no ref at all was dropped."""
    store = several()
    planned = forget.plan(store, namespace="tuning", topology=T)
    delete_ref = Store.delete_ref

    def beaten(self: Store, *where: str, **how: str) -> bool:
        existed = delete_ref(self, *where, **how)
        if where[2] == "k":
            monkeypatch.setattr(Store, "delete_ref", delete_ref)
            Store(store.fs).record("tuning", T, "k", C, on_conflict="replace")
        return existed

    monkeypatch.setattr(Store, "delete_ref", beaten)
    assert forget.apply(store, planned) == 1
    assert store.lookup("tuning", T, "k") == C
    assert store.get_ref("tuning", T, "k2") is None


def test_forget_spares_the_refs_that_say_which_topologies_are_known() -> None:
    store, _ = memory_store()
    store.record("tuning", TOPOLOGY, "k", A)
    assert {each.namespace for each in forget.plan(store).refs} == {"tuning"}
    assert {each.namespace for each in forget.plan(store, namespace="topology").refs} == {
        "topology"
    }


def test_what_was_forgotten_is_restored_even_after_a_gc() -> None:
    store = several()
    forget.apply(store, forget.plan(store))
    with pytest.raises(RefNotFoundError):
        restore.restore(store, ref.for_topology("tuning", T, "never"))
    gc.apply(store, gc.plan(store, grace_s=0))
    assert restore.restore(store, NAME).object == id_of(A)
    assert store.lookup("tuning", T, "k") == A
    assert restore.restore(store, ref.for_key("by-key-tuning", KEY)).object == id_of(C)


def test_restoring_brings_back_what_the_last_change_replaced_and_can_itself_be_undone() -> None:
    store = several()
    store.record("tuning", T, "k", B, on_conflict="replace")
    assert restore.restore(store, NAME).object == id_of(A)
    assert restore.restore(store, NAME).object == id_of(B)
    assert store.ref_log("tuning", T, "k")[0].reason == "restore"


def test_restoring_to_an_object_that_the_log_does_not_name_is_refused() -> None:
    store = several()
    store.record("tuning", T, "k", B, on_conflict="replace")
    with pytest.raises(RefNotFoundError):
        restore.restore(store, NAME, to=id_of(C))
    assert restore.restore(store, NAME, to=id_of(A)).object == id_of(A)


def test_there_is_nothing_to_restore_of_a_ref_that_was_only_made() -> None:
    store = several()
    with pytest.raises(RefNotFoundError):
        restore.restore(store, NAME)


def test_what_gc_has_removed_cannot_be_restored_and_the_ref_stays() -> None:
    store, fs = memory_store()
    store.record("tuning", T, "k", A)
    store.record("tuning", T, "k", B, on_conflict="replace")
    fs.advance(1)
    gc.apply(store, gc.plan(store, grace_s=0, log_expiry_s=-(10**9)))
    with pytest.raises(ObjectNotFoundError):
        restore.restore(store, NAME)
    assert store.lookup("tuning", T, "k") == B


def test_a_named_ref_is_restored() -> None:
    store, _ = memory_store()
    store.set_name("best", store.put(A))
    store.delete_name("best")
    assert restore.restore(store, ref.for_name("best")).object == id_of(A)


def test_pins_are_listed_with_their_reasons_and_removed() -> None:
    store, fs = memory_store()
    oid = store.put(A)
    pin(store, oid, reason="kept\nfor the paper")
    assert [(each.oid, each.reason) for each in pins(store)] == [(oid, "kept for the paper")]
    pin(store, oid, reason="again")
    assert [each.reason for each in pins(store)] == ["again"]
    assert leftovers(fs) == []
    assert unpin(store, oid)
    assert list(pins(store)) == []


def test_a_pin_asks_for_its_object_and_all_that_it_links_to() -> None:
    store, fs = memory_store()
    with pytest.raises(ObjectNotFoundError):
        pin(store, id_of(A))
    with pytest.raises(ObjectNotFoundError):
        pin(store, store.put(manifest(4, part=Link(id_of(A)))))
    assert list(pins(store)) == []
    assert leftovers(fs) == []


@pytest.mark.parametrize("bad", ["../../format", "..", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_no_door_of_pins_takes_a_wrong_id(tmp_path: Path, bad: str) -> None:
    """Unpinning `../../format` removed the store's format file."""
    store = castore.open(tmp_path / "s")
    with pytest.raises(MalformedError):
        pin(store, bad)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(MalformedError):
        unpin(store, bad)  # type: ignore[arg-type]  # on purpose
    assert (store.root / "format").exists()


def test_a_read_only_store_takes_no_pins_and_nothing_is_written(tmp_path: Path) -> None:
    oid = castore.open(tmp_path / "s").put(A)
    store = castore.open(tmp_path / "s", read_only=True)

    def no_lock(*_: object, **__: object) -> None:
        raise AssertionError("a read-only store was written to")

    store.fs.lock = no_lock  # type: ignore[method-assign, assignment]  # it must not be called
    with pytest.raises(ReadOnlyStoreError):
        pin(store, oid)
    with pytest.raises(ReadOnlyStoreError):
        unpin(store, oid)
    with pytest.raises(ReadOnlyStoreError):
        forget.apply(store, forget.ForgetPlan(()))


def test_stats_count_what_is_there(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s", alternates=[castore.open(tmp_path / "below").root])
    store.record("tuning", TOPOLOGY, "k", A)
    store.set_name("best", store.put(B))
    pin(store, id_of(B))
    (store.root / "local/tmp/half").write_bytes(b"x")
    (store.root / "local/quarantine/bad").write_bytes(b"x")
    (store.root / "local/trash" / ("a" * 64)).write_bytes(b"x")
    seen: list[int] = []
    found = stats.collect(store, progress=lambda done, _: seen.append(done))
    assert (found.objects, found.refs, found.names) == (3, {"tuning": 1, "topology": 1}, 1)
    assert (found.pins, found.temp_files, found.trash, found.quarantine) == (1, 1, 1, 1)
    files = [path for path in (store.root / "objects").rglob("*") if path.is_file()]
    assert found.object_bytes == sum(path.stat().st_size for path in files)
    assert found.log_bytes > 0
    assert found.alternates == (str(tmp_path / "below"),)
    assert seen[-1] == 256


def test_ids_of_pins_are_ids() -> None:
    store, _ = memory_store()
    pin(store, store.put(A))
    assert all(isinstance(each.oid, ObjectId) for each in pins(store))
