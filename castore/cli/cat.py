"""`castore cat`: print an object as JSON, or as the bytes that its id was made from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.tagged import to_json

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output

HELP = Help(
    description="""\
Print an object as JSON, whole and unambiguous: castore put takes it and gives the
same id. {"$link": ID} is a link, {"$weak": ID} a weak link, {"$bytes": BASE64}
bytes, {"$float": "nan"} NaN, {"$int": TEXT} an integer beyond 2^53; a real map
whose only key begins with $ has one more $. 1 is an integer and 1.0 a float.
Changes nothing.

OBJECT is an id, its first digits (4 at least), the name of a named ref, or
NAMESPACE/KERNEL; a kernel alone is looked for in the namespace tuning.""",
    examples=(
        "castore cat 3f9a61c2",
        "castore cat 'certification/matmul_f32[k=512,m=512,n=512]'",
    ),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.DAMAGE, ExitStatus.UNUSABLE),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    naming.add_object(parser)
    parser.add_argument(
        "--format",
        choices=("json", "msgpack"),
        default="json",
        help="what to print; msgpack gives the canonical bytes (default: json)",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the object."""
    with stores.to_read(args) as store:
        value = store.get(naming.find_object(store, args.object, topology=args.topology))
    if args.format == "msgpack":
        from castore.format.canonical import encode  # noqa: PLC0415 - only this format needs it

        sys.stdout.buffer.write(encode(value))
    else:
        output.lines(to_json(value).split("\n"))
    return ExitStatus.DONE
