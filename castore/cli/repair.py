"""`castore repair`: mend what fsck finds."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from castore.cli import naming, progress, stores
from castore.cli.durations import duration_text, parse_duration
from castore.cli.fsck import finding_document, finding_text
from castore.cli.parser import Help, argument
from castore.cli.status import ExitStatus
from castore.cli.text import counted
from castore.maintenance import fsck, gc, leftovers, repair
from castore.store.opening import open_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from castore.cli.output import Output
    from castore.maintenance.findings import Finding
    from castore.maintenance.repair import Plan, Report

HELP = Help(
    description="""\
Check the store and mend what can be mended. Damaged objects and refs are moved to
local/quarantine, never deleted. Where an alternate, or a store that --from names,
has a good copy of what is damaged or missing, it is checked and copied. Objects
that a stopped gc left in its trash go home, and temp files of stopped writers are
removed once they are old. Files that castore did not make are left alone.

With --refs, a ref that is damaged, or names an object that is not there, names the
newest object in its log again that is whole; castore log shows it. Then the store
is checked once more, and what is still wrong is listed. Safe beside other processes;
waits for a gc. A repair that was stopped is simply run again.""",
    examples=("castore repair --dry-run", "castore repair --refs --from /mnt/backup/castore"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
    meanings={
        ExitStatus.DONE: "nothing was wrong, or all of it is repaired now",
        ExitStatus.DAMAGE: "errors are left (with --dry-run: there are errors)",
        ExitStatus.LOCKED: "a gc or another repair is running and did not end in time",
        ExitStatus.INCOMPLETE: "not everything could be read, so the rest is unknown",
    },
)


_NEXT_FOR_MISSING = (
    "next, for a ref whose object is gone, one of:",
    "  castore repair --from STORE   copies the object from a store that has it",
    "  castore repair --refs         lets the ref name the newest whole object of its log",
    "  castore tune KERNEL           measures a built-in kernel again",
    "  castore forget --kernel TEXT  removes the ref of a kernel (a named ref: Store.delete_name)",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="print the plan and change nothing"
    )
    parser.add_argument(
        "--from",
        dest="donors",
        metavar="STORE",
        action="append",
        default=[],
        help="a store to copy good objects from (may be given several times)",
    )
    parser.add_argument(
        "--refs", action="store_true", help="restore damaged and dangling refs from their logs"
    )
    parser.add_argument(
        "--leftovers",
        metavar="AGE",
        type=argument(parse_duration),
        default=int(leftovers.AGE_S),
        help="remove temp files of stopped writers that are older than this"
        f" (default: {duration_text(int(leftovers.AGE_S))})",
    )
    parser.add_argument(
        "--wait",
        metavar="TIME",
        type=argument(parse_duration),
        default=int(gc.WAIT_S),
        help=f"how long to wait for a gc (default: {duration_text(int(gc.WAIT_S))})",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Plan, and unless that is all, mend and check again."""
    processes = os.cpu_count() or 1
    with contextlib.ExitStack() as opened:
        donors = [
            opened.enter_context(open_store(os.path.expanduser(path), create=False, read_only=True))
            for path in args.donors
        ]
        store = opened.enter_context(stores.to_change(args))
        opened.enter_context(gc.locked(store, wait_s=args.wait))
        with progress.counting("checking objects") as tell:
            plan = repair.plan(
                store,
                donors=donors,
                restore_refs=args.refs,
                leftover_age_s=args.leftovers,
                processes=processes,
                progress=tell,
            )
        report, left, is_complete = None, plan.findings, plan.is_complete
        if not args.dry_run and not plan.is_empty:
            report = repair.apply(store, plan, donors=donors)
            with progress.counting("checking again") as tell:
                after = fsck.check(store, processes=processes, progress=tell)
            left, is_complete = after.findings, after.is_complete
    if output.as_json:
        output.data(_document(plan, report, left, is_complete=is_complete))
    else:
        _print(output, plan, report, left, is_dry_run=args.dry_run)
    return _status(left, is_complete=is_complete)


def _status(left: Iterable[Finding], *, is_complete: bool) -> ExitStatus:
    if not is_complete:
        return ExitStatus.INCOMPLETE
    is_damaged = any(found.severity == "error" for found in left)
    return ExitStatus.DAMAGE if is_damaged else ExitStatus.DONE


def _print(
    output: Output,
    plan: Plan,
    report: Report | None,
    left: Sequence[Finding],
    *,
    is_dry_run: bool,
) -> None:
    output.lines(_steps(plan, "would " if is_dry_run else ""))
    if plan.is_empty:
        is_sound = all(found.severity != "error" for found in left)
        output.line("nothing to repair" if is_sound else "nothing can be repaired from here")
    elif report is None:
        output.line("nothing was changed")
    else:
        output.line(_done(report))
    output.lines(f"left: {finding_text(found)}" for found in left if found.severity != "info")
    if any(found.id == "ref-object-missing" for found in left):
        output.lines(_NEXT_FOR_MISSING)


def _steps(plan: Plan, would: str) -> Iterable[str]:
    yield from (f"{would}move damaged object {oid} to quarantine" for oid in plan.quarantine)
    yield from (f"{would}copy object {oid} from {source}" for oid, source in plan.copies)
    yield from (f"no good copy of object {oid}" for oid in plan.lost)
    yield from (f"{would}put object {oid} back from the trash" for oid in plan.put_back)
    yield from (
        f"{would}let {naming.ref_text(each.name)} name {each.target} again" for each in plan.restore
    )
    yield from (f"{would}move damaged ref {each.path} to quarantine" for each in plan.move_refs)
    yield from (f"{would}remove leftover {path}" for path in plan.sweep)


def _done(report: Report) -> str:
    parts = (
        ("moved", report.quarantined, "damaged object"),
        ("copied", report.copied, "object"),
        ("put back", report.put_back, "object"),
        ("restored", report.refs_restored, "ref"),
        ("moved", report.refs_moved, "damaged ref"),
        ("removed", report.swept, "leftover"),
    )
    told = ", ".join(f"{verb} {counted(count, noun)}" for verb, count, noun in parts if count)
    return f"repaired: {told or 'nothing was left to do'}"


def _document(
    plan: Plan, report: Report | None, left: Iterable[Finding], *, is_complete: bool
) -> dict[str, object]:
    planned = {
        "quarantine": list(plan.quarantine),
        "copies": [{"object": oid, "from": source} for oid, source in plan.copies],
        "lost": list(plan.lost),
        "put_back": list(plan.put_back),
        "move_refs": [each.path for each in plan.move_refs],
        "restore": [
            {**naming.ref_document(each.name), "object": each.target} for each in plan.restore
        ],
        "sweep": list(plan.sweep),
    }
    return {
        "plan": planned,
        "report": None if report is None else asdict(report),
        "left": [finding_document(found) for found in left],
        "is_complete": is_complete,
    }
