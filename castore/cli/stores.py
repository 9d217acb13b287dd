"""Opening the store that the command line names."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from castore.errors import StoreNotFoundError
from castore.store.opening import default_root, has_format, open_store

if TYPE_CHECKING:
    import argparse

    from castore.store.store import Store


def root(args: argparse.Namespace) -> str:
    """Return the folder that is meant, whether a store is there or not."""
    return os.path.abspath(args.store if args.store is not None else default_root())


def to_read(args: argparse.Namespace) -> Store:
    """Open an existing store for reading only.

    Raises:
        StoreNotFoundError: There is none; the message says how to make one.
    """
    return open_store(_existing(args), create=False, read_only=True)


def to_change(args: argparse.Namespace) -> Store:
    """Open an existing store.

    Raises:
        StoreNotFoundError: There is none; the message says how to make one.
    """
    return open_store(_existing(args), create=False)


def to_fill(args: argparse.Namespace) -> Store:
    """Open the store, making it where there is none."""
    return open_store(args.store)


def _existing(args: argparse.Namespace) -> str:
    folder = root(args)
    if not has_format(folder):
        raise StoreNotFoundError(folder, f"make one with: castore init {shlex.quote(folder)}")
    return folder
