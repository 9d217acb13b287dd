"""`castore fsck`: check every object and every ref."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from castore.cli import progress, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import counted
from castore.maintenance import fsck
from castore.maintenance.findings import Level

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.maintenance.findings import Finding
    from castore.maintenance.fsck import FsckReport
    from castore.maintenance.object_check import Schemas

HELP = Help(
    description="""\
Check the store: decompress and hash every object, follow its links, read every ref
and recompute its name. Prints one line for each finding: how bad it is, which
kind, what it concerns. Changes nothing, and is safe beside other processes: what
looks damaged is read again before it is told.

With --json every finding is a document on a line of its own, and the last line
sums up. Damage does no harm to other keys: a damaged object or ref reads as a
miss, and the next put of the same value writes it anew. See also: castore repair.""",
    examples=("castore fsck", "castore --store /srv/castore fsck --strict --json"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
    meanings={
        ExitStatus.DONE: "clean; there may be warnings and remarks",
        ExitStatus.DAMAGE: "at least one finding is an error",
        ExitStatus.INCOMPLETE: "not everything could be read, so the rest is unknown",
    },
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "--quick",
        dest="level",
        action="store_const",
        const=Level.QUICK,
        default=Level.DEFAULT,
        help="only names, kinds and sizes of files, and whether refs resolve",
    )
    levels.add_argument(
        "--strict",
        dest="level",
        action="store_const",
        const=Level.STRICT,
        help="also canonical spelling, manifests against their schemas, and rights",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Check the store."""
    with stores.to_read(args) as store, progress.counting("checking objects") as tell:
        report = fsck.check(
            store,
            level=args.level,
            schemas=_schemas(args.level),
            processes=os.cpu_count() or 1,
            progress=tell,
        )
    if output.as_json:
        for found in report.findings:
            output.record(finding_document(found))
        output.record(_summary_document(report, args.level))
    else:
        output.lines(finding_text(found) for found in report.findings)
        output.line(_summary(report))
    return _status(report)


def finding_text(found: Finding) -> str:
    """Return a finding as one line for people."""
    return f"{found.severity}: {found.id}: {found.subject}: {found.message}"


def finding_document(found: Finding) -> dict[str, object]:
    """Return a finding for JSON output."""
    return {"type": "finding", "severity": found.severity, **asdict(found)}


def _schemas(level: Level) -> Schemas:
    if level is not Level.STRICT:
        return {}
    from castore.cli.schemas import SCHEMAS  # noqa: PLC0415 - loads the tuner's records

    return SCHEMAS


def _status(report: FsckReport) -> ExitStatus:
    if not report.is_complete:
        return ExitStatus.INCOMPLETE
    is_damaged = any(found.severity == "error" for found in report.findings)
    return ExitStatus.DAMAGE if is_damaged else ExitStatus.DONE


def _summary(report: FsckReport) -> str:
    checked = f"checked {counted(report.objects, 'object')} and {counted(report.refs, 'ref')}"
    severities = [found.severity for found in report.findings]
    counts = [
        counted(severities.count(severity), noun)
        for severity, noun in (("error", "error"), ("warning", "warning"), ("info", "remark"))
        if severity in severities
    ]
    incomplete = "" if report.is_complete else "; not everything could be read"
    return f"{checked}: {', '.join(counts) or 'clean'}{incomplete}"


def _summary_document(report: FsckReport, level: Level) -> dict[str, object]:
    severities = [found.severity for found in report.findings]
    return {
        "type": "summary",
        "level": level.value,
        "is_complete": report.is_complete,
        "objects": report.objects,
        "refs": report.refs,
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "remarks": severities.count("info"),
    }
