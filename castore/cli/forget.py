"""`castore forget`: remove refs by what they are for, their age or use, or shorten their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.durations import parse_duration
from castore.cli.naming import expand_topology, kernel_matcher
from castore.cli.parser import Help, argument, positive
from castore.cli.status import ExitStatus
from castore.cli.text import counted, short_id
from castore.errors import MalformedError
from castore.maintenance import forget
from castore.maintenance.forget import ForgetPlan

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.value import ObjectId
    from castore.store.store import Store

HELP = Help(
    description="""\
Remove the refs that meet every condition given; at least one is needed. The
objects stay until a later gc, and castore restore undoes it until then. Safe
beside other processes: a ref that changes meanwhile is left alone. Refs of
alternates are not removed.

With --keep-last, those refs stay, and of the log of each only the newest N
entries: what the others named cannot be restored any more, and goes in a later gc.

--kernel takes the whole kernel text, the part before the bracket, or the
wildcards * and ?. The refs that tell which topologies the store knows go only
when --namespace topology asks for them. --unused-since goes by the lookups that
were made in this copy of the store by those who may write it. They are noted
once a day, so a ref stays up to two days longer.""",
    examples=(
        "castore forget --kernel matmul_f32 --dry-run",
        "castore forget --topology 3f9a61c2 --older-than 90d",
        "castore forget --unused-since 180d",
        "castore forget --keep-last 3",
    ),
    statuses=(ExitStatus.LOCKED, ExitStatus.UNUSABLE),
    meanings={ExitStatus.NOT_FOUND: "no store there, or no ref for such a topology"},
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--namespace", metavar="NS", help="refs of this namespace")
    parser.add_argument("--topology", metavar="ID", help="refs for this topology")
    parser.add_argument("--kernel", metavar="PATTERN", help="refs for kernels that match")
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=argument(parse_duration),
        help="refs that were last changed longer ago than this, such as 12h or 90d",
    )
    parser.add_argument(
        "--unused-since",
        metavar="AGE",
        type=argument(parse_duration),
        help="refs that nobody has looked up or changed for so long",
    )
    parser.add_argument(
        "--keep-last",
        metavar="N",
        type=argument(positive),
        help="keep the refs, and the newest N entries of the log of each",
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="print the plan and change nothing"
    )
    parser.add_argument("--reason", default="forget", help="why, for the log (default: forget)")


def run(args: argparse.Namespace, output: Output) -> int:
    """Plan, and unless that is all, remove."""
    conditions = (args.namespace, args.topology, args.kernel, args.older_than, args.unused_since)
    if all(condition is None for condition in (*conditions, args.keep_last)):
        reason = (
            "give at least one of --namespace, --topology, --kernel, --older-than, "
            "--unused-since and --keep-last"
        )
        raise MalformedError("forget", reason)
    with stores.to_change(args) as store:
        plan = _plan(store, args)
        if args.keep_last is not None:
            return _shorten(store, plan, args, output)
        dropped = 0
        if not args.dry_run:
            dropped = forget.apply(store, plan, reason=args.reason)
    if output.as_json:
        refs = [{**naming.ref_document(ref.name), "object": ref.object} for ref in plan.refs]
        output.data({"refs": refs, "removed": dropped})
        return ExitStatus.DONE
    verb = "would remove" if args.dry_run else "removed"
    output.lines(f"{verb} {naming.ref_text(ref.name)}" for ref in plan.refs)
    output.line(f"{verb} {counted(len(plan.refs) if args.dry_run else dropped, 'ref')}")
    return ExitStatus.DONE


def _shorten(store: Store, plan: ForgetPlan, args: argparse.Namespace, output: Output) -> int:
    history = forget.plan_history(store, plan, keep_last=args.keep_last)
    removed, notes = 0, tuple[str, ...]()
    if not args.dry_run:
        done = forget.apply_history(store, history)
        removed, notes = done.entries, done.notes
    for note in notes:
        output.note(f"castore: {note}")
    if output.as_json:
        entries = [
            {**naming.ref_document(entry.name), "old": entry.old, "new": entry.new}
            for entry in history.entries
        ]
        output.data({"entries": entries, "removed": removed, "notes": list(notes)})
        return ExitStatus.DONE
    verb = "would remove" if args.dry_run else "removed"
    output.lines(
        f"{verb} {naming.ref_text(entry.name)}: {_short(entry.old)} to {_short(entry.new)}"
        for entry in history.entries
    )
    total = len(history.entries) if args.dry_run else removed
    output.line(f"{verb} {counted(total, 'log line')}")
    return ExitStatus.DONE


def _short(oid: ObjectId | None) -> str:
    return "nothing" if oid is None else short_id(oid)


def _plan(store: Store, args: argparse.Namespace) -> ForgetPlan:
    topology = None
    if args.topology is not None:
        topology = expand_topology(store.refs(args.namespace), args.topology)
    plan = forget.plan(
        store,
        namespace=args.namespace,
        topology=topology,
        older_than_s=args.older_than,
        unused_since_s=args.unused_since,
    )
    if args.kernel is None:
        return plan
    matches = kernel_matcher(args.kernel)
    return ForgetPlan(tuple(ref for ref in plan.refs if ref.kernel and matches(ref.kernel)))
