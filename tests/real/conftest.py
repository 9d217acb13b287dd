"""Where the tests with real processes put their files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = "/dev/shm"  # noqa: S108 - a fresh folder is made in it


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, where that is possible.

    What a killed process has written is in the kernel's hands on any file system, and a disk
    image loses power no differently in memory: this spares minutes of waiting for a disk.
    """
    if not os.path.isdir(_MEMORY):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as made:
        yield Path(made)
