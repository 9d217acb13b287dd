"""`castore gc`: remove objects that nothing needs any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from castore.cli import progress, stores
from castore.cli.durations import duration_text, parse_duration
from castore.cli.parser import Help, argument
from castore.cli.status import ExitStatus
from castore.cli.text import counted, size_text
from castore.errors import LockTimeoutError
from castore.format import layout
from castore.maintenance import auto_gc, gc, log_expiry
from castore.maintenance.log_expiry import Trimmed

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.maintenance.gc import Plan, Report
    from castore.store.store import Store

HELP = Help(
    description="""\
Remove objects that no ref, log entry or pin can reach and that have not been
written or freshened for the grace period. Safe to run while other processes use
the store. Stores that borrow objects from this one through alternates are not
consulted. gc removes no refs; castore forget does. Entries of the ref logs that
are older than their expiry are trimmed in the end.

With --dry-run, print what would be removed and change nothing, also in a store
that may only be read. With --auto, which
is cheap enough to run after every tuning run, do nothing unless the last gc is long
ago or many objects have come since, nor while another gc is running.""",
    examples=("castore gc --dry-run", "castore gc --grace 14d", "castore gc --auto"),
    statuses=(ExitStatus.NOT_FOUND,),
    meanings={
        ExitStatus.DAMAGE: "an object is damaged, so what it needs is unknown; nothing was removed",
        ExitStatus.LOCKED: "another gc is running and did not end in time",
        ExitStatus.UNUSABLE: "refused: there are objects but no refs, or the store is read-only",
    },
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="print the plan and change nothing"
    )
    parser.add_argument(
        "--grace",
        metavar="AGE",
        type=argument(parse_duration),
        default=int(gc.GRACE_S),
        help="keep unreachable objects younger than this, such as 0s, 12h or 14d"
        f" (default: {duration_text(int(gc.GRACE_S))})",
    )
    parser.add_argument(
        "--log-expiry",
        metavar="AGE",
        type=argument(parse_duration),
        default=int(gc.LOG_EXPIRY_S),
        help="how long a log entry keeps what it names"
        f" (default: {duration_text(int(gc.LOG_EXPIRY_S))})",
    )
    parser.add_argument(
        "--auto", action="store_true", help="do nothing unless it seems worth the time"
    )
    parser.add_argument(
        "--wait",
        metavar="TIME",
        type=argument(parse_duration),
        default=int(gc.WAIT_S),
        help=f"how long to wait for another gc (default: {duration_text(int(gc.WAIT_S))})",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Plan, and unless that is all, remove."""
    with stores.to_change(args) as store:
        if args.auto:
            decision = auto_gc.decide(store)
            if not decision.is_due:
                return _nothing(output, decision.reason)
        if args.dry_run and store.read_only:
            return _collect(store, args, output)
        try:
            with gc.locked(store, wait_s=0 if args.auto else args.wait):
                return _collect(store, args, output)
        except LockTimeoutError as error:
            if args.auto and error.path == layout.GC_LOCK:
                return _nothing(output, "another gc is running")
            raise


def _nothing(output: Output, reason: str) -> ExitStatus:
    if output.as_json:
        output.data({"plan": None, "report": None, "reason": reason})
    else:
        output.line(f"nothing to do: {reason}")
    return ExitStatus.DONE


def _collect(store: Store, args: argparse.Namespace, output: Output) -> ExitStatus:
    with progress.counting("finding what is needed") as tell:
        plan = gc.plan(store, grace_s=args.grace, log_expiry_s=args.log_expiry, progress=tell)
    notes, report, trimmed = list(plan.notes), None, Trimmed(0, ())
    if not args.dry_run:
        with progress.counting("removing objects") as tell:
            report = gc.apply(store, plan, progress=tell)
        # After pruning, which may have made the room that a shorter log needs.
        trimmed = log_expiry.trim(store, expiry_s=args.log_expiry)
        auto_gc.note_done(store)
        notes += trimmed.notes
    for note in notes:
        output.note(f"castore: {note}")
    if output.as_json:
        output.data(_document(plan, report, trimmed, notes))
    elif report is None:
        output.lines(f"would remove {oid}" for oid in plan.prune)
        output.line(_planned(plan))
    else:
        output.line(_done(plan, report, trimmed))
    return ExitStatus.DONE


def _planned(plan: Plan) -> str:
    size = size_text(plan.prune_bytes)
    return f"would remove {counted(len(plan.prune), 'object')} ({size}); {_kept(plan)}"


def _done(plan: Plan, report: Report, trimmed: Trimmed) -> str:
    told = f"removed {counted(report.removed, 'object')} ({size_text(report.freed_bytes)})"
    if report.leftovers:
        told += f" and {counted(report.leftovers, 'leftover file')}"
    if trimmed.entries:
        told += f"; trimmed {counted(trimmed.entries, 'log line')}"
    if report.spared:
        told += f"; spared {report.spared} that a writer has just used"
    return f"{told}; {_kept(plan)}"


def _kept(plan: Plan) -> str:
    return f"kept {plan.reachable:,} reachable and {plan.recent:,} recent"


def _document(
    plan: Plan, report: Report | None, trimmed: Trimmed, notes: list[str]
) -> dict[str, object]:
    planned = {
        "prune": list(plan.prune),
        "prune_bytes": plan.prune_bytes,
        "reachable": plan.reachable,
        "recent": plan.recent,
        "notes": notes,
    }
    done = None if report is None else {**asdict(report), "log_entries_trimmed": trimmed.entries}
    return {"plan": planned, "report": done}
