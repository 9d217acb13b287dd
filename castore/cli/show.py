"""`castore show`: explain an object to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.presentation import explained
from castore.cli.status import ExitStatus
from castore.cli.tagged import tagged

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output

HELP = Help(
    description="""\
Explain an object: of a tuning result the winner with its timing, the tie set, the
failures and what it applies to; other kinds as a tree. Changes nothing.

OBJECT is an id, its first digits (4 at least), the name of a named ref, or
NAMESPACE/KERNEL; a kernel alone is looked for in the namespace tuning. A kernel
may be given without its problem, the part in brackets.""",
    examples=("castore show matmul_f32", "castore show 3f9a61c2"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.DAMAGE, ExitStatus.UNUSABLE),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    naming.add_object(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    """Explain the object."""
    with stores.to_read(args) as store:
        oid = naming.find_object(store, args.object, topology=args.topology)
        value = store.get(oid)
    if output.as_json:
        output.data({"object": oid, "value": tagged(value)})
    else:
        output.line(f"object {oid}")
        output.lines(explained(value))
    return ExitStatus.DONE
