"""`castore init`: make a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.store.opening import create_store, has_format

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output

HELP = Help(
    description="""\
Make a store in a missing or empty folder. A folder that is a store already is
left as it is, and a folder that holds anything else is refused, so this is
always safe. `castore put` and `castore tune` make the store themselves.

All that is in a store has the owner, the group and the mode of its folder,
whatever the umask of whoever makes it. A new folder gets the mode that the
umask gives; an empty one that is there keeps its own. With --shared=group all
users of the folder's group may read and write, and what others may read is
left as it is. To choose the group, make the folder first.

A store that every user may write, or that belongs to another user and is not
shared with a group of yours, is refused by every command. CASTORE_TRUST lists
the stores to use all the same, separated like PATH; * stands for all. root's own
stores are trusted by everybody, and root uses those of all users on purpose,
unless every user may write them: as root, name only stores that you trust.""",
    examples=(
        "castore init",
        "castore init /srv/castore",
        "install -d -g lab /srv/lab && castore init --shared=group /srv/lab",
    ),
    meanings={ExitStatus.NOT_FOUND: "it is no folder, or it holds something that is not a store"},
    statuses=(ExitStatus.UNUSABLE,),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", help="the folder (default: the one of --store)"
    )
    parser.add_argument(
        "--shared",
        choices=("umask", "group"),
        default="umask",
        help="who may read and write: what the umask says (default), or also the group",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Make the store."""
    if args.folder is not None:
        args.store = args.folder
    with stores.hinting(args) as folder:
        is_new = not has_format(folder)
        create_store(folder, shared=args.shared)
    with stores.to_fill(args) as store:
        if output.as_json:
            output.data({"store": str(store.root), "is_new": is_new})
        elif is_new:
            output.line(f"made a store at {store.root}")
        else:
            output.line(f"there is a store at {store.root} already; nothing was changed")
    return ExitStatus.DONE
