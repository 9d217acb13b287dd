"""Folders that any user may enter, and file systems that are mounted for one test."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import castore
from castore.maintenance import fsck, gc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session", autouse=True)
def _everything_is_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported late could not be, by a user who may not read the interpreter."""
    root = tmp_path_factory.mktemp("warm") / "s"
    with castore.open(root) as store, store.batch():
        for number in range(40):  # so many that they are synced together, through ctypes
            store.record("config", "5a" * 32, f"k{number}", {"n": number})
    gc.apply(store, gc.plan(store, grace_s=0))
    fsck.check(store)


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that any user may enter, and write, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that mounts something on a new folder, until the test ends."""
    mounted: list[Path] = []

    def mount_on(name: str, *arguments: str, program: str = "mount") -> Path:
        where = tmp_path / name
        where.mkdir(exist_ok=True)
        subprocess.run([program, *arguments, str(where)], check=True, capture_output=True)
        mounted.append(where)
        return where

    yield mount_on
    for where in reversed(mounted):
        subprocess.run(["umount", str(where)], check=True)


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """Return a function that makes a block device of so many bytes, until the test ends."""
    made: list[str] = []

    def make(size_bytes: int) -> str:
        image = tmp_path / f"image-{len(made)}"
        with image.open("wb") as file:
            file.truncate(size_bytes)
        shown = subprocess.run(
            ["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True
        )
        made.append(shown.stdout.strip())
        return made[-1]

    yield make
    for device in made:
        subprocess.run(["losetup", "--detach", device], check=True)
