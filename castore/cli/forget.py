"""`castore forget`: remove refs by what they are for, or by their age."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.durations import parse_duration
from castore.cli.naming import expand_topology, kernel_matcher
from castore.cli.parser import Help, argument
from castore.cli.status import ExitStatus
from castore.cli.text import counted
from castore.errors import MalformedError
from castore.maintenance import forget
from castore.maintenance.forget import ForgetPlan

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.store.store import Store

HELP = Help(
    description="""\
Remove the refs that meet every condition given; at least one is needed. The
objects stay until a later gc, and castore restore undoes it until then. Safe
beside other processes: a ref that changes meanwhile is left alone.

--kernel takes the whole kernel text, the part before the bracket, or the
wildcards * and ?. The refs that tell which topologies the store knows go only
when --namespace topology asks for them.""",
    examples=(
        "castore forget --kernel matmul_f32 --dry-run",
        "castore forget --topology 3f9a61c2 --older-than 90d",
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
        "-n", "--dry-run", action="store_true", help="print the refs and change nothing"
    )
    parser.add_argument("--reason", default="forget", help="why, for the log (default: forget)")


def run(args: argparse.Namespace, output: Output) -> int:
    """Plan, and unless that is all, remove."""
    conditions = (args.namespace, args.topology, args.kernel, args.older_than)
    if all(condition is None for condition in conditions):
        reason = "give at least one of --namespace, --topology, --kernel and --older-than"
        raise MalformedError("forget", reason)
    with stores.to_change(args) as store:
        plan = _plan(store, args)
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


def _plan(store: Store, args: argparse.Namespace) -> ForgetPlan:
    topology = None
    if args.topology is not None:
        topology = expand_topology(store.refs(args.namespace), args.topology)
    plan = forget.plan(
        store, namespace=args.namespace, topology=topology, older_than_s=args.older_than
    )
    if args.kernel is None:
        return plan
    matches = kernel_matcher(args.kernel)
    return ForgetPlan(tuple(ref for ref in plan.refs if ref.kernel and matches(ref.kernel)))
