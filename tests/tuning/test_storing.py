import dataclasses

import pytest

from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.format.value import ObjectId
from castore.tuning import (
    Applicability,
    CandidateResult,
    ComparisonReport,
    Effort,
    Failure,
    MeasuringPolicy,
    Provenance,
    TimingSummary,
    Tolerance,
    TuningManifest,
)
from castore.tuning.manifests import MANIFEST_BYTES_MAX
from castore.tuning.space import Schedule
from castore.tuning.storing import within_limit


def manifest(schedule: Schedule, *, failures: int = 0, ties: int = 1) -> TuningManifest:
    timing = TimingSummary("synthetic", 1, 3, 0, 1, 2, 3, 4)
    result = CandidateResult(schedule, ComparisonReport(4, 0, None, 0.0, 0.0), timing)
    applies = Applicability(
        "k", "numpy", 1, "s", {"n": 1}, Tolerance(0.0, 0.0), "space", MeasuringPolicy()
    )
    return TuningManifest(
        kernel="k[n=1]",
        applicability=applies,
        winner=result,
        tie_set=(schedule,) * ties,
        default=None,
        fastest_first_ns=1,
        slowest_first_ns=2,
        default_first_ns=None,
        evaluated=1,
        failed=failures,
        skipped=0,
        failures=(Failure(schedule, "run", "reason " * 40),) * failures,
        effort=Effort(),
        evidence=ObjectId("ab" * 32),
        provenance=Provenance(1, "host", "castore"),
    )


def schedule_of(size_bytes: int) -> Schedule:
    return {f"knob_{at:04}": at for at in range(size_bytes // 11)}


def size_bytes(made: TuningManifest) -> int:
    return len(encode(made.to_value()))


def test_a_manifest_that_fits_is_stored_as_it_is() -> None:
    small = manifest({"a": 1}, ties=3)
    assert within_limit(small) == small


def test_failures_go_before_ties_when_schedules_are_large() -> None:
    fitted = within_limit(manifest(schedule_of(700), failures=8, ties=5))
    assert 0 < len(fitted.failures) < 8
    assert len(fitted.tie_set) == 5
    assert size_bytes(fitted) < MANIFEST_BYTES_MAX


def test_ties_are_dropped_from_the_end_when_that_is_not_enough() -> None:
    fitted = within_limit(manifest(schedule_of(2000), failures=8, ties=5))
    assert fitted.failures == ()
    assert 1 <= len(fitted.tie_set) < 5
    assert fitted.tie_set[0] == fitted.winner.schedule
    assert size_bytes(fitted) < MANIFEST_BYTES_MAX


def test_a_manifest_that_cannot_fit_is_refused() -> None:
    with pytest.raises(MalformedError, match="too many for a tuning manifest"):
        within_limit(manifest(schedule_of(9000)))


def test_the_limit_is_exact() -> None:
    made = manifest({"a": 1})
    room = MANIFEST_BYTES_MAX - 1 - size_bytes(made)
    # A text of that length takes two more bytes of header than the short one it replaces.
    host = "h" * (len(made.provenance.host) + room - 2)
    full = dataclasses.replace(made, provenance=dataclasses.replace(made.provenance, host=host))
    assert size_bytes(full) == MANIFEST_BYTES_MAX - 1
    assert within_limit(full) == full
    longer = dataclasses.replace(full.provenance, host=host + "h")
    with pytest.raises(MalformedError):
        within_limit(dataclasses.replace(full, provenance=longer))
