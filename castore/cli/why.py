"""`castore why`: tell whether a stored result applies here, and if not, why."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from castore.cli import stores
from castore.cli.builtin import built_in
from castore.cli.devices import add_device, chosen, device_text
from castore.cli.differences import Difference, differences
from castore.cli.naming import kernel_matcher
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.text import schedule_text, short_id, time_text

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.ref import Ref
    from castore.format.value import ObjectId
    from castore.store.store import Store
    from castore.tuning.finder import Found, Missing
    from castore.tuning.kernel import Kernel

HELP = Help(
    description="""\
Tell whether the store has a result for a kernel that applies on this machine. If
not, tell which fields differ, with both values: the source, the problem, the
tolerance, the schedule space, the measuring policy, or the topology; and what to do
next. Lists the other topologies for which the store has a result of this kernel.
Measures nothing and changes nothing.""",
    examples=("castore why matmul_f32", "castore why affine_f32 --accept other-driver"),
    statuses=(ExitStatus.UNUSABLE,),
    meanings={
        ExitStatus.DONE: "there is a result that applies",
        ExitStatus.NOT_FOUND: "there is none, or no such kernel or store",
        ExitStatus.INCOMPLETE: "there is no such device here",
    },
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("kernel", metavar="KERNEL", help="the id of a built-in kernel")
    add_device(parser)
    parser.add_argument(
        "--accept",
        choices=("exact", "other-driver"),
        default="exact",
        help="other-driver takes a result from the same silicon too (default: exact)",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Look for the result, and explain the answer."""
    from castore.format.canonical import encode, object_id  # noqa: PLC0415 - quick start
    from castore.tuning.finder import Found, find  # noqa: PLC0415 - as above

    with stores.to_read(args) as store:
        kernel = _asked_for(store, args.kernel)
        device, here = chosen(args.device, output)
        here_id = object_id(encode(here))
        answer = find(store, kernel, topology=here, accept=args.accept)
        differing: list[Difference] = []
        if not isinstance(answer, Found):
            differing = differences(store, kernel, here, here_id, answer.fields)
        others = _elsewhere(store, kernel, here_id)
    if output.as_json:
        output.data(_document(kernel, here_id, answer, differing, others))
        return ExitStatus.DONE if isinstance(answer, Found) else ExitStatus.NOT_FOUND
    output.line(answer.reason)
    output.line(f"here: {device_text(device, here)}; topology {short_id(here_id)}")
    if isinstance(answer, Found):
        winner = answer.manifest.winner
        schedule, median = schedule_text(winner.schedule), time_text(winner.timing.median_ns)
        output.line(f"object {short_id(answer.object)}: {schedule}, median {median}")
    else:
        output.lines(f"differs: {found}" for found in differing or answer.fields)
        output.line(f"next: {_next_step(args, kernel, answer)}")
    _print_others(output, others)
    return ExitStatus.DONE if isinstance(answer, Found) else ExitStatus.NOT_FOUND


def _asked_for(store: Store, text: str) -> Kernel:
    """Return the built-in kernel that is meant.

    Raises:
        UnknownKernelError: There is none; a note tells whether the store has results for it.
    """
    from castore.tuning.errors import UnknownKernelError  # noqa: PLC0415 - as above

    try:
        return built_in(text)
    except UnknownKernelError as error:
        matches = kernel_matcher(text)
        if any(matches(known.kernel or "") for known in store.refs("tuning")):
            error.add_note(
                "the store has results for it, but only the code that defines it can tell whether "
                f"they apply; see: castore ls --kernel {shlex.quote(text)}"
            )
        raise


def _next_step(args: argparse.Namespace, kernel: Kernel, answer: Missing) -> str:
    device = "" if args.device == "auto" else f" --device {args.device}"
    tune = stores.with_store(args, f"tune {kernel.id}{device}")
    is_software = all(name.startswith("topology.software.") for name in answer.fields)
    if args.accept == "exact" and answer.fields and is_software:
        accept = stores.with_store(args, f"why {kernel.id}{device} --accept other-driver")
        return f"{tune} measures here; {accept} looks at the result from the same silicon"
    return tune


def _elsewhere(store: Store, kernel: Kernel, here: ObjectId) -> list[Ref]:
    """Return the refs for this kernel, whatever its problem, on other topologies."""
    found = []
    for known in store.refs("tuning"):
        is_same = known.kernel is not None and known.kernel.partition("[")[0] == kernel.id
        if is_same and (known.topology != here or known.kernel != kernel.text):
            found.append(known)
    return found


def _print_others(output: Output, others: list[Ref]) -> None:
    if others:
        output.line("also stored:")
        rows = [
            (known.kernel or "", short_id(known.topology), short_id(known.object))
            for known in others
        ]
        output.table(("KERNEL", "TOPOLOGY", "OBJECT"), rows, empty="nothing")


def _document(
    kernel: Kernel,
    here: ObjectId,
    answer: Found | Missing,
    differing: list[Difference],
    others: list[Ref],
) -> dict[str, object]:
    from castore.tuning.finder import Found  # noqa: PLC0415 - as above

    found: dict[str, object] | None = None
    if isinstance(answer, Found):
        found = {
            "object": answer.object,
            "topology": answer.topology,
            "is_exact": answer.is_exact,
            "schedule": dict(answer.schedule),
        }
    return {
        "kernel": kernel.text,
        "topology": here,
        "reason": answer.reason,
        "fields": list(answer.fields),
        "differences": [asdict(found) for found in differing],
        "found": found,
        "others": [
            {"kernel": known.kernel, "topology": known.topology, "object": known.object}
            for known in others
        ],
    }
