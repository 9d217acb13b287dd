"""Evidence: every trial of a run, with raw samples and whole reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.tuning.fields import Fields
from castore.tuning.records import ComparisonReport, Failure

if TYPE_CHECKING:
    from castore.format.value import Value
    from castore.tuning.space import Schedule

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate that the oracle accepted, with every sample taken of it.

    Attributes:
        schedule: The candidate.
        report: The worst of its comparisons.
        first_ns: Good samples of the first round, whole samples in the order measured.
        second_ns: Good samples of the second round; empty unless it was a finalist.
        rejected_count: Samples thrown away as impossible, over both rounds.
    """

    schedule: Schedule
    report: ComparisonReport
    first_ns: tuple[int, ...]
    second_ns: tuple[int, ...]
    rejected_count: int

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "schedule": dict(self.schedule),
            "report": self.report.to_value(),
            "first_ns": list(self.first_ns),
            "second_ns": list(self.second_ns),
            "rejected_count": self.rejected_count,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Trial:
        """Read the plain form."""
        return cls(
            schedule=fields.integer_map("schedule"),
            report=ComparisonReport.from_fields(fields.fields("report")),
            first_ns=fields.integers("first_ns", least=1),
            second_ns=fields.integers("second_ns", least=1),
            rejected_count=fields.integer("rejected_count"),
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """All trials of one run.

    Attributes:
        kernel: The kernel text.
        implementation: The kind of device.
        timing_source: The clock of every sample.
        dispatches: Dispatches in every sample.
        trials: Candidates that the oracle accepted, in the order tried.
        failures: Candidates that failed, with whole reasons.
        skipped: Schedules that break a limit of the adapter, which were never compiled.
    """

    kernel: str
    implementation: str
    timing_source: str
    dispatches: int
    trials: tuple[Trial, ...]
    failures: tuple[Failure, ...]
    skipped: tuple[Failure, ...]

    def to_value(self) -> dict[str, Value]:
        """Return the manifest as stored."""
        return {
            "kind": "evidence",
            "schema": SCHEMA,
            "kernel": self.kernel,
            "implementation": self.implementation,
            "timing_source": self.timing_source,
            "dispatches": self.dispatches,
            "trials": [trial.to_value() for trial in self.trials],
            "failures": [failure.to_value() for failure in self.failures],
            "skipped": [failure.to_value() for failure in self.skipped],
        }

    @classmethod
    def from_value(cls, value: object) -> Evidence:
        """Read an evidence manifest.

        Raises:
            MalformedError: It is not evidence of this schema; names the field.
        """
        fields = Fields.of(value)
        fields.manifest_of("evidence", SCHEMA)
        return cls(
            kernel=fields.text("kernel"),
            implementation=fields.text("implementation"),
            timing_source=fields.text("timing_source"),
            dispatches=fields.integer("dispatches", least=1),
            trials=fields.list_of("trials", Trial.from_fields),
            failures=fields.list_of("failures", Failure.from_fields),
            skipped=fields.list_of("skipped", Failure.from_fields),
        )
