"""Progress on stderr: bars on a terminal, plain lines for the tuner elsewhere.

Nothing here touches stdout. Where rich is not installed a terminal gets the plain
lines too.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from castore.cli.text import counted, printable, schedule_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from castore.integrations.rich_progress import Bars
    from castore.tuning.events import Event


@contextlib.contextmanager
def counting(label: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Give a function that is told of work done, or None where nobody would see it."""
    with _bars() as bars:
        yield None if bars is None else _counter(bars, label)


@contextlib.contextmanager
def tuning() -> Iterator[Callable[[Event], None]]:
    """Give a function that is told of a tuner's events."""
    with _bars() as bars:
        yield print_event if bars is None else _event_drawer(bars)


def print_event(event: Event) -> None:
    """Print one line to stderr for an event that is worth one."""
    from castore.tuning.events import (  # noqa: PLC0415 - only where something is tuned
        CandidateRejected,
        Finished,
        RoundBegan,
    )

    match event:
        case RoundBegan():
            text = f"round {event.round}: {counted(event.candidates, 'candidate')}"
        case CandidateRejected():
            failure = event.failure
            schedule = schedule_text(failure.schedule)
            text = f"rejected {schedule}: {failure.stage}: {failure.reason}"
        case Finished():
            text = f"best: {schedule_text(event.winner)}, {time_text(event.median_ns)}"
        case _:
            return
    print(printable(f"{event.kernel}: {text}"), file=sys.stderr, flush=True)


def _counter(bars: Bars, label: str) -> Callable[[int, int | None], None]:
    bars.begin(label, None)
    return bars.reach


def _event_drawer(bars: Bars) -> Callable[[Event], None]:
    from castore.tuning.events import (  # noqa: PLC0415 - only where something is tuned
        CandidateMeasured,
        CandidateRejected,
        RoundBegan,
    )

    done = 0

    def draw(event: Event) -> None:
        nonlocal done
        if isinstance(event, RoundBegan):
            done = 0
            bars.begin(f"{event.kernel} round {event.round}", event.steps)
        elif isinstance(event, CandidateMeasured | CandidateRejected):
            done += 1
            bars.reach(done, None)

    return draw


@contextlib.contextmanager
def _bars() -> Iterator[Bars | None]:
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from castore.integrations.rich_progress import drawn  # noqa: PLC0415 - optional, and heavy
    except ImportError:
        yield None
        return
    with drawn(sys.stderr) as bars:
        yield bars
