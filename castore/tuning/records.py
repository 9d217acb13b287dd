"""The small records that tuning and certification manifests are made of."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blake3 import blake3

from castore.format.canonical import encode
from castore.tuning.kernel import Tolerance
from castore.tuning.statistics import TimingSummary

if TYPE_CHECKING:
    from castore.format.value import Value
    from castore.tuning.fields import Fields
    from castore.tuning.kernel import Kernel
    from castore.tuning.space import Schedule


@dataclass(frozen=True, slots=True)
class MeasuringPolicy:
    """How a sample is taken and how samples choose a winner.

    Effort (how many candidates, how many samples) is not part of it: more of the same kind
    of evidence does not make older evidence wrong. The manifest records effort beside it.

    Attributes:
        version: Raised when measuring changes in a way that the other fields do not tell.
        warmups: Single dispatches before each group, at least one; the output of the first
            is judged, their times are thrown away.
        sample_floor_ns: Dispatches are repeated within a sample until the default schedule
            takes about this long.
        dispatches_max: The most dispatches in a sample.
        order: What decides between acceptable candidates, most important first.
    """

    version: int = 1
    warmups: int = 1
    sample_floor_ns: int = 200_000
    dispatches_max: int = 64
    order: str = "median, p95, schedule"

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "version": self.version,
            "warmups": self.warmups,
            "sample_floor_ns": self.sample_floor_ns,
            "dispatches_max": self.dispatches_max,
            "order": self.order,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> MeasuringPolicy:
        """Read the plain form."""
        return cls(
            version=fields.integer("version"),
            warmups=fields.integer("warmups", least=1),
            sample_floor_ns=fields.integer("sample_floor_ns"),
            dispatches_max=fields.integer("dispatches_max"),
            order=fields.text("order"),
        )

    def digest(self) -> str:
        """Return the BLAKE3 of the plain form."""
        return blake3(encode(self.to_value())).hexdigest()


@dataclass(frozen=True, slots=True)
class Applicability:
    """What a result holds for; a kernel for which any of it differs needs a new one.

    Attributes:
        kernel_id: The kernel's id.
        implementation: The kind of device, `wgpu` or `numpy`.
        semantic_version: What the kernel says of its meaning.
        source: BLAKE3 of what was run.
        problem: Sizes and arrays, as `Kernel.problem` gives them.
        tolerance: What the oracle allowed.
        schedule_space: BLAKE3 of the space that was searched.
        measuring_policy: How it was measured.
    """

    kernel_id: str
    implementation: str
    semantic_version: int
    source: str
    problem: dict[str, Value]
    tolerance: Tolerance
    schedule_space: str
    measuring_policy: MeasuringPolicy

    @classmethod
    def of(cls, kernel: Kernel, implementation: str) -> Applicability:
        """Return what a result measured now, on this kind of device, would hold for.

        Raises:
            KeyError: The kernel has no such implementation.
        """
        chosen = kernel.implementations[implementation]
        return cls(
            kernel_id=kernel.id,
            implementation=implementation,
            semantic_version=kernel.semantic_version,
            source=chosen.source_digest(),
            problem=kernel.problem,
            tolerance=kernel.tolerance,
            schedule_space=chosen.space.digest(),
            measuring_policy=MeasuringPolicy(),
        )

    def differs_in(self, other: Applicability) -> tuple[str, ...]:
        """Return the names of the fields that differ."""
        one, two = self.to_value(), other.to_value()
        names = [field.name for field in dataclasses.fields(self)]
        # By bytes: True and 1 are equal in Python, and NaN is not equal to itself.
        return tuple(name for name in names if encode(one[name]) != encode(two[name]))

    def to_value(self) -> dict[str, Value]:
        """Return the plain form, with the policy's digest beside the policy."""
        return {
            "kernel_id": self.kernel_id,
            "implementation": self.implementation,
            "semantic_version": self.semantic_version,
            "source": self.source,
            "problem": self.problem,
            "tolerance": self.tolerance.to_value(),
            "schedule_space": self.schedule_space,
            "measuring_policy": self.measuring_policy.to_value(),
            "measuring_policy_digest": self.measuring_policy.digest(),
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Applicability:
        """Read the plain form."""
        return cls(
            kernel_id=fields.text("kernel_id"),
            implementation=fields.text("implementation"),
            semantic_version=fields.integer("semantic_version"),
            source=fields.text("source"),
            problem=fields.fields("problem").values,
            tolerance=Tolerance.from_fields(fields.fields("tolerance")),
            schedule_space=fields.text("schedule_space"),
            measuring_policy=MeasuringPolicy.from_fields(fields.fields("measuring_policy")),
        )


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """An output against the oracle's, element by element.

    Attributes:
        compared: Elements compared: all of them.
        mismatch_count: Elements outside the tolerance.
        first_mismatch: The first of them, counted from 0 in row-major order; None without.
        absolute_error_max: The largest finite abs(got - want).
        relative_error_max: The largest finite abs(got - want) / abs(want).
    """

    compared: int
    mismatch_count: int
    first_mismatch: int | None
    absolute_error_max: float
    relative_error_max: float

    def to_value(self) -> dict[str, Value]:
        """Return the plain form; a first mismatch that there is not is an absent key."""
        value: dict[str, Value] = {
            "compared": self.compared,
            "mismatch_count": self.mismatch_count,
            "absolute_error_max": float(self.absolute_error_max),
            "relative_error_max": float(self.relative_error_max),
        }
        if self.first_mismatch is not None:
            value["first_mismatch"] = self.first_mismatch
        return value

    @classmethod
    def from_fields(cls, fields: Fields) -> ComparisonReport:
        """Read the plain form."""
        has_mismatch = fields.has("first_mismatch")
        return cls(
            compared=fields.integer("compared"),
            mismatch_count=fields.integer("mismatch_count"),
            first_mismatch=fields.integer("first_mismatch") if has_mismatch else None,
            absolute_error_max=fields.number("absolute_error_max"),
            relative_error_max=fields.number("relative_error_max"),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate that cannot win, and why.

    Attributes:
        schedule: The candidate.
        stage: `limits`, `compile`, `run`, `oracle`, `timing` or `worker`.
        reason: What happened, for people.
    """

    schedule: Schedule
    stage: str
    reason: str

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        schedule: dict[str, Value] = dict(self.schedule)
        return {"schedule": schedule, "stage": self.stage, "reason": self.reason}

    @classmethod
    def from_fields(cls, fields: Fields) -> Failure:
        """Read the plain form."""
        return cls(fields.integer_map("schedule"), fields.text("stage"), fields.text("reason"))


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """An acceptable candidate with its verdict and its timing.

    Attributes:
        schedule: The candidate.
        report: The worst of its comparisons with the oracle.
        timing: Its samples in the round that this result is from.
    """

    schedule: Schedule
    report: ComparisonReport
    timing: TimingSummary

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        schedule: dict[str, Value] = dict(self.schedule)
        return {
            "schedule": schedule,
            "report": self.report.to_value(),
            "timing": self.timing.to_value(),
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> CandidateResult:
        """Read the plain form."""
        return cls(
            schedule=fields.integer_map("schedule"),
            report=ComparisonReport.from_fields(fields.fields("report")),
            timing=TimingSummary.from_fields(fields.fields("timing")),
        )


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a run searched.

    Attributes:
        candidates_max: The most candidates to try.
        samples: Samples of each in the first round.
        finalists: How many go to the second round, the default schedule not counted.
        finalist_samples: Samples of each in the second round.
        time_limit_s: Seconds that a candidate may take for one group of samples.
    """

    candidates_max: int = 48
    samples: int = 3
    finalists: int = 6
    finalist_samples: int = 11
    time_limit_s: float = 20.0

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "candidates_max": self.candidates_max,
            "samples": self.samples,
            "finalists": self.finalists,
            "finalist_samples": self.finalist_samples,
            "time_limit_s": float(self.time_limit_s),
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Effort:
        """Read the plain form."""
        return cls(
            candidates_max=fields.integer("candidates_max", least=1),
            samples=fields.integer("samples", least=1),
            finalists=fields.integer("finalists", least=1),
            finalist_samples=fields.integer("finalist_samples", least=1),
            time_limit_s=fields.number("time_limit_s"),
        )
