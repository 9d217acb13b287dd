"""Opening the store that the command line names."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from typing import TYPE_CHECKING

from castore.errors import ReadOnlyStoreError, StoreNotFoundError
from castore.store.opening import absolute, default_root, has_format, has_store, open_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from castore.store.store import Store

_ANOTHER_FOLDER_HELPS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOENT,
        errno.ENOTDIR,
    }
)


def root(args: argparse.Namespace) -> str:
    """Return the folder that is meant, whether a store is there or not."""
    # The shell leaves the ~ of --store=~/x alone.
    return absolute(default_root() if args.store is None else os.path.expanduser(args.store))


@contextlib.contextmanager
def to_read(args: argparse.Namespace) -> Iterator[Store]:
    """Open an existing store for reading only, while the body runs.

    Raises:
        StoreNotFoundError: There is none; the message says how to make one.
    """
    with hinting(args) as folder:
        _refuse_missing(args, folder)
        with open_store(folder, create=False, read_only=True) as store:
            yield store


@contextlib.contextmanager
def to_change(args: argparse.Namespace) -> Iterator[Store]:
    """Open an existing store, while the body runs.

    Raises:
        StoreNotFoundError: There is none; the message says how to make one.
    """
    with hinting(args) as folder:
        _refuse_missing(args, folder)
        with open_store(folder, create=False) as store:
            yield store


@contextlib.contextmanager
def to_fill(args: argparse.Namespace) -> Iterator[Store]:
    """Open the store, making it where there is none, while the body runs."""
    with hinting(args) as folder, open_store(folder) as store:
        yield store


def with_store(args: argparse.Namespace, command: str) -> str:
    """Return a command line for the same store, such as `castore tune --all`."""
    option = "" if args.store is None else f"--store {shlex.quote(args.store)} "
    return f"castore {option}{command}"


@contextlib.contextmanager
def hinting(args: argparse.Namespace) -> Iterator[str]:
    """Say in errors that another folder may help with which store is meant."""
    folder = root(args)
    try:
        yield folder
    except (OSError, ReadOnlyStoreError) as error:
        if isinstance(error, ReadOnlyStoreError) or error.errno in _ANOTHER_FOLDER_HELPS:
            error.add_note(f"the store is {folder}; --store or CASTORE_DIR names another")
        raise


def _refuse_missing(args: argparse.Namespace, folder: str) -> None:
    if not has_format(folder) and not has_store(folder):
        tune = with_store(args, "tune --all")
        reason = f"make one with: {tune}, or without results: castore init {shlex.quote(folder)}"
        raise StoreNotFoundError(folder, reason)
