"""`castore log`: list the changes of a ref."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import moment_text, short_id
from castore.refs.log import entries

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.reflog import LogEntry

HELP = Help(
    description="""\
List the changes of a ref, newest first: when, from which object to which, by whom
and why. Changes nothing. A ref that was removed still has its log; what stands
in the log, castore restore can bring back for as long as gc keeps it.

REF is NAMESPACE/KERNEL, names/NAME or by-key-NAMESPACE/KEY; a kernel alone is
looked for in the namespace tuning.""",
    examples=("castore log matmul_f32", "castore log certification/matmul_f32 --json"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    naming.add_ref(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """List the entries."""
    with stores.to_read(args) as store:
        name = naming.find_ref_name(store, args.ref, topology=args.topology)
        found = entries(store.fs, name)
    if output.as_json:
        output.data([_document(entry) for entry in found])
    else:
        header = ("WHEN", "FROM", "TO", "WRITER", "REASON")
        output.line(naming.ref_text(name))
        output.table(header, [_row(entry) for entry in found], empty="its log has no entries")
    return ExitStatus.DONE


def _row(entry: LogEntry) -> tuple[str, ...]:
    moment = moment_text(entry.time_ns)
    return (moment, short_id(entry.old), short_id(entry.new), entry.writer, entry.reason)


def _document(entry: LogEntry) -> dict[str, object]:
    return {
        **naming.ref_document(entry.name),
        "old": entry.old,
        "new": entry.new,
        "time_ns": entry.time_ns,
        "writer": entry.writer,
        "reason": entry.reason,
    }
