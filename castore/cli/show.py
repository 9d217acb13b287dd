"""`castore show`: explain an object to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.presentation import explained, hardware
from castore.cli.status import ExitStatus
from castore.cli.tagged import tagged
from castore.errors import CorruptObjectError, MalformedError, ObjectNotFoundError
from castore.refs import log

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.value import ObjectId, Value
    from castore.store.store import Store

HELP = Help(
    description="""\
Explain an object: of a tuning result the winner with its timing, the tie set, the
failures, what it applies to and the hardware; other kinds as a tree. Changes
nothing.

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
        measured_on = _topologies(store, oid) if _is_measured(value) else []
    if output.as_json:
        topologies = [topology for topology, _ in measured_on]
        output.data({"object": oid, "topologies": topologies, "value": tagged(value)})
    else:
        output.line(f"object {oid}")
        output.lines(explained(value))
        for topology, manifest in measured_on:
            output.lines(hardware(topology, manifest))
    return ExitStatus.DONE


def _is_measured(value: Value) -> bool:
    return isinstance(value, dict) and value.get("kind") in ("tuning", "certification")


def _topologies(store: Store, oid: ObjectId) -> list[tuple[ObjectId, Value]]:
    """Return each topology for which a ref names this object, or did so, with its manifest.

    A result does not say on what it was measured: the ref does.
    """
    found = {ref.topology for ref in store.refs() if ref.object == oid}
    found |= found or {
        entry.name.topology
        for namespace, path in log.log_files(store.fs)
        for entry in log.read_log(store.fs, namespace, path)
        if not isinstance(entry, MalformedError) and oid in (entry.old, entry.new)
    }
    return [(each, _manifest(store, each)) for each in sorted(filter(None, found))]


def _manifest(store: Store, topology: ObjectId) -> Value:
    try:
        return store.get(topology)
    except (ObjectNotFoundError, CorruptObjectError):
        return None
