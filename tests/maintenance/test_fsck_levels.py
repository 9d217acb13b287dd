"""What each level of fsck finds, that several processes find the same, and the table in SPEC."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import castore
from castore.cli.schemas import SCHEMAS
from castore.format import frame
from castore.maintenance import fsck, shards
from castore.maintenance.findings import FINDINGS, Level
from castore.maintenance.object_check import FRAME_BYTES_MIN
from tests.store.worlds import (
    DAY_NS,
    FOREIGN_TOPOLOGY,
    TOPOLOGY,
    id_of,
    manifest,
    memory_store,
    object_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.store.store import Store

A, B = manifest(1), manifest(2)
SPEC = Path(castore.__file__).parent / "format" / "SPEC.md"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = castore.open(tmp_path / "s")
    store.record("tuning", {**TOPOLOGY, "software": {}}, "k", A)
    return store


def found(store: Store, level: Level, *, processes: int = 1) -> set[str]:
    report = fsck.check(store, level=level, schemas=SCHEMAS, processes=processes)
    return {each.id for each in report.findings}


def plant(store: Store, content: bytes) -> str:
    """Store content as it is, canonical or not, and return its id."""
    oid = castore.object_id(content)
    store.loose.add(oid, content)
    return oid


def misspell(store: Store) -> None:
    plant(store, b"\xd9\x01x")  # a text of one byte with a header that is too long


def break_schema(store: Store) -> None:
    store.put({"kind": "tuning", "schema": 1})


def open_to_all(store: Store) -> None:
    object_file(store.root, id_of(A)).chmod(0o666)


def hide_ref(store: Store) -> None:
    next((store.root / "refs/tuning").glob("*/*")).chmod(0o200)


def open_folder(store: Store) -> None:
    (store.root / "objects/17").chmod(0o777)


def leave_lease(store: Store) -> None:
    (store.root / "local/leases/old").write_bytes(b"")
    os.utime(store.root / "local/leases/old", (1, 1))


STRICT_DAMAGE: list[tuple[Callable[[Store], None], str]] = [
    (misspell, "object-not-canonical"),
    (break_schema, "manifest-invalid"),
    (open_to_all, "rights-differ"),
    (open_folder, "rights-differ"),
    (hide_ref, "rights-differ"),
    (leave_lease, "lease-leftover"),
]


@pytest.mark.parametrize(
    ("damage", "finding_id"), STRICT_DAMAGE, ids=lambda each: getattr(each, "__name__", each)
)
def test_only_the_strict_level_finds_what_does_no_harm_yet(
    store: Store, damage: Callable[[Store], None], finding_id: str
) -> None:
    assert found(store, Level.STRICT) == set()
    damage(store)
    if finding_id == "rights-differ" and damage is hide_ref and os.geteuid() != 0:
        pytest.skip("only root reads a file that it may not read")
    assert found(store, Level.STRICT) == {finding_id}
    assert found(store, Level.DEFAULT) == set()


def test_the_quick_level_decompresses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: bytes) -> bytes:
        raise AssertionError("something was decompressed")

    monkeypatch.setattr(frame, "decompress", refuse)
    assert fsck.check(store, level=Level.QUICK).objects == 2
    assert found(store, Level.QUICK) == set()


@pytest.mark.parametrize("size_bytes", [0, FRAME_BYTES_MIN - 1])
def test_the_quick_level_finds_files_of_impossible_sizes(store: Store, size_bytes: int) -> None:
    path = object_file(store.root, id_of(A))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:size_bytes])
    assert found(store, Level.QUICK) == {"object-damaged"}


def test_no_frame_with_content_is_smaller_than_the_least_size() -> None:
    assert len(frame.compress(b"x")) == FRAME_BYTES_MIN


def test_the_quick_level_finds_links_folders_and_refs_that_do_not_resolve(store: Store) -> None:
    object_file(store.root, id_of(A)).unlink()
    object_file(store.root, id_of(B)).mkdir()
    assert found(store, Level.QUICK) == {"ref-object-missing", "object-damaged"}


def test_a_missing_object_is_named_by_its_id(store: Store) -> None:
    object_file(store.root, id_of(A)).unlink()
    report = fsck.check(store)
    assert [each.missing for each in report.findings] == [id_of(A)]


def test_in_memory_there_are_no_rights_and_nothing_is_found() -> None:
    store, fs = memory_store()
    store.record("tuning", FOREIGN_TOPOLOGY, "k", A)
    fs.advance(2 * DAY_NS)
    assert found(store, Level.STRICT, processes=4) == {"ref-topology-foreign"}


@pytest.mark.parametrize("level", Level)
def test_several_processes_find_what_one_finds(
    store: Store, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        store.put(manifest(number, part=castore.Link(id_of(B))))
    misspell(store)
    path = object_file(store.root, id_of(A))
    path.chmod(0o600)
    path.write_bytes(b"junk")
    (store.root / "objects/00/stray").write_bytes(b"")
    alone = fsck.check(store, level=level, schemas=SCHEMAS)
    monkeypatch.setattr(shards, "OBJECTS_MIN", 0)
    counts: list[int] = []
    shared = fsck.check(
        store, level=level, schemas=SCHEMAS, processes=2, progress=lambda n, _: counts.append(n)
    )
    assert shared == alone
    assert len(counts) == 256
    assert counts[-1] == shared.objects


def test_a_store_is_checked_here_where_processes_fail(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError("no more processes")

    monkeypatch.setattr(shards, "OBJECTS_MIN", 0)
    monkeypatch.setattr(shards, "ProcessPoolExecutor", Broken)
    assert fsck.check(store, processes=2).objects == 2


def test_the_table_in_spec_is_the_table_in_the_code() -> None:
    _, _, section = SPEC.read_text().partition("## 6. Findings of fsck\n")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.+) \|$", section, re.MULTILINE)
    assert {row[0]: row[1:] for row in rows} == FINDINGS
    assert [row[0] for row in rows] == list(FINDINGS)


def test_only_manifests_of_known_kinds_have_to_follow_a_schema(tmp_path: Path) -> None:
    store = castore.open(tmp_path / "s")
    assert store.put({"kind": "topology", "schema": 1, "silicon": {}, "software": {}})
    assert store.put({"kind": "someone-elses", "schema": "free"})
    assert store.put([1, 2])
    assert found(store, Level.STRICT) == set()
    store.put({"kind": "topology", "schema": 1, "silicon": {}})
    assert found(store, Level.STRICT) == {"manifest-invalid"}
