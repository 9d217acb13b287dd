"""Invariant 1 on ext4, xfs and btrfs: what was acknowledged survives a power cut."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.power_cut import KINDS
from tests.store.children import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CUTS = 30
ATTEMPTS_MAX = 3
PATIENCE_S = 240
BROKEN = ["none", "no file sync", "no folder sync"]

pytestmark = [pytest.mark.slow, pytest.mark.root]


def with_tools(kind: str) -> Any:
    tools = pytest.mark.tools("unshare", "mount", "mkfs.xfs", f"mkfs.{kind}")
    return pytest.param(kind, marks=tools)


every_kind = pytest.mark.parametrize("kind", [with_tools(kind) for kind in KINDS])


def trials(folder: Path, kind: str, variant: str, *, cuts: int, seed: int) -> list[dict[str, Any]]:
    """Cut the power of a writer's file system, and return what each cut has cost."""
    arguments = [str(folder), kind, variant, str(cuts), str(seed)]
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private"),
            *(sys.executable, "-m", "tests.real.power_cut", *arguments),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@every_kind
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(
    folder: Path, kind: str, tried: Callable[[str, int], None]
) -> None:
    done = trials(folder, kind, "full", cuts=CUTS, seed=1)
    assert [trial["lost"] for trial in done] == [[]] * CUTS
    assert done[0]["acknowledged"] == 0
    assert done[-1]["acknowledged"] > 20
    tried("power cuts on real file systems", CUTS)


@every_kind
@pytest.mark.parametrize("variant", BROKEN)
def test_a_power_cut_costs_something_where_syncs_are_left_out(
    folder: Path, kind: str, variant: str
) -> None:
    for seed in range(ATTEMPTS_MAX):
        done = trials(folder, kind, variant, cuts=4, seed=seed)
        if any(trial["lost"] for trial in done):
            return
    pytest.fail(f"{variant!r} was not noticed on {kind}")
