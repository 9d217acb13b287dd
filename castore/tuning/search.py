"""The search: two rounds over candidates, and the rules that choose the winner.

The first round takes a few samples of every candidate, the second more of the
finalists. Both go round by round, one sample of each candidate at a time, so that a
machine which slows down half-way slows all of them. A candidate that fails once,
in either round, is out: being right most of the time is being wrong.

The winner has the least median; equal medians are decided by p95, then by
schedule. The tie set holds the finalists whose median is no greater than the
winner's upper quartile: measured again, any of them may come out first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from castore.tuning.errors import NothingAcceptableError
from castore.tuning.events import CandidateMeasured, CandidateRejected, Event, RoundBegan
from castore.tuning.evidence import Trial
from castore.tuning.records import CandidateResult, Failure
from castore.tuning.space import schedule_order
from castore.tuning.statistics import COMPLETION_CLOCK, TimingSummary, good_samples, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from castore.tuning.device import Trials
    from castore.tuning.program import Program
    from castore.tuning.records import ComparisonReport, Effort, MeasuringPolicy
    from castore.tuning.space import Schedule


_PROBES = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule with its program.

    Attributes:
        schedule: The schedule.
        program: What the device runs.
    """

    schedule: Schedule
    program: Program


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found.

    Attributes:
        winner: The best candidate, timed in the second round.
        tie_set: Schedules that cannot be told from the winner, itself first.
        finalists: All that finished the second round, best first.
        first: All that finished the first round, best first, timed in it.
        trials: Every acceptable candidate with its samples.
        failures: Every candidate that failed.
        timing_source: The clock.
        dispatches: Dispatches in a sample.
    """

    winner: CandidateResult
    tie_set: tuple[Schedule, ...]
    finalists: tuple[CandidateResult, ...]
    first: tuple[CandidateResult, ...]
    trials: tuple[Trial, ...]
    failures: tuple[Failure, ...]
    timing_source: str
    dispatches: int


@dataclass(slots=True)
class _Log:
    """What has been measured of one candidate so far."""

    candidate: Candidate
    first_ns: list[int] = field(default_factory=list)
    second_ns: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=lambda: [0, 0])
    report: ComparisonReport | None = None
    failure: Failure | None = None


class Search:
    """One search over the candidates of a kernel on a device."""

    def __init__(
        self,
        kernel: str,
        trials: Trials,
        *,
        policy: MeasuringPolicy,
        effort: Effort,
        progress: Callable[[Event], None],
    ) -> None:
        """Prepare a search.

        Args:
            kernel: The kernel text, for events and errors.
            trials: Where candidates are measured.
            policy: How a sample is taken.
            effort: How many samples and finalists.
            progress: Is told of every step.
        """
        self._kernel = kernel
        self._trials = trials
        self._policy = policy
        self._effort = effort
        self._progress = progress
        self._source = COMPLETION_CLOCK
        self._dispatches = 1

    def run(self, candidates: Sequence[Candidate], default: Schedule) -> Outcome:
        """Measure the candidates and choose.

        Args:
            candidates: What to try; when the default schedule is among them, it is measured
                in the second round too, to be compared with the winner.
            default: The default schedule.

        Raises:
            NothingAcceptableError: Every candidate failed.
        """
        logs = [_Log(candidate) for candidate in candidates]
        self._begin(1, logs, self._effort.samples)
        self._dispatches = self._enough_dispatches(logs, default)
        self._round(1, logs, self._effort.samples)
        finalists: list[CandidateResult] = []
        while not finalists:
            first = self._ranked(logs, 1)
            if not first:
                raise NothingAcceptableError(self._kernel, len(logs), _reasons(logs))
            # Each turn of the loop that ends without a winner has put its finalists out.
            chosen = _finalists(logs, first, self._effort.finalists, default)
            self._begin(2, chosen, self._effort.finalist_samples)
            self._round(2, chosen, self._effort.finalist_samples)
            finalists = self._ranked(chosen, 2)
        return Outcome(
            winner=finalists[0],
            tie_set=tie_set(finalists),
            finalists=tuple(finalists),
            first=tuple(self._ranked(logs, 1)),
            trials=tuple(_trial(log) for log in logs if log.failure is None),
            failures=tuple(log.failure for log in logs if log.failure is not None),
            timing_source=self._source,
            dispatches=self._dispatches,
        )

    def _enough_dispatches(self, logs: Sequence[_Log], default: Schedule) -> int:
        # Decided once, on the default schedule: timings with other counts are not comparable.
        for log in logs:
            if log.candidate.schedule != default:
                continue
            good: list[int] = []
            # One at a time: the time limit is for one sample, and a failure counts.
            for _ in range(_PROBES):
                seen = self._trials.measure(
                    log.candidate.schedule, log.candidate.program, samples=1, dispatches=1
                )
                if isinstance(seen, Failure):
                    self._reject(1, log, seen.stage, seen.reason)
                    return 1
                good += good_samples(seen.raw_samples)[0]
            if good:
                wanted = -(-self._policy.sample_floor_ns // sorted(good)[len(good) // 2])
                return min(max(wanted, 1), self._policy.dispatches_max)
        return 1

    def _begin(self, number: int, logs: Sequence[_Log], samples: int) -> None:
        self._progress(RoundBegan(self._kernel, number, len(logs), len(logs) * samples))

    def _round(self, number: int, logs: Sequence[_Log], samples: int) -> None:
        for _ in range(samples):
            for at, log in enumerate(logs):
                if log.failure is None:
                    self._sample(number, log)
                if at == 1 and number == 1 and _is_hopeless(logs[:2]):
                    raise NothingAcceptableError(self._kernel, 2, _reasons(logs[:1]))
        for log in logs:
            if log.failure is None and not _samples_of(log, number):
                self._reject(number, log, "timing", "no sample was a possible time")

    def _sample(self, number: int, log: _Log) -> None:
        candidate = log.candidate
        seen = self._trials.measure(
            candidate.schedule, candidate.program, samples=1, dispatches=self._dispatches
        )
        if isinstance(seen, Failure):
            self._reject(number, log, seen.stage, seen.reason)
            return
        good, rejected_count = good_samples(seen.raw_samples)
        _samples_of(log, number).extend(good)
        log.rejected[number - 1] += rejected_count
        log.report = _worse(log.report, seen.report)
        self._source = seen.source
        sample_ns = good[0] // self._dispatches if good else None
        self._progress(CandidateMeasured(self._kernel, number, candidate.schedule, sample_ns))

    def _reject(self, number: int, log: _Log, stage: str, reason: str) -> None:
        log.failure = Failure(log.candidate.schedule, stage, reason)
        self._progress(CandidateRejected(self._kernel, number, log.failure))

    def _ranked(self, logs: Sequence[_Log], number: int) -> list[CandidateResult]:
        return sorted(
            (
                CandidateResult(log.candidate.schedule, log.report, self._timing(log, number))
                for log in logs
                if log.failure is None and log.report is not None
            ),
            key=rank,
        )

    def _timing(self, log: _Log, number: int) -> TimingSummary:
        return summarise(
            _samples_of(log, number),
            source=self._source,
            dispatches=self._dispatches,
            rejected_count=log.rejected[number - 1],
        )


def rank(result: CandidateResult) -> tuple[int, int, tuple[tuple[str, int], ...]]:
    """Return the key that orders candidates, best first: median, then p95, then schedule."""
    return (result.timing.median_ns, result.timing.p95_ns, schedule_order(result.schedule))


def tie_set(ranked: Sequence[CandidateResult]) -> tuple[Schedule, ...]:
    """Return the schedules whose median is within the best one's upper quartile, best first."""
    bound_ns = ranked[0].timing.upper_quartile_ns
    return tuple(result.schedule for result in ranked if result.timing.median_ns <= bound_ns)


def _finalists(
    logs: Sequence[_Log], first: Sequence[CandidateResult], count: int, default: Schedule
) -> list[_Log]:
    chosen = [result.schedule for result in first[:count]]
    wanted = [*chosen, default]
    return [log for log in logs if log.failure is None and log.candidate.schedule in wanted]


def _is_hopeless(logs: Sequence[_Log]) -> bool:
    """Tell whether all fail to compile in the same way: then the kernel is at fault."""
    kinds = {
        re.sub(r"\d+|\s+", " ", log.failure.reason)
        for log in logs
        if log.failure is not None and log.failure.stage == "compile"
    }
    return all(log.failure is not None for log in logs) and len(kinds) == 1


def _samples_of(log: _Log, number: int) -> list[int]:
    return log.first_ns if number == 1 else log.second_ns


def _worse(one: ComparisonReport | None, other: ComparisonReport) -> ComparisonReport:
    if one is None or other.absolute_error_max > one.absolute_error_max:
        return other
    return one


def _trial(log: _Log) -> Trial:
    assert log.report is not None  # noqa: S101 - a candidate that did not fail was judged
    return Trial(
        schedule=log.candidate.schedule,
        report=log.report,
        first_ns=tuple(log.first_ns),
        second_ns=tuple(log.second_ns),
        rejected_count=sum(log.rejected),
    )


def _reasons(logs: Sequence[_Log]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for log in logs:
        if log.failure is not None:
            counts[log.failure.reason] = counts.get(log.failure.reason, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
