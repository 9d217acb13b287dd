"""Check a store and report, changing nothing.

Every object is decompressed and hashed, its links are resolved, every ref is read,
its name recomputed and its object looked up. Writers may be at work: what vanishes
while it is looked at is no finding, and what looks damaged is read once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from castore.errors import (
    CorruptRefError,
    FileTooLargeError,
    MalformedError,
    NotRegularFileError,
)
from castore.format import layout
from castore.format.value import ObjectId
from castore.fs.permissions import differing_rights
from castore.maintenance.findings import Finding, Level
from castore.maintenance.object_check import check_shard
from castore.maintenance.pins import pins
from castore.maintenance.shards import in_processes
from castore.refs import log, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from castore.fs.protocol import Entry
    from castore.maintenance.object_check import Schemas, ShardReport
    from castore.refs.reading import Listed
    from castore.store.store import Store

_LEFTOVER_AGE_NS = 24 * 3600 * 10**9
_LOCAL_NAMES = frozenset(folder.removeprefix("local/") for folder in layout.LOCAL_FOLDERS[1:])
_ROOT_NAMES = frozenset({layout.FORMAT, *layout.TOP_FOLDERS, layout.LOCAL, "lost+found"})
_LEFTOVERS = {layout.TMP: "temp-leftover", layout.LEASES: "lease-leftover"}


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
    level: Level
    schemas: Schemas
    progress: Callable[[int, int | None], None] | None
    findings: list[Finding] = field(default_factory=list)
    objects: int = 0
    refs: int = 0
    is_complete: bool = True
    links: list[tuple[ObjectId, ObjectId]] = field(default_factory=list)

    def report(self, finding_id: str, subject: str, message: str, *, missing: str = "") -> None:
        self.findings.append(Finding(finding_id, subject, message, missing))

    def count(self, objects: int = 1) -> None:
        self.objects += objects
        if self.progress is not None:
            self.progress(self.objects, None)


def check(
    store: Store,
    *,
    level: Level = Level.DEFAULT,
    schemas: Schemas | None = None,
    processes: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
) -> FsckReport:
    """Check all objects and refs of a store.

    Args:
        store: The store.
        level: How closely to look.
        schemas: For `Level.STRICT`: what raises `MalformedError` where a manifest of a kind
            does not follow its schema. With several processes they must be able to import it.
        processes: How many processes may share the work, where there is enough of it. A program
            that asks for more than one needs a main module that can be imported.
        progress: Called with the number of objects checked so far.
    """
    found = _Check(store, level, schemas or {}, progress)
    for report in _shard_reports(found, processes):
        found.findings += report.findings
        found.links += report.unresolved
        found.is_complete &= report.is_complete
    _check_links(found)
    namespaces = _namespaces(found)
    for namespace in (layout.NAMES, *namespaces):
        _check_namespace(found, namespace)
    if level is not Level.QUICK:
        _check_logs(found)
    _check_pins(found)
    _check_folders(found, namespaces)
    _check_leftovers(found)
    return FsckReport(tuple(found.findings), found.objects, found.refs, found.is_complete)


def _shard_reports(found: _Check, processes: int) -> Iterator[ShardReport]:
    fs, done = found.store.fs, 0
    for report in in_processes(fs, found.level, found.schemas, processes=processes):
        done += 1
        found.count(report.objects)
        yield report
    for shard in layout.SHARDS[done:]:
        yield check_shard(fs, shard, found.level, found.schemas, found.count)


def _check_links(found: _Check) -> None:
    for source, target in found.links:
        if not found.store.has(target) and found.store.has(source):
            told = f"links to {target}, which is not there"
            found.report("object-link-missing", source, told, missing=target)


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
    if found.level is Level.STRICT:
        _check_rights(found, name.path)
    if isinstance(target, ObjectId) and not found.store.has(target):
        # It may have been replaced since it was listed, and its old object collected.
        try:
            if reading.read(found.store.fs, name) == target:
                told = f"{name.path} names {target}"
                found.report("ref-object-missing", subject, told, missing=target)
        except CorruptRefError as error:
            _check_damaged_ref(found, error)
    if name.topology is not None and not found.store.has(name.topology):
        found.report("ref-topology-foreign", subject, f"topology {name.topology} is not here")


def _check_rights(found: _Check, path: str) -> None:
    told = differing_rights(found.store.fs, path)
    if told:
        found.report("rights-differ", path, told)


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


def _check_pins(found: _Check) -> None:
    try:
        pinned = [pin.oid for pin in pins(found.store)]
    except (NotRegularFileError, OSError):
        return  # the listing of the folders says it
    for oid in pinned:
        if not found.store.has(oid):
            found.report("pin-object-missing", oid, "pinned, but not there", missing=oid)


def _check_folders(found: _Check, namespaces: list[str]) -> None:
    """Report what castore did not put at the top of the store and of its folders."""
    if found.level is Level.STRICT:
        refs = (f"{layout.REFS}/{namespace}" for namespace in (layout.NAMES, *namespaces))
        for path in (layout.FORMAT, *layout.TOP_FOLDERS, *layout.LOCAL_FOLDERS, *refs):
            _check_rights(found, path)
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
        path = f"{folder}/{entry.name}"
        if folder == layout.REFS and entry.kind != "folder" and layout.is_ref_path(path):
            found.is_complete = False
            found.report("ref-unreadable", path, f"{entry.kind} in place of a folder of refs")
        elif entry.kind != "folder" or entry.name not in known:
            _report_foreign(found, path, entry.kind)


def _report_foreign(found: _Check, path: str, kind: str) -> None:
    found.report("foreign-file", path, f"{kind} that castore did not make")


def _check_leftovers(found: _Check) -> None:
    for entry in _listed(found, layout.TRASH):
        found.report("trash-leftover", f"{layout.TRASH}/{entry.name}", "left by a stopped gc")
    for entry in _listed(found, layout.QUARANTINE):
        path = f"{layout.QUARANTINE}/{entry.name}"
        found.report("quarantined", path, "kept for inspection; delete it when you like")
    _check_ages(found, layout.TMP)
    if found.level is Level.STRICT:
        _check_ages(found, layout.LEASES)


def _check_ages(found: _Check, folder: str) -> None:
    """Report what a writer left behind, once no writer is likely to need it any more."""
    fs = found.store.fs
    entries = _listed(found, folder)
    if not entries or found.store.read_only:
        return
    now_ns = fs.clock_ns(layout.CLOCK)
    for entry in entries:
        path = f"{folder}/{entry.name}"
        try:
            age_ns = now_ns - fs.stat(path).mtime_ns
        except FileNotFoundError:
            continue
        if age_ns > _LEFTOVER_AGE_NS:
            found.report(_LEFTOVERS[folder], path, f"{age_ns // (3600 * 10**9)} hours old")


def _listed(found: _Check, folder: str) -> list[Entry]:
    try:
        return sorted(found.store.fs.list_folder(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except NotRegularFileError as error:
        if not any(each.subject == error.path for each in found.findings):
            found.report("foreign-file", error.path, str(error))
        return []
    except OSError as error:
        is_object = folder.startswith(layout.OBJECTS)
        _unreadable(found, "object-unreadable" if is_object else "ref-unreadable", folder, error)
        return []


def _unreadable(found: _Check, finding_id: str, subject: str, error: OSError) -> None:
    found.is_complete = False
    found.report(finding_id, subject, error.strerror or str(error))
