"""`castore restore`: let a ref name again what it named before."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import short_id
from castore.maintenance.restore import restore
from castore.refs import log

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.ref import RefName
    from castore.store.store import Store

_COMPANIONS = {"tuning": "certification", "certification": "tuning"}

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
        companion = _removed_companion(store, name)
    if output.as_json:
        output.data({**naming.ref_document(name), "object": ref.object})
    else:
        output.line(f"{naming.ref_text(name)} names {short_id(ref.object)} again")
    if companion is not None:
        again = f"restore {shlex.quote(f'{companion.namespace}/{companion.kernel}')}"
        command = stores.with_store(args, f"{again} --topology {short_id(companion.topology)}")
        output.note(f"castore: {companion.namespace} was removed too; to restore it: {command}")
    return ExitStatus.DONE


def _removed_companion(store: Store, name: RefName) -> RefName | None:
    """Return the other ref that tuning makes for a kernel, if it was removed."""
    namespace = _COMPANIONS.get(name.namespace)
    if namespace is None or name.topology is None:
        return None
    companion = replace(name, namespace=namespace)
    newest = next(iter(log.entries(store.fs, companion)), None)
    return companion if newest is not None and newest.new is None else None
