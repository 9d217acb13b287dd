"""Check a store and report, changing nothing.

Every object is decompressed and hashed, its links are resolved, every ref is read,
its name recomputed and its object looked up. Writers may be at work: what vanishes
while it is looked at is no finding, and what looks damaged is read once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from castore.errors import (
    CorruptObjectError,
    CorruptRefError,
    FileTooLargeError,
    MalformedError,
    NotRegularFileError,
)
from castore.format import layout
from castore.format.canonical import object_id, unpack
from castore.format.value import ObjectId
from castore.maintenance.findings import Finding
from castore.maintenance.pins import pins
from castore.refs import log, reading
from castore.store.closure import split_links

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.fs.protocol import Entry
    from castore.refs.reading import Listed
    from castore.store.store import Store

_TEMP_AGE_NS = 24 * 3600 * 10**9
_LOCAL_NAMES = frozenset(folder.removeprefix("local/") for folder in layout.LOCAL_FOLDERS[1:])
_ROOT_NAMES = frozenset({layout.FORMAT, *layout.TOP_FOLDERS, layout.LOCAL, "lost+found"})


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What fsck found.

    Attributes:
        findings: In the order in which they were met.
        objects: How many objects were checked.
        refs: How many refs were checked, named ones included.
        is_complete: Whether everything could be read.
    """

    findings: tuple[Finding, ...]
    objects: int
    refs: int
    is_complete: bool


@dataclass(slots=True)
class _Check:
    store: Store
    progress: Callable[[int, int | None], None] | None
    findings: list[Finding] = field(default_factory=list)
    objects: int = 0
    refs: int = 0
    is_complete: bool = True
    links: list[tuple[ObjectId, ObjectId]] = field(default_factory=list)

    def report(self, finding_id: str, subject: str, message: str) -> None:
        self.findings.append(Finding(finding_id, subject, message))


def check(store: Store, *, progress: Callable[[int, int | None], None] | None = None) -> FsckReport:
    """Check all objects and refs of a store.

    Args:
        store: The store.
        progress: Called with the number of objects checked so far.
    """
    found = _Check(store, progress)
    for shard in layout.SHARDS:
        _check_shard(found, shard)
    _check_links(found)
    namespaces = _namespaces(found)
    for namespace in (layout.NAMES, *namespaces):
        _check_namespace(found, namespace)
    _check_logs(found)
    for pin in pins(store):
        if not store.has(pin.oid):
            found.report("pin-object-missing", pin.oid, "pinned, but not there")
    _check_folders(found, namespaces)
    _check_leftovers(found)
    return FsckReport(tuple(found.findings), found.objects, found.refs, found.is_complete)


def _check_shard(found: _Check, shard: str) -> None:
    folder = f"{layout.OBJECTS}/{shard}"
    try:
        entries = found.store.fs.list_folder(folder)
    except FileNotFoundError:
        return
    except NotRegularFileError as error:
        found.report("object-foreign-file", folder, str(error))
        return
    except OSError as error:
        _unreadable(found, "object-unreadable", folder, error)
        return
    for entry in sorted(entries, key=lambda entry: entry.name):
        oid = layout.oid_in_shard(shard, entry.name)
        if oid is None:
            path = f"{folder}/{entry.name}"
            found.report("object-foreign-file", path, f"{entry.kind} with a foreign name")
        else:
            _check_object(found, oid)


def _check_object(found: _Check, oid: ObjectId) -> None:
    try:
        problem = _examine(found, oid) and _examine(found, oid)
    except OSError as error:
        _unreadable(found, "object-unreadable", oid, error)
        return
    if problem is not None:
        found.findings.append(problem)
    found.objects += 1
    if found.progress is not None:
        found.progress(found.objects, None)


def _examine(found: _Check, oid: ObjectId) -> Finding | None:
    """Return what is wrong with an object; note its strong links."""
    path = layout.object_path(oid)
    try:
        content = found.store.loose.find(oid)
    except CorruptObjectError as error:
        return Finding("object-damaged", oid, f"{path}: {error.reason}")
    if content is None:
        return None  # it went while we looked
    if object_id(content) != oid:
        return Finding("object-damaged", oid, f"{path}: its content has another id")
    try:
        strong, _ = split_links(unpack(content))
    except MalformedError as error:
        return Finding("object-malformed", oid, f"{path}: {error}")
    found.links += [(oid, target) for target in strong]
    return None


def _check_links(found: _Check) -> None:
    for source, target in found.links:
        if not found.store.has(target) and found.store.has(source):
            found.report("object-link-missing", source, f"links to {target}, which is not there")


def _namespaces(found: _Check) -> list[str]:
    try:
        return reading.namespaces(found.store.fs)
    except (NotRegularFileError, OSError):
        return []  # the listing of the folders says it


def _check_namespace(found: _Check, namespace: str) -> None:
    try:
        for listed in reading.list_refs(found.store.fs, namespace):
            found.refs += 1
            if isinstance(listed, CorruptRefError):
                _check_damaged_ref(found, listed)
            else:
                _check_ref(found, listed)
    except OSError as error:
        _unreadable(found, "ref-unreadable", f"{layout.REFS}/{namespace}", error)


def _check_damaged_ref(found: _Check, damage: CorruptRefError) -> None:
    found.report("ref-damaged", damage.path, damage.reason)


def _check_ref(found: _Check, listed: Listed) -> None:
    name, target = listed
    subject = str(name)
    if isinstance(target, ObjectId) and not found.store.has(target):
        # It may have been replaced since it was listed, and its old object collected.
        try:
            if reading.read(found.store.fs, name) == target:
                found.report("ref-object-missing", subject, f"{name.path} names {target}")
        except CorruptRefError as error:
            _check_damaged_ref(found, error)
    if name.topology is not None and not found.store.has(name.topology):
        found.report("ref-topology-foreign", subject, f"topology {name.topology} is not here")


def _check_logs(found: _Check) -> None:
    for folder in _listed(found, layout.LOGS):
        path = f"{layout.LOGS}/{folder.name}"
        is_ours = folder.name == layout.NAMES or layout.is_namespace_folder(folder.name)
        if folder.kind != "folder" or not is_ours:
            _report_foreign(found, path, folder.kind)
            continue
        for entry in _listed(found, path):
            if entry.kind == "file":
                _check_log(found, folder.name, f"{path}/{entry.name}")
            else:
                _report_foreign(found, f"{path}/{entry.name}", entry.kind)


def _check_log(found: _Check, namespace: str, path: str) -> None:
    try:
        for entry in log.read_log(found.store.fs, namespace, path):
            if isinstance(entry, MalformedError):
                found.report("log-damaged", path, str(entry))
    except (NotRegularFileError, FileTooLargeError) as error:
        found.report("log-damaged", path, str(error))
    except OSError as error:
        _unreadable(found, "ref-unreadable", path, error)


def _check_folders(found: _Check, namespaces: list[str]) -> None:
    """Report what castore did not put at the top of the store and of its folders."""
    for entry in _listed(found, ""):
        if entry.name not in _ROOT_NAMES:
            _report_foreign(found, entry.name, entry.kind)
    _check_names(found, layout.OBJECTS, frozenset(layout.SHARDS))
    _check_names(found, layout.PACKS, frozenset())
    _check_names(found, layout.LOCAL, _LOCAL_NAMES)
    _check_names(found, layout.REFS, frozenset({layout.NAMES, *namespaces}))
    for namespace in namespaces:
        _check_names(found, f"{layout.REFS}/{namespace}", frozenset(layout.SHARDS))


def _check_names(found: _Check, folder: str, known: frozenset[str]) -> None:
    """Report what lies in a folder that should hold nothing but folders with known names."""
    for entry in _listed(found, folder):
        if entry.kind != "folder" or entry.name not in known:
            _report_foreign(found, f"{folder}/{entry.name}", entry.kind)


def _report_foreign(found: _Check, path: str, kind: str) -> None:
    found.report("foreign-file", path, f"{kind} that castore did not make")


def _check_leftovers(found: _Check) -> None:
    fs = found.store.fs
    for entry in _listed(found, layout.TRASH):
        found.report("trash-leftover", f"{layout.TRASH}/{entry.name}", "left by a stopped gc")
    for entry in _listed(found, layout.QUARANTINE):
        path = f"{layout.QUARANTINE}/{entry.name}"
        found.report("quarantined", path, "kept for inspection; delete it when you like")
    temps = _listed(found, layout.TMP)
    if temps and not found.store.read_only:
        now_ns = fs.clock_ns(layout.CLOCK)
        for entry in temps:
            path = f"{layout.TMP}/{entry.name}"
            try:
                age_ns = now_ns - fs.stat(path).mtime_ns
            except FileNotFoundError:
                continue
            if age_ns > _TEMP_AGE_NS:
                found.report("temp-leftover", path, f"{age_ns // (3600 * 10**9)} hours old")


def _listed(found: _Check, folder: str) -> list[Entry]:
    try:
        return sorted(found.store.fs.list_folder(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except NotRegularFileError as error:
        found.report("foreign-file", folder, str(error))
        return []
    except OSError as error:
        is_object = folder.startswith(layout.OBJECTS)
        _unreadable(found, "object-unreadable" if is_object else "ref-unreadable", folder, error)
        return []


def _unreadable(found: _Check, finding_id: str, subject: str, error: OSError) -> None:
    found.is_complete = False
    found.report(finding_id, subject, error.strerror or str(error))
