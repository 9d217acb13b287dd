"""`castore why`: tell whether a stored result applies here, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli import stores
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
not, tell which fields differ: the source, the problem, the tolerance, the schedule
space, the measuring policy, or the topology. Lists the other topologies for which
the store has a result of this kernel. Measures nothing and changes nothing.""",
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
    parser.add_argument("--device", choices=("auto", "wgpu", "numpy"), default="auto")
    parser.add_argument(
        "--accept",
        choices=("exact", "other-driver"),
        default="exact",
        help="other-driver takes a result from the same silicon too (default: exact)",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Look for the result, and explain the answer."""
    from castore.format.canonical import encode, object_id  # noqa: PLC0415 - quick start
    from castore.tuning import kernels  # noqa: PLC0415 - other commands need no tuner
    from castore.tuning.finder import Found, find  # noqa: PLC0415 - as above
    from castore.tuning.machine import topology  # noqa: PLC0415 - as above

    kernel = kernels.by_id(args.kernel)
    with stores.to_read(args) as store:
        here = topology(args.device)
        here_id = object_id(encode(here))
        answer = find(store, kernel, topology=here, accept=args.accept)
        others = _elsewhere(store, kernel, here_id)
    if output.as_json:
        output.data(_document(kernel, here_id, answer, others))
    else:
        output.lines(_told(here_id, answer))
        _print_others(output, others)
    return ExitStatus.DONE if isinstance(answer, Found) else ExitStatus.NOT_FOUND


def _elsewhere(store: Store, kernel: Kernel, here: ObjectId) -> list[Ref]:
    """Return the refs for this kernel, whatever its problem, on other topologies."""
    found = []
    for known in store.refs("tuning"):
        is_same = known.kernel is not None and known.kernel.partition("[")[0] == kernel.id
        if is_same and (known.topology != here or known.kernel != kernel.text):
            found.append(known)
    return found


def _told(here: ObjectId, answer: Found | Missing) -> list[str]:
    from castore.tuning.finder import Missing  # noqa: PLC0415 - as above

    lines = [answer.reason, f"this machine's topology is {short_id(here)}"]
    if isinstance(answer, Missing):
        return [*lines, *(f"differs: {name}" for name in answer.fields)]
    winner = answer.manifest.winner
    schedule, median = schedule_text(winner.schedule), time_text(winner.timing.median_ns)
    return [*lines, f"object {short_id(answer.object)}: {schedule}, median {median}"]


def _print_others(output: Output, others: list[Ref]) -> None:
    if others:
        output.line("also stored:")
        rows = [
            (known.kernel or "", short_id(known.topology), short_id(known.object))
            for known in others
        ]
        output.table(("KERNEL", "TOPOLOGY", "OBJECT"), rows)


def _document(
    kernel: Kernel, here: ObjectId, answer: Found | Missing, others: list[Ref]
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
        "found": found,
        "others": [
            {"kernel": known.kernel, "topology": known.topology, "object": known.object}
            for known in others
        ],
    }
