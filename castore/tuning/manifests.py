"""Tuning and certification manifests, and the evidence behind them.

A tuning manifest is read on every lookup, so it stays under `MANIFEST_BYTES_MAX`:
raw samples and long reasons go to the evidence object that it links weakly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.format.value import Value, WeakLink
from castore.tuning.fields import Fields
from castore.tuning.records import (
    Applicability,
    CandidateResult,
    ComparisonReport,
    Effort,
    Failure,
)
from castore.tuning.statistics import TimingSummary

if TYPE_CHECKING:
    from castore.format.value import ObjectId
    from castore.tuning.space import Schedule

SCHEMA = 1
MANIFEST_BYTES_MAX = 8192
"""A tuning manifest has fewer canonical bytes than this."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a manifest comes from; never part of a key.

    Attributes:
        time_ns: When, in nanoseconds since 1970.
        host: The machine's name.
        writer: What wrote it, such as `castore 0.1.0`.
        origin: `tuned`, or `replayed` where nothing was measured; other tools may write others.
    """

    time_ns: int
    host: str
    writer: str
    origin: str = "tuned"

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "time_ns": self.time_ns,
            "host": self.host,
            "writer": self.writer,
            "origin": self.origin,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Provenance:
        """Read the plain form."""
        texts = (fields.text("host"), fields.text("writer"), fields.text("origin"))
        return cls(fields.integer("time_ns"), *texts)


@dataclass(frozen=True, slots=True)
class TuningManifest:
    """The result of tuning one kernel on one topology.

    Attributes:
        kernel: The kernel text.
        applicability: What the result holds for.
        winner: The best candidate found, timed in the second round.
        tie_set: Schedules that the measurements cannot tell from the winner, itself first.
        default: The default schedule, timed in the second round; None when it failed.
        fastest_first_ns: The winner's median in the first round.
        slowest_first_ns: The largest median in the first round.
        default_first_ns: The default schedule's median in the first round; None when it failed.
        evaluated: Candidates tried, failures included.
        failed: How many of them failed.
        skipped: Schedules not tried because they break a limit of the adapter.
        failures: The first few failures, with short reasons; all are in the evidence.
        effort: How hard the run searched.
        evidence: Every trial with its raw samples.
        provenance: When, where and by what.
    """

    kernel: str
    applicability: Applicability
    winner: CandidateResult
    tie_set: tuple[Schedule, ...]
    default: CandidateResult | None
    fastest_first_ns: int
    slowest_first_ns: int
    default_first_ns: int | None
    evaluated: int
    failed: int
    skipped: int
    failures: tuple[Failure, ...]
    effort: Effort
    evidence: ObjectId
    provenance: Provenance

    def to_value(self) -> dict[str, Value]:
        """Return the manifest as stored."""
        summary: dict[str, Value] = {
            "evaluated": self.evaluated,
            "failed": self.failed,
            "skipped": self.skipped,
            "fastest_first_ns": self.fastest_first_ns,
            "slowest_first_ns": self.slowest_first_ns,
        }
        if self.default_first_ns is not None:
            summary["default_first_ns"] = self.default_first_ns
        value: dict[str, Value] = {
            "kind": "tuning",
            "schema": SCHEMA,
            "kernel": self.kernel,
            "applicability": self.applicability.to_value(),
            "winner": self.winner.to_value(),
            "tie_set": [dict[str, Value](schedule) for schedule in self.tie_set],
            "summary": summary,
            "failures": [failure.to_value() for failure in self.failures],
            "effort": self.effort.to_value(),
            "evidence": WeakLink(self.evidence),
            "provenance": self.provenance.to_value(),
        }
        if self.default is not None:
            value["default"] = self.default.to_value()
        return value

    @classmethod
    def from_value(cls, value: object) -> TuningManifest:
        """Read a manifest.

        Raises:
            MalformedError: It is not a tuning manifest of this schema; names the field.
        """
        fields = Fields.of(value)
        fields.manifest_of("tuning", SCHEMA)
        summary = fields.fields("summary")
        has_default, has_first = fields.has("default"), summary.has("default_first_ns")
        return cls(
            kernel=fields.text("kernel"),
            applicability=Applicability.from_fields(fields.fields("applicability")),
            winner=CandidateResult.from_fields(fields.fields("winner")),
            tie_set=fields.list_of("tie_set", _schedule),
            default=CandidateResult.from_fields(fields.fields("default")) if has_default else None,
            fastest_first_ns=summary.integer("fastest_first_ns"),
            slowest_first_ns=summary.integer("slowest_first_ns"),
            default_first_ns=summary.integer("default_first_ns") if has_first else None,
            evaluated=summary.integer("evaluated"),
            failed=summary.integer("failed"),
            skipped=summary.integer("skipped"),
            failures=fields.list_of("failures", Failure.from_fields),
            effort=Effort.from_fields(fields.fields("effort")),
            evidence=fields.weak_link("evidence"),
            provenance=Provenance.from_fields(fields.fields("provenance")),
        )


@dataclass(frozen=True, slots=True)
class CertificationManifest:
    """A statement that one schedule met one tolerance on named inputs. Evidence, not proof.

    Attributes:
        kernel: The kernel text.
        applicability: The kernel's source, problem and tolerance, and how it was measured.
        schedule: The schedule that was run.
        level: `certified`: the oracle agreed at the first and the last dispatch of every group.
            `replayed`: nothing was run, and the report is what was recorded.
        report: The worst of the comparisons.
        timing: The schedule's timing.
        seed: The seed of the inputs.
        inputs: BLAKE3 of each input's bytes, by name.
        expected: BLAKE3 of the expected output as little-endian float64.
        evidence: Every trial with its raw samples.
        provenance: When, where and by what.
    """

    kernel: str
    applicability: Applicability
    schedule: Schedule
    level: str
    report: ComparisonReport
    timing: TimingSummary
    seed: int
    inputs: dict[str, str]
    expected: str
    evidence: ObjectId
    provenance: Provenance

    def to_value(self) -> dict[str, Value]:
        """Return the manifest as stored."""
        return {
            "kind": "certification",
            "schema": SCHEMA,
            "kernel": self.kernel,
            "applicability": self.applicability.to_value(),
            "schedule": dict[str, Value](self.schedule),
            "level": self.level,
            "report": self.report.to_value(),
            "timing": self.timing.to_value(),
            "vectors": {
                "seed": self.seed,
                "inputs": dict[str, Value](self.inputs),
                "expected": self.expected,
            },
            "evidence": WeakLink(self.evidence),
            "provenance": self.provenance.to_value(),
        }

    @classmethod
    def from_value(cls, value: object) -> CertificationManifest:
        """Read a manifest.

        Raises:
            MalformedError: It is not a certification manifest of this schema; names the field.
        """
        fields = Fields.of(value)
        fields.manifest_of("certification", SCHEMA)
        vectors = fields.fields("vectors")
        inputs = vectors.fields("inputs")
        return cls(
            kernel=fields.text("kernel"),
            applicability=Applicability.from_fields(fields.fields("applicability")),
            schedule=fields.integer_map("schedule"),
            level=fields.text("level"),
            report=ComparisonReport.from_fields(fields.fields("report")),
            timing=TimingSummary.from_fields(fields.fields("timing")),
            seed=vectors.integer("seed"),
            inputs={name: inputs.text(name) for name in sorted(inputs.values)},
            expected=vectors.text("expected"),
            evidence=fields.weak_link("evidence"),
            provenance=Provenance.from_fields(fields.fields("provenance")),
        )


def _schedule(fields: Fields) -> Schedule:
    return {name: fields.integer(name) for name in sorted(fields.values)}
