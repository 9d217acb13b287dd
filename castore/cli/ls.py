"""`castore ls`: list refs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import naming, stores
from castore.cli.naming import expand_topology, kernel_matcher, near_kernels
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import moment_text, short_id
from castore.errors import RefNotFoundError
from castore.format import layout

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from castore.cli.output import Output
    from castore.format.ref import Ref
    from castore.store.store import Store

HELP = Help(
    description="""\
List refs: which object is the result of which kernel on which topology. Changes
nothing. Damaged refs are left out with a warning; castore fsck tells more.

--kernel takes the whole kernel text, the part before the bracket, or the
wildcards * and ?. Ids are shortened; --json gives all their digits.""",
    examples=("castore ls --namespace tuning", "castore ls --kernel 'matmul*' --json"),
    statuses=(ExitStatus.NOT_FOUND, ExitStatus.UNUSABLE),
    meanings={ExitStatus.DONE: "done, also when no ref matches"},
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--namespace", metavar="NS", help="only this namespace; names for named")
    parser.add_argument("--topology", metavar="ID", help="only this topology (may be abbreviated)")
    parser.add_argument("--kernel", metavar="PATTERN", help="only kernels that match")


def run(args: argparse.Namespace, output: Output) -> int:
    """List the refs."""
    with stores.to_read(args) as store:
        refs = everything = list(_in_namespace(store, args.namespace))
        hint = ""
        if args.topology is not None:
            refs = _of_topology(refs, args.topology)
            hint = "" if refs else "; castore topology --list shows those that the store knows"
        if args.kernel is not None:
            matches = kernel_matcher(args.kernel)
            known = [each for each in refs if each.kernel is not None]
            refs = [each for each in known if matches(each.kernel or "")]
            near = () if refs else near_kernels((each.kernel or "" for each in known), args.kernel)
            hint = f"; did you mean {near[0]}?" if near else hint
        refs.sort(key=lambda ref: (ref.namespace, ref.kernel or ref.key, ref.topology or ""))
        rows = [(each, _changed_ns(store, each)) for each in refs]
    if output.as_json:
        output.data([_document(each, changed_ns) for each, changed_ns in rows])
    else:
        header = ("NAMESPACE", "KERNEL", "TOPOLOGY", "OBJECT", "CHANGED")
        table = [_row(each, changed_ns) for each, changed_ns in rows]
        output.table(header, table, empty=_why_empty(args, is_any=bool(everything), hint=hint))
    return ExitStatus.DONE


def _why_empty(args: argparse.Namespace, *, is_any: bool, hint: str) -> str:
    if is_any:
        return f"no ref matches{hint}"
    if args.namespace is not None:
        return f"the store has no refs in the namespace {args.namespace}"
    return f"the store has no refs yet; to make some: {stores.with_store(args, 'tune --all')}"


def _of_topology(refs: list[Ref], text: str) -> list[Ref]:
    try:
        topology = expand_topology(refs, text)
    except RefNotFoundError:
        return []  # like every other condition that no ref meets
    return [each for each in refs if each.topology == topology]


def _in_namespace(store: Store, namespace: str | None) -> Iterable[Ref]:
    if namespace == layout.NAMES:
        return store.names()
    if namespace is not None:
        return store.refs(namespace)
    return (*store.refs(), *store.names())


def _changed_ns(store: Store, ref: Ref) -> int | None:
    """Return when the ref's file was written; None where an alternate has it."""
    try:
        return store.fs.stat(ref.name.path).mtime_ns
    except FileNotFoundError:
        return None


def _row(ref: Ref, changed_ns: int | None) -> tuple[str, ...]:
    kernel = ref.kernel if ref.kernel is not None else ref.key
    changed = "-" if changed_ns is None else moment_text(changed_ns)
    return (ref.namespace, kernel, short_id(ref.topology), short_id(ref.object), changed)


def _document(ref: Ref, changed_ns: int | None) -> dict[str, object]:
    return {**naming.ref_document(ref.name), "object": ref.object, "changed_ns": changed_ns}
