"""ManifestCache: wgsl_forge's interface, with its faults fixed."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import castore
from castore.compat import ManifestCache
from castore.errors import MalformedError, RefConflictError
from castore.format.frame import decompress

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ab" * 32
TOPOLOGY = "cd" * 32
TUNING = {"cache_key": KEY, "kernel_id": "gemm", "result": {"winner": {"tile": 8}, "p": [1, 2.5]}}


@dataclass(frozen=True, slots=True)
class Record:
    median_ns: int

    def to_value(self) -> dict[str, Any]:
        return {"kind": "tuning", "schema": 1, "median_ns": self.median_ns}


@pytest.fixture
def kept(tmp_path: Path) -> ManifestCache:
    return ManifestCache(tmp_path / "store")


def test_a_mapping_comes_back_as_a_mapping(kept: ManifestCache) -> None:
    kept.store_tuning(TUNING)
    assert kept.load_tuning(KEY) == TUNING
    assert ManifestCache(kept.root).load_tuning(KEY) == TUNING


def test_a_missing_manifest_is_none(kept: ManifestCache) -> None:
    assert kept.load_tuning(KEY) is None
    assert kept.load_tuning_for_topology(TOPOLOGY, "gemm") is None


def test_a_mapping_without_kind_and_schema_is_wrapped_in_the_store(kept: ManifestCache) -> None:
    kept.store_tuning(TUNING)
    kept.store_certification(TUNING)
    with castore.open(kept.root) as store:
        kinds = {ref.namespace: store.get(ref.object)["kind"] for ref in store.refs()}  # type: ignore[index, call-overload]
    assert kinds == {
        "by-key-tuning": "foreign-tuning",
        "by-key-certification": "foreign-certification",
    }


@pytest.mark.parametrize(
    "manifest",
    [
        {"kind": "tuning", "schema": 1, "a": 1},
        {"kind": "tuning", "a": 1},
        {"schema": 1},
        {"kind": 7, "schema": 1},
        {"kind": "foreign-tuning", "schema": 1, "record": {"a": 1}},
        {"record": {"a": 1}},
        {},
    ],
)
def test_every_mapping_comes_back_equal(kept: ManifestCache, manifest: dict[str, Any]) -> None:
    kept.store_tuning(manifest, key=KEY)
    assert kept.load_tuning(KEY) == manifest


def test_a_manifest_with_kind_and_schema_is_stored_as_it_is(kept: ManifestCache) -> None:
    manifest = {**TUNING, "kind": "tuning", "schema": 1}
    kept.store_tuning(manifest)
    with castore.open(kept.root) as store:
        assert store.lookup("by-key-tuning", key=KEY) == manifest


def test_a_record_is_stored_as_its_value(kept: ManifestCache) -> None:
    kept.store_tuning(Record(5), key=KEY)
    kept.store_tuning_for_topology(TOPOLOGY, "gemm", Record(5))
    assert kept.load_tuning(KEY) == Record(5).to_value()
    with castore.open(kept.root) as store:
        assert store.lookup("tuning", TOPOLOGY, "gemm") == Record(5).to_value()


def test_the_path_is_the_objects_file(kept: ManifestCache) -> None:
    path = kept.store_tuning(TUNING)
    with castore.open(kept.root) as store:
        ref = store.get_ref("by-key-tuning", key=KEY)
    assert ref is not None
    assert blake3(decompress(path.read_bytes())).hexdigest() == ref.object
    assert kept.store_tuning(TUNING) == path


def test_the_topology_key_is_blake3_of_both_with_a_zero_byte_between() -> None:
    want = blake3(f"{TOPOLOGY}\0gemm".encode()).hexdigest()
    assert ManifestCache.topology_key(TOPOLOGY, "gemm") == want


def test_a_collision_is_an_error_that_names_both(kept: ManifestCache) -> None:
    kept.store_tuning(TUNING)
    with pytest.raises(RefConflictError, match=r'already, .*; on_conflict="replace"'):
        kept.store_tuning({**TUNING, "later": 1})
    assert kept.load_tuning(KEY) == TUNING


def test_keep_returns_the_file_of_what_is_kept(kept: ManifestCache) -> None:
    first = kept.store_tuning_for_topology(TOPOLOGY, "gemm", {"n": 1})
    again = kept.store_tuning_for_topology(TOPOLOGY, "gemm", {"n": 2}, on_conflict="keep")
    assert again == first
    assert kept.load_tuning_for_topology(TOPOLOGY, "gemm") == {"n": 1}


def test_replace_makes_retuning_possible(kept: ManifestCache) -> None:
    first = kept.store_tuning_for_topology(TOPOLOGY, "gemm", {"n": 1})
    again = kept.store_tuning_for_topology(TOPOLOGY, "gemm", {"n": 2}, on_conflict="replace")
    assert again != first
    assert kept.load_tuning_for_topology(TOPOLOGY, "gemm") == {"n": 2}
    assert first.exists(), "the log keeps it"


@pytest.mark.parametrize("key", [KEY.upper(), KEY[:63], KEY + "a", KEY + "\n", "../x", "", 7])
def test_a_key_in_another_spelling_is_refused(kept: ManifestCache, key: Any) -> None:
    for act in (
        lambda: kept.load_tuning(key),
        lambda: kept.store_tuning({**TUNING, "cache_key": key}),
        lambda: kept.store_certification({**TUNING, "cache_key": key}),
        lambda: kept.load_tuning_for_topology(key, "gemm"),
        lambda: kept.store_tuning_for_topology(key, "gemm", TUNING),
        lambda: ManifestCache.topology_key(key, "gemm"),
    ):
        with pytest.raises(MalformedError):
            act()


def test_a_manifest_without_a_cache_key_is_refused(kept: ManifestCache) -> None:
    for act in (kept.store_tuning, kept.store_certification):
        with pytest.raises(MalformedError, match="cache_key"):
            act({"a": 1})


def test_a_manifest_that_cannot_be_stored_names_its_field(kept: ManifestCache) -> None:
    with pytest.raises(MalformedError, match=r"\.result"):
        kept.store_tuning({**TUNING, "result": {"tile": (1, 2)}})
    assert kept.load_tuning(KEY) is None


RACE = """
import sys
from castore.compat import ManifestCache
from castore.errors import RefConflictError
kept = ManifestCache(sys.argv[1])
sys.stdin.readline()
won = 0
for n in range(50):
    try:
        kept.store_tuning({"by": sys.argv[2]}, key=f"{n:064x}")
        won += 1
    except RefConflictError:
        pass
print(won)
"""


def test_of_two_writers_one_wins_each_key(kept: ManifestCache) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(kept.root), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(racer.communicate()[0]) for racer in racers]
    loaded = [kept.load_tuning(f"{n:064x}") for n in range(50)]
    assert [loaded.count({"by": "a"}), loaded.count({"by": "b"})] == won
    assert sum(won) == 50


def test_damage_is_a_miss_with_one_warning_and_storing_heals(
    kept: ManifestCache, caplog: pytest.LogCaptureFixture
) -> None:
    path = kept.store_tuning(TUNING)
    path.chmod(0o644)
    path.write_bytes(b"junk")
    assert [kept.load_tuning(KEY) for _ in range(3)] == [None] * 3
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert kept.store_tuning(TUNING) == path
    assert kept.load_tuning(KEY) == TUNING


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"tuning-{KEY}.json").write_bytes(b"{}")
    with pytest.raises(castore.StoreNotFoundError):
        ManifestCache(tmp_path)
