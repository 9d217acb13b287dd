"""Ctrl-C at any place of an operation: nothing stays locked, and nothing is half done."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.format import layout
from tests.store.worlds import FOREIGN_TOPOLOGY, errors_in, manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from castore.store.store import Store

T = FOREIGN_TOPOLOGY


def interrupted(act: Callable[[], object], at: int) -> bool:
    """Do something, and raise KeyboardInterrupt at the n-th line or return of castore's code.

    Returns:
        Whether it came to that.
    """
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        # Python ignores what is raised while an object is finalised: no interrupt there.
        if "/castore/" not in frame.f_code.co_filename or is_in_finalizer(frame):
            return None
        if event in ("line", "return"):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    # Nor what is raised while a generator is collected.
    gc.disable()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        gc.enable()
    return left <= 0


def is_in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def assert_nothing_is_locked(store: Store) -> None:
    for folder in (layout.LOCKS, layout.LEASES):
        for entry in store.fs.list_folder(folder):
            store.fs.lock(f"{folder}/{entry.name}", wait_s=0).release()


def _record(store: Store, number: int) -> None:
    store.record("tuning", T, "k", manifest(number), on_conflict="replace")


def _batch(store: Store, number: int) -> None:
    with store.batch():
        _record(store, number)


@pytest.mark.parametrize("act", [_record, _batch])
def test_a_process_that_survives_an_interrupt_has_not_locked_itself_out(
    tmp_path: Path, act: Callable[[Store, int], None], tried: Callable[[str, int], None]
) -> None:
    """A held lock stopped all later writers, and a held lease all later gcs, to its end."""
    store = castore.open(tmp_path / "s", durability="none")
    _record(store, 0)
    at = 1
    while interrupted(lambda: act(store, at), at):  # noqa: B023 - called at once
        assert_nothing_is_locked(store)
        assert not store.in_batch
        for path in (store.root / layout.LEASES).iterdir():
            os.unlink(path)
        at += 1
    tried("interrupts", at)
    assert at > 100
    assert store.lookup("tuning", T, "k") == manifest(at)
    assert errors_in(store) == []
