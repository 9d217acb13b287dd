"""Progress bars on a terminal, drawn by rich.

One bar at a time: a new one takes the place of the last. Labels are shown as they
are, never read as markup.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Bars:
    """The bar that is on the screen.

    Args:
        progress: What draws.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, label: str, total: int | None) -> None:
        """Start a bar in place of the one before; without a total it shows that work goes on."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(label, total=total)

    def reach(self, done: int, total: int | None) -> None:
        """Move the bar to `done`; a total replaces the one it had."""
        if self._task is not None and total is not None:
            self._progress.update(self._task, completed=done, total=total)
        elif self._task is not None:
            self._progress.update(self._task, completed=done)


@contextlib.contextmanager
def drawn(stream: TextIO) -> Iterator[Bars]:
    """Draw on a stream while the body runs, then leave the screen as it was."""
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=stream, markup=False),
        transient=True,
    )
    with progress:
        yield Bars(progress)
