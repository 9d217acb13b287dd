"""`castore fsck`: check every object and every ref."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from castore.cli import progress, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import counted
from castore.maintenance import fsck

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.maintenance.fsck import FsckReport

HELP = Help(
    description="""\
Check the store: decompress and hash every object, follow its links, read every ref
and recompute its name. Prints one line for each finding: how bad it is, which
kind, what it concerns. Changes nothing, and is safe beside other processes.

Damage does no harm to other keys: a damaged object or ref reads as a miss, and the
next put of the same value writes it anew.""",
    examples=("castore fsck", "castore --store /srv/castore fsck --json"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
    meanings={
        ExitStatus.DONE: "clean; there may be warnings and remarks",
        ExitStatus.DAMAGE: "at least one finding is an error",
        ExitStatus.INCOMPLETE: "not everything could be read, so the rest is unknown",
    },
)


def configure(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments of its own."""


def run(args: argparse.Namespace, output: Output) -> int:
    """Check the store."""
    with stores.to_read(args) as store, progress.counting("checking objects") as tell:
        report = fsck.check(store, progress=tell)
    if output.as_json:
        output.data(_document(report))
    else:
        for found in report.findings:
            output.line(f"{found.severity}: {found.id}: {found.subject}: {found.message}")
        output.line(_summary(report))
    return _status(report)


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


def _document(report: FsckReport) -> dict[str, object]:
    return {
        "is_complete": report.is_complete,
        "objects": report.objects,
        "refs": report.refs,
        "findings": [{"severity": found.severity, **asdict(found)} for found in report.findings],
    }
