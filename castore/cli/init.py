"""`castore init`: make a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.stores import exists, root
from castore.store.opening import open_store

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output

HELP = Help(
    description="""\
Make a store in a missing or empty folder. A folder that is a store already is
left as it is, and a folder that holds anything else is refused, so this is
always safe. `castore put` and `castore tune` make the store themselves.""",
    examples=("castore init", "castore init /srv/castore"),
    meanings={ExitStatus.NOT_FOUND: "the folder holds something that is not a store"},
    statuses=(ExitStatus.UNUSABLE,),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", help="the folder (default: the one of --store)"
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Make the store."""
    if args.folder is not None:
        args.store = args.folder
    is_new = not exists(root(args))
    with open_store(args.store) as store:
        if output.as_json:
            output.data({"store": str(store.root), "is_new": is_new})
        elif is_new:
            output.line(f"made a store at {store.root}")
        else:
            output.line(f"there is a store at {store.root} already; nothing was changed")
    return ExitStatus.DONE
