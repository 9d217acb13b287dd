"""Check the objects of one shard, at each level of fsck.

A shard's report is plain data, so that it can be made in another process. Whether a
link's target is there is asked at once; what is not found is left to the caller, who
asks again once everything was seen, and asks the store's alternates too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from castore.errors import CorruptObjectError, MalformedError, NotRegularFileError
from castore.format import layout
from castore.format.canonical import decode, object_id, unpack_with_links
from castore.format.frame import FRAME_BYTES_MAX
from castore.format.value import ObjectId, Value
from castore.fs.permissions import differing_rights
from castore.maintenance.findings import Finding, Level
from castore.objects.loose import read_frame

if TYPE_CHECKING:
    from castore.fs.protocol import Entry, FileSystem

FRAME_BYTES_MIN = 10
"""The least that one zstd frame with content takes: its header, a block's, and a byte."""

Schemas: TypeAlias = Mapping[str, Callable[[Value], object]]
"""For each kind of manifest, what raises `MalformedError` where one does not follow its schema."""


@dataclass(slots=True)
class ShardReport:
    """What was found in one shard.

    Attributes:
        findings: In the order of the objects.
        unresolved: Objects and what they link to strongly that was not in the store itself.
        objects: How many objects were checked.
        is_complete: Whether everything could be read.
    """

    findings: list[Finding] = field(default_factory=list)
    unresolved: list[tuple[ObjectId, ObjectId]] = field(default_factory=list)
    objects: int = 0
    is_complete: bool = True

    def unreadable(self, subject: str, error: OSError) -> None:
        """Note what could not be read."""
        self.is_complete = False
        told = error.strerror or str(error)
        self.findings.append(Finding("object-unreadable", subject, told))


def check_shard(
    fs: FileSystem,
    shard: str,
    level: Level,
    schemas: Schemas,
    tick: Callable[[], None] | None = None,
) -> ShardReport:
    """Check the objects of one shard.

    Args:
        fs: The store's file system.
        shard: The first two digits of the ids.
        level: How closely to look.
        schemas: The schemas of manifests, for `Level.STRICT`.
        tick: Called after each object.
    """
    report = ShardReport()
    folder = f"{layout.OBJECTS}/{shard}"
    for entry in _entries(fs, folder, report):
        oid = layout.oid_in_shard(shard, entry.name)
        if oid is None:
            path, told = f"{folder}/{entry.name}", f"{entry.kind} with a foreign name"
            report.findings.append(Finding("object-foreign-file", path, told))
            continue
        _check_object(fs, oid, level, schemas, report)
        if tick is not None:
            tick()
    if level is Level.STRICT:
        report.findings += _rights(fs, folder)
    return report


def _entries(fs: FileSystem, folder: str, report: ShardReport) -> list[Entry]:
    try:
        return sorted(fs.list_folder(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except NotRegularFileError as error:
        report.findings.append(Finding("object-foreign-file", folder, str(error)))
    except OSError as error:
        report.unreadable(folder, error)
    return []


def _check_object(
    fs: FileSystem, oid: ObjectId, level: Level, schemas: Schemas, report: ShardReport
) -> None:
    report.objects += 1
    try:
        if level is Level.QUICK:
            report.findings += _look(fs, oid) and _look(fs, oid)
            return
        # What looks wrong is read once more: a writer may just be mending it.
        found = _examine(fs, oid, level, schemas, report)
        report.findings += found and _examine(fs, oid, level, schemas, report)
    except OSError as error:
        report.unreadable(oid, error)


def _look(fs: FileSystem, oid: ObjectId) -> list[Finding]:
    """Return what is wrong with an object's file, without reading it."""
    path = layout.object_path(oid)
    try:
        found = fs.stat(path)
    except FileNotFoundError:
        return []  # it went while we looked
    if found.kind != "file":
        return [Finding("object-damaged", oid, f"{path} is {found.kind}, not a plain file")]
    if not FRAME_BYTES_MIN <= found.size_bytes <= FRAME_BYTES_MAX:
        told = f"{path}: no object has a file of {found.size_bytes} bytes"
        return [Finding("object-damaged", oid, told)]
    return []


def _examine(
    fs: FileSystem, oid: ObjectId, level: Level, schemas: Schemas, report: ShardReport
) -> list[Finding]:
    """Return what is wrong with an object; note its strong links that lead out of the store."""
    path = layout.object_path(oid)
    try:
        content = read_frame(fs, path, oid)
    except CorruptObjectError as error:
        return [Finding("object-damaged", oid, f"{path}: {error.reason}")]
    if content is None:
        return []  # it went while we looked
    if object_id(content) != oid:
        return [Finding("object-damaged", oid, f"{path}: its content has another id")]
    try:
        value, strong, _ = unpack_with_links(content)
    except MalformedError as error:
        return [Finding("object-malformed", oid, f"{path}: {error}")]
    report.unresolved += [(oid, target) for target in strong if not _is_here(fs, target)]
    if level is not Level.STRICT:
        return []
    return [*_spelling(oid, content), *_schema(oid, value, schemas), *_rights(fs, path)]


def _is_here(fs: FileSystem, oid: ObjectId) -> bool:
    try:
        return fs.stat(layout.object_path(oid)).kind == "file"
    except (FileNotFoundError, NotRegularFileError):
        return False


def _spelling(oid: ObjectId, content: bytes) -> list[Finding]:
    try:
        decode(content)
    except MalformedError as error:
        return [Finding("object-not-canonical", oid, str(error))]
    return []


def _schema(oid: ObjectId, value: Value, schemas: Schemas) -> list[Finding]:
    """Return where a manifest of a known kind does not follow its schema.

    A value that says nothing of its kind is no manifest, and a kind that is not known here
    may be a later castore's, or the caller's own.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in schemas:
        return []
    check = schemas[kind]
    try:
        check(value)
    except MalformedError as error:
        return [Finding("manifest-invalid", oid, f"{kind}: {error}")]
    return []


def _rights(fs: FileSystem, path: str) -> list[Finding]:
    told = differing_rights(fs, path)
    return [Finding("rights-differ", path, told)] if told else []
