"""`castore tune`: measure the schedules of kernels here, and store the best."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from castore.cli import progress, stores
from castore.cli.builtin import built_in
from castore.cli.devices import add_device, chosen, device_text
from castore.cli.durations import parse_duration
from castore.cli.parser import Help, argument, natural, positive
from castore.cli.status import ExitStatus
from castore.cli.text import counted, ratio_text, schedule_text, short_id, time_text
from castore.errors import CastoreError, MalformedError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from castore.cli.output import Output
    from castore.store.store import Store
    from castore.tuning.events import Event
    from castore.tuning.kernel import Kernel
    from castore.tuning.tuner import TuneResult

_CANDIDATES = 48
_SAMPLES = 3
_FINALISTS = 6
_FINALIST_SAMPLES = 11

HELP = Help(
    description="""\
Measure the schedules of kernels on this machine, each checked against an oracle,
and store the best with the evidence. A kernel whose stored result still applies
is not measured again (--force does), so a second run ends at once; it says so
where the budget given asks for more effort than that result had. Candidates run
in a process of their own under a time limit: one that hangs or crashes is
rejected, and the search goes on. Afterwards a table compares each winner with the
default schedule and with the slowest that the oracle accepted.

Both ratios compare medians of the first round, in which all were measured.

Other work on the machine makes timings worse, and a result tuned then is stored
all the same: tune on a quiet machine. A result that is replaced stays in the log
of its ref; castore restore brings it back. Kernels that were done when Ctrl-C
is typed keep their results.""",
    examples=("castore tune --all", "castore tune matmul_f32 --device numpy --force"),
    meanings={
        ExitStatus.NOT_FOUND: "there is no such kernel",
        ExitStatus.NOTHING_ACCEPTABLE: "a kernel had no acceptable candidate; others were stored",
        ExitStatus.INCOMPLETE: "there is no such device here, or numpy is not installed",
    },
    statuses=(ExitStatus.LOCKED, ExitStatus.CONFLICT, ExitStatus.UNUSABLE),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("kernels", metavar="KERNEL", nargs="*", help="the id of a kernel")
    parser.add_argument("--all", action="store_true", help="all built-in kernels")
    add_device(parser)
    parser.add_argument(
        "--force", action="store_true", help="measure even what has a result that applies"
    )
    budget = parser.add_argument_group("budget")
    for option, default, what in (
        ("candidates", _CANDIDATES, "the most candidates to try"),
        ("samples", _SAMPLES, "samples of each candidate"),
        ("finalists", _FINALISTS, "candidates that are measured again"),
        ("finalist-samples", _FINALIST_SAMPLES, "samples of each finalist"),
    ):
        # No default here: whether one was given decides what is said of a stored result.
        budget.add_argument(
            f"--{option}",
            metavar="N",
            type=argument(positive),
            help=f"{what} (default: {default})",
        )
    budget.add_argument(
        "--seed",
        metavar="N",
        type=argument(natural),
        default=0,
        help="what the inputs are made from (default: 0)",
    )
    budget.add_argument(
        "--time-limit",
        metavar="TIME",
        type=argument(parse_duration),
        default=20,
        help="how long one sample of a candidate may take, such as 20s (default: 20s)",
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Tune the kernels one after the other, and print what is stored for them now."""
    kernels = _chosen_kernels(args)
    results: list[TuneResult] = []
    failures: list[CastoreError] = []
    with stores.to_fill(args) as store:
        device, topology = chosen(args.device, output)
        output.note(f"castore: device {device_text(device, topology)}")
        with _told_what_is_kept(results, output), progress.tuning() as tell:
            for kernel in kernels:
                try:
                    results.append(_tuned(store, kernel, device, args, tell))
                except CastoreError as error:
                    failures.append(error)
    for failure in failures:
        output.note(f"castore: {failure}")
    for result in results:
        less = ", ".join(_less_effort(result, args)) if result.was_stored else ""
        if less:
            output.note(
                f"castore: {result.kernel}: measured with less effort than asked for ({less}); "
                "--force measures again"
            )
    if output.as_json:
        output.data([_document(result) for result in results])
    elif results:
        _print_results(output, results)
    return failures[0].exit_status if failures else ExitStatus.DONE


def _chosen_kernels(args: argparse.Namespace) -> Sequence[Kernel]:
    from castore.tuning import kernels  # noqa: PLC0415 - other commands need no tuner

    if args.all == bool(args.kernels):
        known = ", ".join(kernel.id for kernel in kernels.BUILT_IN)
        give = "give the ids of kernels, or --all"
        give += ", not both" if args.all else ""
        raise MalformedError("KERNEL", f"{give}; known are {known}")
    if args.all:
        return kernels.BUILT_IN
    return list({kernel.id: kernel for kernel in map(built_in, args.kernels)}.values())


@contextlib.contextmanager
def _told_what_is_kept(results: Sequence[TuneResult], output: Output) -> Iterator[None]:
    """Say what is stored already where the rest is not tuned, by Ctrl-C or a full disk, say."""
    try:
        yield
    except (KeyboardInterrupt, OSError):
        kept = ", ".join(result.kernel for result in results if not result.was_stored)
        output.note(f"castore: stopped; {f'kept: {kept}' if kept else 'nothing new was stored'}")
        raise


def _tuned(
    store: Store,
    kernel: Kernel,
    device: str,
    args: argparse.Namespace,
    tell: Callable[[Event], None],
) -> TuneResult:
    from castore.tuning.tuner import tune  # noqa: PLC0415 - as above

    return tune(
        store,
        kernel,
        device=device,
        force=args.force,
        candidates_max=args.candidates or _CANDIDATES,
        samples=args.samples or _SAMPLES,
        finalists=args.finalists or _FINALISTS,
        finalist_samples=args.finalist_samples or _FINALIST_SAMPLES,
        seed=args.seed,
        time_limit_s=args.time_limit,
        progress=tell,
    )


def _less_effort(result: TuneResult, args: argparse.Namespace) -> Iterator[str]:
    """Yield in what a stored result was measured with less effort than the options ask for."""
    effort, tried = result.manifest.effort, result.manifest.evaluated
    accepted = tried - result.manifest.failed
    counts = (
        # More cannot be tried, or measured again, than there are.
        ("candidates", effort.candidates_max, args.candidates, tried >= effort.candidates_max),
        ("samples", effort.samples, args.samples, True),
        ("finalists", effort.finalists, args.finalists, accepted > effort.finalists),
        ("finalist samples", effort.finalist_samples, args.finalist_samples, True),
    )
    for name, had, asked, is_short in counts:
        if asked is not None and had < asked and is_short:
            yield f"{name} {had:,}, not {asked:,}"


def _print_results(output: Output, results: Sequence[TuneResult]) -> None:
    measured = sum(not result.was_stored for result in results)
    if not measured:
        output.line("nothing was tuned: every result is stored already and applies")
    header = ("KERNEL", "DEVICE", "WINNER", "MEDIAN", "VS DEFAULT", "VS WORST", "OBJECT", "")
    output.table(header, [_row(result) for result in results], empty="nothing was tuned")
    if measured:
        stored = len(results) - measured
        rest = f"; {counted(stored, 'result')} stored already" if stored else ""
        output.line(f"tuned {counted(measured, 'kernel')}{rest}")


def _row(result: TuneResult) -> tuple[str, ...]:
    return (
        result.kernel,
        result.device,
        schedule_text(result.schedule),
        time_text(result.median_ns),
        ratio_text(result.speed_against_default),
        ratio_text(result.speed_against_slowest),
        short_id(result.object),
        "stored" if result.was_stored else "measured",
    )


def _document(result: TuneResult) -> dict[str, object]:
    return {
        "kernel": result.kernel,
        "device": result.device,
        "schedule": dict(result.schedule),
        "median_ns": result.median_ns,
        "p95_ns": result.p95_ns,
        "speed_against_default": result.speed_against_default,
        "speed_against_slowest": result.speed_against_slowest,
        "evaluated": result.manifest.evaluated,
        "failed": result.manifest.failed,
        "object": result.object,
        "topology": result.topology,
        "was_stored": result.was_stored,
    }
