"""Golden texts of the file-system calls of each durable write: a lost sync is a readable diff.

With `CASTORE_ACCEPT_TRACES=1` the texts are written anew, for review.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from castore.store.store import Store
from tests.store.worlds import FOREIGN_TOPOLOGY, copy_of, manifest, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable

TRACES = Path(__file__).parent / "traces"
A, B = manifest(1), manifest(2)
T = FOREIGN_TOPOLOGY


def put_of_new_content(store: Store) -> None:
    store.put(manifest(3))


def put_of_content_that_is_there(store: Store) -> None:
    store.put(A)


def set_ref_creates(store: Store) -> None:
    store.set_ref("tuning", T, "new", store.put(A))


def set_ref_replaces(store: Store) -> None:
    store.set_ref("tuning", T, "k", store.put(A), on_conflict="replace")


def set_ref_confirms(store: Store) -> None:
    store.set_ref("tuning", T, "k", store.put(B))


def delete_ref(store: Store) -> None:
    store.delete_ref("tuning", T, "k")


def batch(store: Store) -> None:
    with store.batch():
        store.put(A)
        store.record("tuning", T, "k", manifest(3), on_conflict="replace")
        store.record("tuning", T, "new", manifest(4))


WORK = [
    put_of_new_content,
    put_of_content_that_is_there,
    set_ref_creates,
    set_ref_replaces,
    set_ref_confirms,
    delete_ref,
    batch,
]


def calls_of(work: Callable[[Store], None], *, durable: bool) -> list[str]:
    disk = new_disk()
    first = Store(disk)
    first.put(A)
    first.record("tuning", T, "k", B)
    fs = copy_of(disk)
    work(Store(fs, durable=durable, clock_ns=lambda: 0))
    return fs.calls


def readable(calls: list[str]) -> str:
    """Number the random names, and leave out sizes, which differ from host to host."""
    text = "\n".join(calls) + "\n"
    numbers: dict[str, str] = {}
    for found in re.findall(r"local/(?:tmp|leases)/([0-9a-f]{24})", text):
        numbers.setdefault(found, f"RANDOM-{len(numbers) + 1}")
    for name, number in numbers.items():
        text = text.replace(name, number)
    text = re.sub(r"([0-9a-f]{8})[0-9a-f]{50,}", r"\1...", text)
    return re.sub(r"^((?:append|write_new) \S+) \d+", r"\1 SIZE", text, flags=re.MULTILINE)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_a_durable_write_makes_exactly_the_calls_of_its_golden_text(
    work: Callable[[Store], None],
) -> None:
    golden = TRACES / f"{work.__name__.replace('_', '-')}.txt"
    got = readable(calls_of(work, durable=True))
    if os.environ.get("CASTORE_ACCEPT_TRACES"):
        golden.write_text(got)
    assert got == golden.read_text()


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_without_durability_there_is_not_one_sync(work: Callable[[Store], None]) -> None:
    calls = calls_of(work, durable=False)
    assert calls
    assert not [call for call in calls if call.startswith("sync") or "durable" in call]


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_with_durability_no_write_is_acknowledged_before_a_sync(
    work: Callable[[Store], None],
) -> None:
    calls = [call for call in calls_of(work, durable=True) if not call.startswith("unlock")]
    last = calls[-1]
    assert last.startswith(("sync", "touch")), last
