"""Eight writers, readers, two gcs without grace and an fsck at one store, as processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import castore
from tests.store.children import all_said, beside, start
from tests.store.worlds import errors_in
from tests.store.writers import TOPOLOGY, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITERS = 8
SECONDS = 15
CROWD = "tests.real.crowd"

pytestmark = pytest.mark.slow
apart = [pytest.mark.root, pytest.mark.tools("unshare")]


def losses(root: Path, written: list[dict[str, Any]]) -> list[object]:
    """Return what the writers missed while they wrote, and what is not there in the end."""
    store = castore.open(root)
    lost: list[object] = [said for said in written if "lost" in said]
    for mine in (said["mine"] for said in written if "mine" in said):
        for kernel, want in mine.items():
            ref = store.get_ref("tuning", TOPOLOGY, kernel)
            if (ref.object if ref is not None else None) != want:
                lost.append((kernel, want, ref))
            if want is not None and store.lookup("tuning", TOPOLOGY, kernel) is None:
                lost.append((kernel, "the object"))
    # A bare put may link to what a gc has taken: that is one, until its ref is refused.
    return lost + [found for found in errors_in(store) if found.id != "object-link-missing"]


@pytest.mark.parametrize("locks", ["flock", "none"])
@pytest.mark.parametrize(
    "own_pids",
    [False, pytest.param(True, marks=apart)],
    ids=["pids of one machine", "pids of many containers"],
)
def test_a_crowd_loses_nothing_and_nobody_stumbles(
    folder: Path,
    locks: str,
    own_pids: bool,  # noqa: FBT001 - a parameter of the test, given by name
    tried: Callable[[str, int], None],
) -> None:
    root = castore.open(folder / "store").root
    castore.open(root).record("tuning", TOPOLOGY, "kept", value("kept"))
    how: dict[str, Any] = {"CASTORE_TEST_LOCKS": locks, "own_pids": own_pids}
    with (
        beside("collect", root, 2, **how) as collected,
        beside("check", root, 1, **how) as checked,
        beside("crowd_read", root, 2, module=CROWD, **how) as read,
    ):
        written = all_said(
            [start("crowd_write", root, me, SECONDS, module=CROWD, **how) for me in range(WRITERS)]
        )
    assert losses(root, written) == []
    assert [said for said in read if "rounds" not in said] == []
    found = [said for said in checked if said.get("finding") not in (None, "object-link-missing")]
    assert found == []
    assert (sum(said["removed"] for said in collected) > 0) == (locks == "flock")
    operations = sum(said.get("operations", 0) for said in (*written, *read))
    assert operations - sum(said.get("refused", 0) for said in written) > 100
    tried("concurrent operations", operations)
