import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.format.canonical import decode, encode
from castore.format.value import ObjectId
from castore.tuning import (
    Applicability,
    CandidateResult,
    CertificationManifest,
    ComparisonReport,
    Effort,
    Evidence,
    Failure,
    MeasuringPolicy,
    Provenance,
    TimingSummary,
    Tolerance,
    Trial,
    TuningManifest,
)

NS = st.integers(0, 10**15)
COUNT = st.integers(0, 10**6)
FLOATS = st.floats(0, allow_nan=False)
FINITE = st.floats(0, allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=20)
SCHEDULES = st.dictionaries(st.from_regex("[a-z]{1,6}", fullmatch=True), COUNT, max_size=4).map(
    lambda schedule: dict(sorted(schedule.items()))
)
OIDS = st.binary(min_size=32, max_size=32).map(lambda raw: ObjectId(raw.hex()))
TIMINGS = st.builds(
    TimingSummary,
    source=st.sampled_from(["gpu-timestamp", "completion-clock", "synthetic"]),
    dispatches=st.integers(1, 100),
    sample_count=st.integers(1, 99),
    rejected_count=COUNT,
    minimum_ns=NS,
    median_ns=NS,
    upper_quartile_ns=NS,
    p95_ns=NS,
)
REPORTS = st.builds(ComparisonReport, COUNT, COUNT, st.none() | COUNT, FLOATS, FLOATS)
RESULTS = st.builds(CandidateResult, SCHEDULES, REPORTS, TIMINGS)
FAILURES = st.builds(Failure, SCHEDULES, TEXT, TEXT)
APPLICABILITIES = st.builds(
    Applicability,
    kernel_id=TEXT,
    implementation=TEXT,
    semantic_version=COUNT,
    source=TEXT,
    problem=st.dictionaries(TEXT, COUNT, max_size=2),
    tolerance=st.builds(Tolerance, FINITE, FINITE),
    schedule_space=TEXT,
    measuring_policy=st.builds(MeasuringPolicy, COUNT, st.integers(1, 9), COUNT, COUNT, TEXT),
)
PROVENANCES = st.builds(Provenance, NS, TEXT, TEXT, TEXT)
EFFORTS = st.builds(Effort, *[st.integers(1, 99)] * 4, FLOATS)
TUNINGS = st.builds(
    TuningManifest,
    kernel=TEXT,
    applicability=APPLICABILITIES,
    winner=RESULTS,
    tie_set=st.lists(SCHEDULES, max_size=3).map(tuple),
    default=st.none() | RESULTS,
    fastest_first_ns=NS,
    slowest_first_ns=NS,
    default_first_ns=st.none() | NS,
    evaluated=COUNT,
    failed=COUNT,
    skipped=COUNT,
    failures=st.lists(FAILURES, max_size=3).map(tuple),
    effort=EFFORTS,
    evidence=OIDS,
    provenance=PROVENANCES,
)
CERTIFICATIONS = st.builds(
    CertificationManifest,
    kernel=TEXT,
    applicability=APPLICABILITIES,
    schedule=SCHEDULES,
    level=TEXT,
    report=REPORTS,
    timing=TIMINGS,
    seed=COUNT,
    inputs=st.dictionaries(TEXT, TEXT, max_size=2),
    expected=TEXT,
    evidence=OIDS,
    provenance=PROVENANCES,
)
SAMPLES = st.lists(st.integers(1, 10**12), max_size=4).map(tuple)
EVIDENCES = st.builds(
    Evidence,
    kernel=TEXT,
    implementation=TEXT,
    timing_source=TEXT,
    dispatches=st.integers(1, 99),
    trials=st.lists(st.builds(Trial, SCHEDULES, REPORTS, SAMPLES, SAMPLES, COUNT), max_size=3).map(
        tuple
    ),
    failures=st.lists(FAILURES, max_size=2).map(tuple),
    skipped=st.lists(FAILURES, max_size=2).map(tuple),
)


@given(TUNINGS)
def test_a_tuning_manifest_comes_back_from_its_bytes(manifest: TuningManifest) -> None:
    assert TuningManifest.from_value(decode(encode(manifest.to_value()))) == manifest


@given(CERTIFICATIONS)
def test_a_certification_comes_back_from_its_bytes(manifest: CertificationManifest) -> None:
    assert CertificationManifest.from_value(decode(encode(manifest.to_value()))) == manifest


@given(EVIDENCES)
def test_evidence_comes_back_from_its_bytes(evidence: Evidence) -> None:
    assert Evidence.from_value(decode(encode(evidence.to_value()))) == evidence


def example() -> dict[str, Any]:
    timing = TimingSummary("synthetic", 1, 3, 0, 1, 2, 3, 4)
    result = CandidateResult({"a": 1}, ComparisonReport(4, 0, None, 0.0, 0.0), timing)
    applies = Applicability(
        "k", "numpy", 1, "s", {"n": 1}, Tolerance(0.0, 0.0), "space", MeasuringPolicy()
    )
    return TuningManifest(
        kernel="k[n=1]",
        applicability=applies,
        winner=result,
        tie_set=({"a": 1},),
        default=None,
        fastest_first_ns=1,
        slowest_first_ns=2,
        default_first_ns=2,
        evaluated=1,
        failed=0,
        skipped=0,
        failures=(),
        effort=Effort(),
        evidence=ObjectId("ab" * 32),
        provenance=Provenance(1, "host", "castore"),
    ).to_value()


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        (("kind",), "certification"),
        (("schema",), 2),
        (("schema",), True),
        (("winner",), []),
        (("winner", "schedule", "a"), "one"),
        (("winner", "schedule", "a"), True),
        (("winner", "timing", "median_ns"), -1),
        (("winner", "timing", "dispatches"), 0),
        (("winner", "report", "absolute_error_max"), "large"),
        (("tie_set",), {}),
        (("tie_set", 0), 5),
        (("evidence",), "ab" * 32),
        (("applicability", "tolerance", "relative"), None),
        (("provenance", "host"), 7),
    ],
)
def test_a_field_of_another_shape_is_refused_with_its_path(path: tuple[Any, ...], bad: Any) -> None:
    value = copy.deepcopy(example())
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = bad
    with pytest.raises(MalformedError) as caught:
        TuningManifest.from_value(value)
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    assert caught.value.where == shown


def test_a_missing_field_is_refused_with_its_path() -> None:
    value = example()
    del value["winner"]["timing"]["p95_ns"]
    with pytest.raises(MalformedError) as caught:
        TuningManifest.from_value(value)
    assert caught.value.where == ".winner.timing.p95_ns"


@pytest.mark.parametrize("foreign", [None, 5, [], "text", {}, {"kind": "tuning"}])
def test_what_is_no_manifest_at_all_is_refused(foreign: Any) -> None:
    for record in (TuningManifest, CertificationManifest, Evidence):
        with pytest.raises(MalformedError):
            record.from_value(foreign)
