"""`castore pin`: protect objects from gc, and list what is protected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import short_id
from castore.errors import MalformedError, ObjectNotFoundError
from castore.maintenance import pins

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.value import ObjectId
    from castore.store.store import Store

HELP = Help(
    description="""\
Protect an object, and everything that it links to, from gc until it is unpinned.
Without OBJECT, list what is pinned. Pins belong to this copy of the store and are
not sent to others. Safe beside other processes.

OBJECT is an id, its first digits (4 at least), the name of a named ref, or
NAMESPACE/KERNEL; a kernel alone is looked for in the namespace tuning.""",
    examples=("castore pin 3f9a61c2 --reason 'figure 3'", "castore pin --remove 3f9a61c2"),
    statuses=(ExitStatus.DAMAGE, ExitStatus.UNUSABLE),
    meanings={ExitStatus.NOT_FOUND: "no such object, or it is not pinned"},
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "object", metavar="OBJECT", nargs="?", help="what to pin; without it, pins are listed"
    )
    parser.add_argument(
        "--topology", metavar="ID", help="the topology, where several have the kernel"
    )
    parser.add_argument("--reason", default="", help="why, shown in the list")
    parser.add_argument("--remove", action="store_true", help="unpin it")


def run(args: argparse.Namespace, output: Output) -> int:
    """Pin, unpin or list."""
    if args.object is None:
        if args.remove:
            raise MalformedError("pin", "--remove needs the object to unpin")
        return _list(args, output)
    with stores.to_change(args) as store:
        if args.remove:
            oid = _pinned(store, args)
            pins.unpin(store, oid)
        else:
            oid = naming.find_object(store, args.object, topology=args.topology)
            pins.pin(store, oid, reason=args.reason)
    if output.as_json:
        output.data({"object": oid, "is_pinned": not args.remove})
    else:
        output.line(f"{'unpinned' if args.remove else 'pinned'} {short_id(oid)}")
    return ExitStatus.DONE


def _list(args: argparse.Namespace, output: Output) -> int:
    with stores.to_read(args) as store:
        found = list(pins.pins(store))
    if output.as_json:
        output.data([{"object": pin.oid, "reason": pin.reason} for pin in found])
    else:
        rows = [(short_id(pin.oid), pin.reason) for pin in found]
        output.table(("OBJECT", "REASON"), rows, empty="nothing is pinned")
    return ExitStatus.DONE


def _pinned(store: Store, args: argparse.Namespace) -> ObjectId:
    """Return the pinned object that is meant; it need not be there any more."""
    pinned = [pin.oid for pin in pins.pins(store)]
    fitting = tuple(oid for oid in pinned if oid.startswith(args.object.lower()))
    if len(fitting) == 1 and len(args.object) >= naming.DIGITS_MIN:
        return fitting[0]
    oid = naming.find_object(store, args.object, topology=args.topology)
    if oid not in pinned:
        raise ObjectNotFoundError(oid, ("the pins",))
    return oid
