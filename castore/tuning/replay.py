"""The replay device: answers from measurements that were taken before.

Tests and comparisons of search rules need no hardware with it. It never runs
anything: every timing that it gives is marked synthetic, and its topology is marked
`replayed`, so that what is stored from it is never found for the hardware itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from castore.errors import MalformedError
from castore.format.canonical import encode, object_id
from castore.tuning.device import Observation, Trials
from castore.tuning.evidence import Evidence
from castore.tuning.manifests import TuningManifest
from castore.tuning.records import ComparisonReport, Failure
from castore.tuning.space import schedule_order
from castore.tuning.statistics import SYNTHETIC
from castore.tuning.topology_manifest import replayed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from castore.format.value import Value
    from castore.store.store import Store
    from castore.tuning.job import Job
    from castore.tuning.kernel import Kernel
    from castore.tuning.program import Program
    from castore.tuning.records import MeasuringPolicy
    from castore.tuning.space import Schedule


_PERFECT = ComparisonReport(1, 0, None, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known of one candidate.

    Attributes:
        samples_ns: Nanoseconds per dispatch, given out in this order and then again from the
            start.
        report: What the oracle said.
    """

    samples_ns: tuple[float, ...]
    report: ComparisonReport = _PERFECT


Answer: TypeAlias = Recorded | Failure


class ReplayDevice:
    """A device whose measurements are already known."""

    def __init__(
        self,
        topology: dict[str, Value],
        implementation: str,
        answers: Sequence[tuple[Mapping[str, int], Answer]],
    ) -> None:
        """Answer from a list.

        Args:
            topology: The manifest of what was measured.
            implementation: Which of a kernel's implementations was measured.
            answers: Schedules with what is known of each; all others fail.
        """
        self._topology = replayed(topology)
        self._implementation = implementation
        self._answers = {schedule_order(schedule): answer for schedule, answer in answers}
        self.asked: list[Schedule] = []

    @classmethod
    def from_store(cls, store: Store, kernel: Kernel, topology: dict[str, Value]) -> ReplayDevice:
        """Answer from the evidence of a stored result.

        Raises:
            MalformedError: The store has no result of this kernel on this topology.
            ObjectNotFoundError: The evidence is not there.
        """
        found = store.lookup("tuning", object_id(encode(topology)), kernel.text)
        if found is None:
            raise MalformedError(kernel.text, "there is no stored result to replay")
        evidence = Evidence.from_value(store.get(TuningManifest.from_value(found).evidence))
        answers: list[tuple[Mapping[str, int], Answer]] = []
        for trial in evidence.trials:
            samples = trial.first_ns + trial.second_ns
            per_dispatch = tuple(sample / evidence.dispatches for sample in samples)
            answers.append((trial.schedule, Recorded(per_dispatch, trial.report)))
        answers += [(failure.schedule, failure) for failure in evidence.failures]
        return cls(topology, evidence.implementation, answers)

    @property
    def name(self) -> str:
        """Always `replay`."""
        return "replay"

    @property
    def implementation(self) -> str:
        """Which of a kernel's implementations was measured."""
        return self._implementation

    def topology(self) -> dict[str, Value]:
        """Return the topology that the measurements are from, marked `replayed`."""
        return self._topology

    @contextmanager
    def trials(
        self,
        job: Job,  # noqa: ARG002 - the protocol's; nothing is computed here
        *,
        policy: MeasuringPolicy,  # noqa: ARG002 - the same
        time_limit_s: float,  # noqa: ARG002 - the same
    ) -> Iterator[Trials]:
        """Answer from the start of every list of samples."""
        yield _ReplayTrials(self._answers, self.asked)


class _ReplayTrials:
    def __init__(
        self, answers: Mapping[tuple[tuple[str, int], ...], Answer], asked: list[Schedule]
    ) -> None:
        self._answers = answers
        self._asked = asked
        self._given: dict[tuple[tuple[str, int], ...], int] = {}

    def measure(
        self,
        schedule: Schedule,
        program: Program,  # noqa: ARG002 - the protocol's; nothing is run here
        *,
        samples: int,
        dispatches: int,
    ) -> Observation | Failure:
        """Give out the next samples of this candidate."""
        self._asked.append(schedule)
        key = schedule_order(schedule)
        answer = self._answers.get(key)
        if answer is None:
            return Failure(schedule, "worker", "nothing is recorded for this schedule")
        if isinstance(answer, Failure):
            return answer
        given = self._given.get(key, 0)
        self._given[key] = given + samples
        known = answer.samples_ns
        raw = tuple(known[(given + at) % len(known)] * dispatches for at in range(samples))
        return Observation(raw, SYNTHETIC, answer.report)
