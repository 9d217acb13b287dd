"""Links, files and FIFOs in place of the store's own folders: told in one line, never followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from castore.format import ref
from castore.maintenance import gc
from castore.maintenance.pins import pin
from castore.store.store import Store
from tests.store.worlds import FOREIGN_TOPOLOGY

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = FOREIGN_TOPOLOGY
LOG = f"local/logs/tuning/{ref.topology_key(T, 'k')[:2]}"
IN_LOCAL = ("tmp", "trash", "locks", "logs", "leases", "pins", "quarantine", "uses")
PLACES = (
    *("local", *(f"local/{name}" for name in IN_LOCAL)),
    *("local/logs/tuning", "local/logs/names", LOG, "local/locks/clock", "local/locks/gc"),
    *("local/uses/tuning", "objects", "objects/00", "packs", "refs", "refs/tuning", "refs/names"),
)
UNWATCHED = ("local/locks/clock", "local/locks/gc", "local/uses/tuning")
KINDS = ("link", "dangling link", "file", "fifo", "folder")
COMMANDS = (
    *(("fsck", "--quick"), ("fsck",), ("fsck", "--strict", "--json"), ("stats",)),
    *(("gc", "--dry-run"), ("gc", "--grace", "0"), ("gc", "--auto"), ("repair", "--refs")),
    *(("forget", "--keep-last", "1"), ("forget", "--unused-since", "0s"), ("pin",)),
)


@pytest.fixture
def store(store: Store) -> Store:
    """Return a store in which each kind of root keeps an object of its own."""
    store.record("tuning", T, "k", {"n": "logged"})
    store.record("tuning", T, "k", {"n": "named"}, on_conflict="replace")
    store.lookup("tuning", T, "k")
    store.set_name("best", store.put({"n": "best"}))
    pin(store, store.put({"n": "pinned"}))
    age_all(store.root)
    return store


def age_all(root: Path) -> None:
    for path in (root / "objects").glob("*/*"):
        os.utime(path, (1, 1))


def replace(place: Path, kind: str, elsewhere: Path) -> None:
    if place.exists():
        place.rename(elsewhere)
    if kind == "link":
        place.symlink_to(elsewhere)
    elif kind == "dangling link":
        place.symlink_to(elsewhere.with_name("nowhere"))
    elif kind == "file":
        place.write_bytes(b"x")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()


def files_in(folder: Path) -> dict[str, bytes]:
    if folder.is_file():
        return {"": folder.read_bytes()}
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_upkeep_tells_of_strange_folders_and_follows_none(
    store: Store, run: Run, tmp_path: Path, place: str, kind: str
) -> None:
    """fsck ended at `local/pins`, or a shard of objects, without a finding."""
    elsewhere = tmp_path / "elsewhere"
    objects = set(store.ids())
    replace(store.root / place, kind, elsewhere)
    before = files_in(elsewhere)
    for command in COMMANDS:
        ended = run(*command)
        assert ended.status in (0, 4, 7, 9), (command, ended.err)
        assert "a fault in castore" not in ended.err
        if command[0] in ("fsck", "stats"):
            assert ended.status in (0, 4, 9), (command, ended.err)
            assert ended.out.count("\n") > 0
        if command == ("fsck",) and kind != "folder" and place not in UNWATCHED:
            assert f" {place}: " in ended.out or (place, kind) == (LOG, "file"), ended.out
    assert files_in(elsewhere) == before
    # An empty folder of logs or pins may well be what somebody wants.
    if not place.startswith("objects") and kind != "folder" and (place, kind) != (LOG, "file"):
        assert set(Store(store.fs).ids()) == objects


HIDDEN = [
    (place, kind)
    for place in ("local/logs/tuning", "local/logs/names", LOG, "local/pins")
    for kind in ("link", "file", "fifo")
    if (place, kind) != (LOG, "file")
]


@pytest.mark.parametrize(("place", "kind"), HIDDEN)
def test_gc_takes_nothing_where_roots_may_hide_behind_what_it_cannot_read(
    store: Store, run: Run, tmp_path: Path, place: str, kind: str
) -> None:
    """A folder of logs that was a link counted as empty: what only the log named was removed."""
    objects = set(store.ids())
    replace(store.root / place, kind, tmp_path / "elsewhere")
    ended = run("gc", "--grace", "0")
    assert ended.status in (4, 7)
    assert place in ended.err
    assert set(store.ids()) == objects


def test_a_namespace_that_is_a_link_is_an_error_of_fsck(
    store: Store, run: Run, tmp_path: Path
) -> None:
    """It was a warning, and the exit status that of a clean store, while all its keys missed."""
    replace(store.root / "refs/tuning", "link", tmp_path / "elsewhere")
    ended = run("fsck")
    assert ended.status == 9
    assert "error: ref-unreadable: refs/tuning: a symbolic link in place" in ended.out


def test_stats_count_the_rest_and_say_what_they_cannot(
    store: Store, run: Run, tmp_path: Path
) -> None:
    replace(store.root / "local/pins", "link", tmp_path / "elsewhere")
    ended = run("stats", "--json")
    assert (ended.status, ended.document["pins"], ended.document["objects"]) == (0, 0, 4)
    assert ended.err.count("local/pins is a symbolic link") == 1


def test_nothing_of_a_sound_store_is_strange(store: Store, run: Run) -> None:
    for command in COMMANDS:
        assert run(*command).status == 0
    assert gc.plan(store).prune == ()


def test_a_place_where_no_store_can_be_is_refused_with_advice_that_works(
    run: Run, tmp_path: Path
) -> None:
    """Reading commands advised to run `castore init` there, which then refused."""
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    for place, why in (
        (tmp_path / "file", "it is not a folder; "),
        (Path("/dev/null"), "it is not a folder; "),
        (tmp_path / "full", "the folder is not empty ('mine'); "),
    ):
        for command in (["stats"], ["init"], ["tune", "affine_f32"]):
            ended = run("--store", str(place), *command)
            assert ended.status == 3
            told = f"castore: no castore store at {place}: {why}name an empty or missing one\n"
            assert ended.err == told
    (tmp_path / "empty").mkdir()
    assert "castore init" in run("--store", str(tmp_path / "empty"), "stats").err
