"""`castore topology`: describe this machine, or list those that the store knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import stores
from castore.cli.devices import add_device, chosen, device_text, first_text, part
from castore.cli.parser import Help
from castore.cli.presentation import tree
from castore.cli.status import ExitStatus
from castore.cli.tagged import tagged
from castore.cli.text import short_id

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from castore.cli.output import Output
    from castore.format.value import ObjectId, Value
    from castore.store.store import Store

HELP = Help(
    description="""\
Describe this machine as results are stored for it: the silicon, the software, and
the id that both give. With --list, list the topologies that the store knows.
Changes nothing; without --list it needs no store.""",
    examples=("castore topology --device numpy", "castore topology --list"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
    meanings={ExitStatus.INCOMPLETE: "there is no such device here"},
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_device(parser)
    parser.add_argument(
        "--list", dest="known", action="store_true", help="list those that the store knows"
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Print one topology, or all that are known."""
    return _list(args, output) if args.known else _describe(args, output)


def _describe(args: argparse.Namespace, output: Output) -> int:
    from castore.format.canonical import encode, object_id  # noqa: PLC0415 - quick start

    device, manifest = chosen(args.device, output)
    oid = object_id(encode(manifest))
    if output.as_json:
        output.data({"topology": oid, "manifest": tagged(manifest)})
    else:
        output.line(f"topology {oid}")
        output.line(f"device {device_text(device, manifest)}")
        output.lines(tree({part: manifest[part] for part in ("silicon", "software")}))
    return ExitStatus.DONE


def _list(args: argparse.Namespace, output: Output) -> int:
    with stores.to_read(args) as store:
        known = list(_known(store))
    if output.as_json:
        output.data([{"topology": oid, "manifest": tagged(value)} for oid, value in known])
    else:
        header = ("TOPOLOGY", "SILICON", "BACKEND", "DRIVER")
        rows = [_row(oid, value) for oid, value in known]
        output.table(header, rows, empty="the store knows no topology yet")
    return ExitStatus.DONE


def _known(store: Store) -> Iterator[tuple[ObjectId, Value]]:
    for ref in store.refs("topology"):
        yield ref.object, store.lookup("topology", ref.topology, ref.kernel)


def _row(oid: ObjectId, value: Value) -> tuple[str, ...]:
    silicon, software = part(value, "silicon"), part(value, "software")
    name = first_text(silicon, "device", "cpu_model")
    driver = first_text(software, "driver_version", "driver")
    return (short_id(oid), name or "-", first_text(software, "backend") or "-", driver or "-")
