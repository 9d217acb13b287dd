"""The two seams of measuring: what a tuner asks of a device, and what a worker does.

A tuner talks to a `Device`, which measures candidates however it likes: in a worker
process, or by answering from what is stored. A worker talks to a `LocalDevice`,
which runs programs in its own process and may therefore hang or crash. New kinds
of device are local devices, named in the entry point group `castore.devices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from castore.format.value import Value
    from castore.tuning.job import Job
    from castore.tuning.program import ArraySpec, Program
    from castore.tuning.records import ComparisonReport, Failure, MeasuringPolicy
    from castore.tuning.space import Schedule

ENTRY_POINT_GROUP = "castore.devices"


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a run; every worker of the run uses the same.

    Attributes:
        source: One of `statistics.TIMING_SOURCES`.
        tick_ns: Nanoseconds in a tick of a GPU timestamp, as calibrated; 1.0 for other clocks.
    """

    source: str
    tick_ns: float = 1.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A group of samples of one candidate, all of whose outputs the oracle accepted.

    Attributes:
        raw_samples: As the clock gave them, in nanoseconds, impossible ones included.
        source: The clock.
        report: The worst of the comparisons.
    """

    raw_samples: tuple[float, ...]
    source: str
    report: ComparisonReport


class Trials(Protocol):
    """Measures candidates of one job, one group of samples at a time."""

    def measure(
        self, schedule: Schedule, program: Program, *, samples: int, dispatches: int
    ) -> Observation | Failure:
        """Take samples of a candidate and have the oracle judge it; failing costs nothing else."""


class Device(Protocol):
    """What a tuner needs of a device."""

    @property
    def name(self) -> str:
        """The name, for people."""

    @property
    def implementation(self) -> str:
        """Which of a kernel's implementations it runs."""

    def topology(self) -> dict[str, Value]:
        """Return the manifest of the machine and the device."""

    def trials(
        self, job: Job, *, policy: MeasuringPolicy, time_limit_s: float
    ) -> AbstractContextManager[Trials]:
        """Make ready to measure candidates of a job."""


class Prepared(Protocol):
    """A program that is ready to run."""

    def run(self, dispatches: int) -> int:
        """Run it so many times and return the nanoseconds, by the device's clock.

        A device that can do so without timing it fills the output anew before each time.
        """


class LocalDevice(Protocol):
    """What a worker needs of a device. Everything may raise, hang or crash."""

    def topology(self) -> dict[str, Value]:
        """Return the manifest of the machine and the device."""

    def load(
        self, inputs: Mapping[str, NDArray[Any]], output: ArraySpec, clock: Clock | None
    ) -> Clock:
        """Take the arrays of a job, and the clock of an earlier worker or choose one."""

    def prepare(self, program: Program) -> Prepared:
        """Compile a program."""

    def fill(self, data: bytes) -> None:
        """Give the output and the guard behind it these bytes, guard included."""

    def output(self) -> bytes:
        """Return the output's bytes and its guard's."""

    def set_inputs(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Write other values into the arrays that candidates are given."""

    def inputs(self) -> dict[str, bytes]:
        """Return the bytes that the inputs hold now."""
