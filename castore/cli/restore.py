"""`castore restore`: let a ref name again what it named before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import short_id
from castore.maintenance.restore import restore

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output

HELP = Help(
    description="""\
Let a ref name again what its newest change replaced or removed, or the object that
--to names, which must stand in its log. That is a change like any other: it is
logged and can be undone by another restore. Safe beside other processes.

REF is NAMESPACE/KERNEL, names/NAME or by-key-NAMESPACE/KEY; a kernel alone is
looked for in the namespace tuning. Refs that were removed are found by their log.""",
    examples=("castore restore matmul_f32", "castore restore tuning/affine_f32 --to 3f9a61c2"),
    statuses=(ExitStatus.DAMAGE, ExitStatus.LOCKED, ExitStatus.CONFLICT, ExitStatus.UNUSABLE),
    meanings={ExitStatus.NOT_FOUND: "no such ref, no such entry, or gc has removed the object"},
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    naming.add_ref(parser)
    parser.add_argument("--to", metavar="ID", help="an object of the log (may be abbreviated)")


def run(args: argparse.Namespace, output: Output) -> int:
    """Restore the ref."""
    with stores.to_change(args) as store:
        name = naming.find_ref_name(store, args.ref, topology=args.topology)
        to = None if args.to is None else naming.expand_id(store, args.to)
        ref = restore(store, name, to=to)
    if output.as_json:
        output.data({**naming.ref_document(name), "object": ref.object})
    else:
        output.line(f"{naming.ref_text(name)} names {short_id(ref.object)} again")
    return ExitStatus.DONE
