"""What a run of the tuner tells while it works, for a progress bar or a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from castore.tuning.records import Failure
    from castore.tuning.space import Schedule


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """A round begins.

    Attributes:
        kernel: The kernel text.
        round: 1 or 2.
        candidates: How many take part.
        steps: Groups of samples that the round takes at the most.
    """

    kernel: str
    round: int
    candidates: int
    steps: int


@dataclass(frozen=True, slots=True)
class CandidateMeasured:
    """One group of samples of one candidate was taken.

    Attributes:
        kernel: The kernel text.
        round: 1 or 2.
        schedule: The candidate.
        sample_ns: The group's first good sample, per dispatch; None when none was good.
    """

    kernel: str
    round: int
    schedule: Schedule
    sample_ns: int | None


@dataclass(frozen=True, slots=True)
class CandidateRejected:
    """A candidate is out.

    Attributes:
        kernel: The kernel text.
        round: 1 or 2.
        failure: The candidate and why.
    """

    kernel: str
    round: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over and a winner is known, though not stored yet.

    Attributes:
        kernel: The kernel text.
        winner: Its schedule.
        median_ns: Its median per dispatch.
    """

    kernel: str
    winner: Schedule
    median_ns: int


Event: TypeAlias = RoundBegan | CandidateMeasured | CandidateRejected | Finished
