"""The order of system calls that a durable write rests on, as the kernel saw them.

Three rules hold for every operation: nothing is published before its content is
synced, no name is acknowledged before its folder is synced, and no file outside
`local/` is ever written in place. The rest is what single operations promise.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from tests.real.operations import OPERATIONS, RUBBISH, prepare
from tests.real.strace import Call, Operator
from tests.store.worlds import id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.tools("strace")]

TEMP = r"local/tmp/[0-9a-f]{24}"
LEASE = r"local/leases/[0-9a-f]{24}"
LOG = r"local/logs/tuning/[0-9a-f]{2}"
OBJECT = r"objects/[0-9a-f]{2}/[0-9a-f]{62}"
SHARD = r"objects/[0-9a-f]{2}"
REF = r"refs/tuning/[0-9a-f]{2}/[0-9a-f]{62}"
REF_SHARD = r"refs/tuning/[0-9a-f]{2}"

Traced = dict[tuple[str, str], list[Call]]

# These change nothing that a ref or an object promises, so nothing has to be on disk.
WITHOUT_PROMISE = ("gc", "unpin")
UNSYNCED = ("put", "put-again", "record", "set-ref", "replace", "delete", "batch", "large-batch")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Call]]]:
    """Return a function that gives the calls of an operation, up to its acknowledgement."""
    folder = tmp_path_factory.mktemp("order")
    known: Traced = {}
    with Operator(folder) as operator:

        def calls_of(operation: str, *, durability: str = "full") -> list[Call]:
            key = operation, durability
            if key not in known:
                root = folder / f"{operation}-{durability}"
                if OPERATIONS[operation].is_open:
                    prepare(root)
                    OPERATIONS[operation].spoil(root)
                calls = operator.calls(operation, root, durability=durability)
                assert "acknowledged" in calls[-1].arguments
                known[key] = calls[:-1]
            return known[key]

        yield calls_of


def places(calls: list[Call], verb: str, path: str) -> list[int]:
    """Return where in the trace such calls are; there must be some."""
    found = [
        index
        for index, call in enumerate(calls)
        if call.verb == verb and re.fullmatch(path, call.path)
    ]
    assert found, f"no {verb} of {path} among {[(call.verb, call.path) for call in calls]}"
    return found


def assert_order(calls: list[Call], *steps: tuple[str, str]) -> None:
    """Assert that all calls of each step come before all calls of the next."""
    for before, after in itertools.pairwise(steps):
        assert max(places(calls, *before)) < min(places(calls, *after)), f"{before} before {after}"


def is_public(path: str) -> bool:
    return not path.startswith("local/") and path != "."


def published_unsynced(calls: list[Call]) -> list[Call]:
    """Return what gave a public name to a temp file whose last write was not yet synced."""
    dirty: set[str] = set()
    wrong = []
    for call in calls:
        if call.verb == "write":
            dirty.add(call.path)
        elif call.verb == "sync":
            dirty.discard(call.path)
        elif call.verb == "syncfs":
            dirty.clear()
        elif call.verb in ("rename", "link") and is_public(call.path) and call.paths[0] in dirty:
            wrong.append(call)
    return wrong


def names_left_unsynced(calls: list[Call]) -> set[str]:
    """Return the folders in which a public name was made or removed, and that were not synced."""
    dirty: set[str] = set()
    for call in calls:
        if call.verb in ("rename", "link", "mkdir", "unlink") and is_public(call.path):
            dirty.add(call.path.rpartition("/")[0] or ".")
        elif call.verb == "sync":
            dirty.discard(call.path)
        elif call.verb == "syncfs":
            dirty.clear()
    return dirty


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_file_outside_local_is_ever_written_in_place(
    operation: str, trace: Callable[..., list[Call]]
) -> None:
    calls = trace(operation)
    opened = [call for call in calls if call.verb in ("open", "create")]
    writing = [call for call in opened if re.search(r"O_(WRONLY|RDWR)", call.arguments)]
    assert [call for call in writing if call.path and is_public(call.path)] == []
    assert opened
    assert [call for call in calls if call.verb == "write" and is_public(call.path)] == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_is_published_before_its_content_is_synced(
    operation: str, trace: Callable[..., list[Call]]
) -> None:
    assert published_unsynced(trace(operation)) == []


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in WITHOUT_PROMISE])
def test_no_name_is_acknowledged_before_its_folder_is_synced(
    operation: str, trace: Callable[..., list[Call]]
) -> None:
    assert names_left_unsynced(trace(operation)) == set()


@pytest.mark.parametrize("operation", UNSYNCED)
def test_without_durability_nothing_is_synced_and_the_rules_above_see_it(
    operation: str, trace: Callable[..., list[Call]]
) -> None:
    calls = trace(operation, durability="none")
    assert [call for call in calls if call.verb in ("sync", "syncfs")] == []
    if operation != "put-again":
        assert names_left_unsynced(calls)
    if operation not in ("put-again", "delete"):
        assert published_unsynced(calls)


def test_a_put_writes_syncs_renames_and_syncs_the_folder(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("put")
    assert_order(
        calls,
        *(("create", TEMP), ("write", TEMP), ("sync", TEMP)),
        *(("rename", OBJECT), ("sync", SHARD)),
    )
    assert len([call for call in calls if call.verb == "sync"]) == 2


def test_content_that_is_there_is_synced_too_and_freshened_last(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("put-again")
    assert_order(calls, ("sync", OBJECT), ("sync", SHARD), ("touch", OBJECT))
    made = ("create", "rename", "link", "unlink", "write")
    assert [call for call in calls if call.verb in made] == []


def test_a_damaged_copy_is_out_of_the_way_before_the_good_one_is_published(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("put-over-damage")
    assert_order(calls, ("rename", r"local/quarantine/.*"), ("rename", OBJECT), ("sync", SHARD))
    assert [call for call in calls if call.verb == "unlink"] == []


@pytest.mark.parametrize("operation", ["set-ref", "replace"])
def test_a_ref_changes_after_its_object_and_its_log_are_durable(
    operation: str, trace: Callable[..., list[Call]]
) -> None:
    calls = trace(operation)
    assert_order(calls, ("create", LEASE), ("flock", r"local/locks/refs-.*"))
    assert_order(calls, ("rename", OBJECT), ("write", LOG), ("sync", LOG), ("rename", REF))
    assert_order(calls, ("sync", SHARD), ("write", LOG))
    assert_order(calls, ("sync", r"local/logs/tuning"), ("rename", REF), ("sync", REF_SHARD))
    assert_order(calls, ("sync", TEMP), ("rename", REF))
    assert_order(calls, ("sync", REF_SHARD), ("unlink", LEASE))


def test_what_a_ref_keeps_is_freshened_under_a_lease_before_the_ref_is_made(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("set-ref")
    last_touch = max(places(calls, "touch", OBJECT))
    assert min(places(calls, "flock", LEASE)) < last_touch < min(places(calls, "rename", REF))


def test_a_ref_that_is_there_already_is_made_durable_too(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("set-ref-again")
    assert_order(calls, ("sync", OBJECT), ("sync", REF), ("sync", REF_SHARD), ("unlink", LEASE))
    assert [call for call in calls if call.verb in ("link", "rename")] == []


def test_a_ref_is_deleted_after_its_log_is_durable(trace: Callable[..., list[Call]]) -> None:
    assert_order(
        trace("delete"),
        *(("write", LOG), ("sync", LOG), ("unlink", REF), ("sync", REF_SHARD)),
        ("unlink", LEASE),
    )


def test_a_batch_syncs_all_then_publishes_all_then_changes_its_refs(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("batch")
    assert_order(calls, ("create", LEASE), ("rename", OBJECT), ("sync", SHARD), ("write", LOG))
    assert_order(calls, ("sync", LOG), ("rename", REF), ("sync", REF_SHARD), ("unlink", LEASE))
    staged = {call.paths[0] for call in calls if call.verb == "rename"}
    first = min(places(calls, "rename", OBJECT))
    synced = {call.path for call in calls[:first] if call.verb == "sync"}
    assert len(staged & synced) == 3


def test_a_large_batch_syncs_the_file_system_twice_and_nothing_else(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("large-batch")
    syncs = [index for index, call in enumerate(calls) if call.verb in ("sync", "syncfs")]
    assert [calls[index].verb for index in syncs] == ["syncfs", "syncfs"]
    renames = places(calls, "rename", OBJECT)
    assert max(places(calls, "write", TEMP)) < syncs[0] < min(renames)
    assert max(renames) < syncs[1]


def test_a_pin_is_durable_before_it_is_acknowledged(trace: Callable[..., list[Call]]) -> None:
    calls = trace("pin")
    pin = r"local/pins/[0-9a-f]{64}"
    assert_order(calls, ("sync", TEMP), ("rename", pin), ("sync", r"local/pins"))
    # The one that covers all of it is the last to go.
    assert max(places(calls, "sync", "local/pins")) < max(places(calls, "unlink", LEASE))


def test_the_format_file_appears_last_when_all_folders_are_durable(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("init")
    format_at = max(places(calls, "rename", "format"))
    assert max(places(calls, "mkdir", r".*")) < min(places(calls, "sync", "objects"))
    assert max(places(calls, "sync", "objects")) < format_at
    assert max(places(calls, "sync", "local")) < format_at
    assert min(places(calls, "sync", r"\.")) < format_at < max(places(calls, "sync", r"\."))


def test_gc_removes_parents_before_what_they_link_to_and_all_by_way_of_the_trash(
    trace: Callable[..., list[Call]],
) -> None:
    calls = trace("gc")
    trash = r"local/trash/[0-9a-f]{64}"
    moved = [
        call.path
        for call in calls
        if call.verb == "rename" and not re.match("local/locks/", call.path)
    ]
    removed = [call.path for call in calls if call.verb == "unlink" and re.match(trash, call.path)]
    assert moved == removed
    rubbish = [f"local/trash/{id_of(value)}" for value in RUBBISH]
    assert set(rubbish) <= set(moved)
    part, *wholes = map(moved.index, rubbish)
    assert max(wholes) < part
    assert [call for call in calls if call.verb == "unlink" and is_public(call.path)] == []
