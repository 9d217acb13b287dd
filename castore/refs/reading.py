"""Reading refs: one by name, or all of them.

A ref file that is damaged concerns its own key alone: reading it raises
`CorruptRefError`, and a listing yields that error in its place.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from castore.errors import (
    CorruptRefError,
    FileTooLargeError,
    MalformedError,
    NotRegularFileError,
)
from castore.format import layout
from castore.format.ref import REF_BYTES_MAX, RefName, decode_ref, read_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem


class NoObject(Enum):
    """What a ref that names no object is."""

    ABSENT = "absent"
    TOMBSTONE = "tombstone"


class Listed(NamedTuple):
    """A ref file as a listing meets it.

    Attributes:
        name: The ref.
        target: The object that it names, or that it is a tombstone.
    """

    name: RefName
    target: ObjectId | NoObject


def read(fs: FileSystem, name: RefName) -> ObjectId | NoObject:
    """Return what a loose ref names.

    Raises:
        CorruptRefError: Its file is damaged, or belongs to another ref.
    """
    path = name.path
    try:
        return read_target(name, fs.read(path, limit_bytes_max=REF_BYTES_MAX)) or NoObject.TOMBSTONE
    except FileNotFoundError:
        return NoObject.ABSENT
    except (MalformedError, NotRegularFileError, FileTooLargeError) as error:
        raise CorruptRefError(path, str(error)) from None


def namespaces(fs: FileSystem) -> list[str]:
    """Return the namespaces of keyed refs, sorted."""
    try:
        entries = fs.list_folder(layout.REFS)
    except FileNotFoundError:
        return []
    return sorted(
        entry.name
        for entry in entries
        if entry.kind == "folder" and layout.is_namespace_folder(entry.name)
    )


def list_refs(fs: FileSystem, namespace: str) -> Iterator[Listed | CorruptRefError]:
    """Yield the loose refs of a namespace (or `names`) by key, an error for each damaged one."""
    for shard in _shards(fs, namespace):
        yield from list_shard(fs, namespace, shard)


def list_shard(fs: FileSystem, namespace: str, shard: str) -> Iterator[Listed | CorruptRefError]:
    """Yield the loose refs of one shard (ignored for `names`) by key, errors in place."""
    folder = _folder(namespace, shard)
    try:
        entries = fs.list_folder(folder)
    except FileNotFoundError:
        return
    except NotRegularFileError as error:
        yield CorruptRefError(folder, str(error))
        return
    for entry in sorted(entries, key=lambda entry: entry.name):
        listed = _read_listed(fs, namespace, shard, entry.name)
        if listed is not None:
            yield listed


def _read_listed(
    fs: FileSystem, namespace: str, shard: str, file_name: str
) -> Listed | CorruptRefError | None:
    key = file_name if namespace == layout.NAMES else layout.oid_in_shard(shard, file_name)
    path = f"{_folder(namespace, shard)}/{file_name}"
    if key is None:
        return CorruptRefError(path, "a file that castore did not name")
    try:
        data = fs.read(path, limit_bytes_max=REF_BYTES_MAX)
        name, target = decode_ref(namespace, key, data)
    except FileNotFoundError:
        return None  # it went while we looked
    except (MalformedError, NotRegularFileError, FileTooLargeError) as error:
        return CorruptRefError(path, str(error))
    return Listed(name, target or NoObject.TOMBSTONE)


def _shards(fs: FileSystem, namespace: str) -> list[str]:
    if namespace == layout.NAMES:
        return [""]
    try:
        entries = fs.list_folder(f"{layout.REFS}/{namespace}")
    except FileNotFoundError:
        return []
    return sorted(entry.name for entry in entries if entry.name in layout.SHARDS)


def _folder(namespace: str, shard: str) -> str:
    folder = f"{layout.REFS}/{namespace}"
    return f"{folder}/{shard}" if shard else folder
