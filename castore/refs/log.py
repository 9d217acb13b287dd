"""Reading the logs of refs."""

from __future__ import annotations

import getpass
import os
import socket
from functools import lru_cache
from typing import TYPE_CHECKING

from castore.format import layout, reflog
from castore.format.reflog import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.errors import MalformedError
    from castore.format.ref import RefName
    from castore.fs.protocol import Entry, FileSystem


def entries(fs: FileSystem, name: RefName) -> list[LogEntry]:
    """Return the log of one ref, newest first; lines that are damaged are left out."""
    path = layout.log_path(name.namespace, name.key)
    found = [
        entry
        for entry in read_log(fs, name.namespace, path)
        if isinstance(entry, LogEntry) and entry.key == name.key
    ]
    found.reverse()
    return found


def read_log(fs: FileSystem, namespace: str, path: str) -> Iterator[LogEntry | MalformedError]:
    """Yield the entries of one log file, oldest first, and an error for each damaged line."""
    try:
        data = fs.read(path, limit_bytes_max=reflog.LOG_BYTES_MAX)
    except FileNotFoundError:
        return
    yield from reflog.decode_entries(namespace, data)


def log_files(fs: FileSystem) -> Iterator[tuple[str, str]]:
    """Yield (namespace, path) of every log file."""
    for folder in _entries_in(fs, layout.LOGS):
        namespace = folder.name
        if folder.kind != "folder":
            continue
        if namespace != layout.NAMES and not layout.is_namespace_folder(namespace):
            continue
        for entry in _entries_in(fs, f"{layout.LOGS}/{namespace}"):
            if entry.kind == "file":
                yield namespace, f"{layout.LOGS}/{namespace}/{entry.name}"


def hidden(fs: FileSystem) -> Iterator[str]:
    """Yield where something else than a log, or a folder of logs, has the name of one."""
    for folder in _entries_in(fs, layout.LOGS):
        is_ours = folder.name == layout.NAMES or layout.is_namespace_folder(folder.name)
        path = f"{layout.LOGS}/{folder.name}"
        if is_ours and folder.kind != "folder":
            yield path
        elif is_ours:
            for entry in _entries_in(fs, path):
                if entry.kind != "file" and entry.name in (layout.NAMES, *layout.SHARDS):
                    yield f"{path}/{entry.name}"


def _entries_in(fs: FileSystem, folder: str) -> list[Entry]:
    try:
        return sorted(fs.list_folder(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def this_writer() -> str:
    """Return how this process signs its log entries."""
    return f"process {os.getpid()} on {socket.gethostname()} as {_user()}"


@lru_cache(maxsize=1)
def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container often runs under a user id that has no name; a service on Windows, too.
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
