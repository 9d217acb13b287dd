"""Timing two ways of doing the same work in turns, and what comes of it.

Whatever else the machine does hits both sides alike when they take turns of some
milliseconds, so a round's ratio stays sound where its times do not. The side that
goes first changes from round to round, and the first round only warms up.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much a bench does.

    Attributes:
        folder: Where it may write; fresh, and removed afterwards.
        quick: Whether to only show that it works: few operations, figures without meaning.
        count: How many objects the large stores hold; None for as many as the limits are for.
    """

    folder: str
    quick: bool
    count: int | None = None

    def sized(self, full: int, quick: int) -> int:
        """Return one of two counts."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Row:
    """One operation's figures.

    Attributes:
        operation: What was done.
        castore_us: Median time of one operation, in microseconds.
        floor_us: That of the floor; None where there is nothing to compare with.
        ratio: Median of the rounds' ratios.
        ratio_low: Their lower quartile.
        ratio_high: Their upper quartile.
        limit: The most that `ratio` may be; None where none is set.
        limit_us: The most that `castore_us` may be; None where none is set.
        rounds: How many rounds counted.
        operations: How many operations each of them had, on each side.
    """

    operation: str
    castore_us: float
    floor_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    limit: float | None = None
    limit_us: float | None = None
    rounds: int = 1
    operations: int = 1

    @property
    def holds(self) -> bool | None:
        """Whether the limit is kept; None where there is none."""
        if self.limit is not None and self.ratio is not None:
            return self.ratio <= self.limit
        return self.castore_us <= self.limit_us if self.limit_us is not None else None


@dataclass(frozen=True, slots=True)
class Result:
    """What a bench found.

    Attributes:
        rows: Its figures.
        notes: What a reader must know to judge them.
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


class Bench(Protocol):
    """A bench: a module's `run`, with the promise in the module's docstring."""

    def __call__(self, plan: Plan) -> Result:
        """Run it."""


def in_turns(
    chunks: Sequence[Sequence[Item]],
    castore: Callable[[Sequence[Item]], object],
    floor: Callable[[Sequence[Item]], object],
    *,
    between: Callable[[Sequence[Item]], object] | None = None,
) -> list[tuple[int, int]]:
    """Return each round's (castore, floor) times in nanoseconds, the first round left out.

    Args:
        chunks: What each round works on, both sides the same.
        castore: Does one round's operations; what it returns is dropped after timing.
        floor: Does the same bare.
        between: Runs untimed after each round.
    """
    sides = (castore, floor)
    rounds: list[tuple[int, int]] = []
    gc.collect()
    gc.freeze()  # the data stays for the whole bench: collections need not walk it
    try:
        for number, chunk in enumerate(chunks):
            spent_ns = [0, 0]
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                spent_ns[side] = _timed(sides[side], chunk)
            rounds.append((spent_ns[0], spent_ns[1]))
            if between is not None:
                between(chunk)
    finally:
        gc.unfreeze()
    return rounds[1:]


def compare(
    operation: str,
    rounds: Sequence[tuple[int, int]],
    *,
    operations: int,
    limit: float | None = None,
) -> Row:
    """Return the row for the rounds' times in nanoseconds, of `operations` operations each."""
    ratios = sorted(castore / floor for castore, floor in rounds)
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Row(
        operation,
        castore_us=median(castore for castore, _ in rounds) / operations / 1e3,
        floor_us=median(floor for _, floor in rounds) / operations / 1e3,
        ratio=median(ratios),
        ratio_low=low,
        ratio_high=high,
        limit=limit,
        rounds=len(rounds),
        operations=operations,
    )


def chunked(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Return the items in pieces of exactly `size`; a shorter rest is left out."""
    return [items[start : start + size] for start in range(0, len(items) - size + 1, size)]


def _timed(work: Callable[[Sequence[Item]], object], chunk: Sequence[Item]) -> int:
    start_ns = time.perf_counter_ns()
    kept = work(chunk)
    spent_ns = time.perf_counter_ns() - start_ns
    del kept
    return spent_ns
