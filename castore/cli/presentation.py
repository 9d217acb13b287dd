"""Objects in words: what a tuning result says, and a plain tree for everything else.

An object says of itself what kind it is. One that claims to be a tuning manifest
and does not read as one is shown as a tree, like an object of a kind that is not
known here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from castore.cli.devices import device_text, first_text, part
from castore.cli.tagged import tagged
from castore.cli.text import (
    counted,
    moment_text,
    ratio_text,
    schedule_text,
    short_id,
    time_text,
)
from castore.errors import MalformedError
from castore.format.value import Link, WeakLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from castore.format.value import ObjectId, Value
    from castore.tuning.manifests import CertificationManifest, TuningManifest
    from castore.tuning.program import ArraySpec
    from castore.tuning.records import Applicability, CandidateResult, ComparisonReport, Failure
    from castore.tuning.statistics import TimingSummary

_LIST_SHOWN_MAX = 40
_LEVEL = "  "


def explained(value: Value) -> Iterator[str]:
    """Yield lines that explain an object to people; they are not made harmless yet."""
    explain = _explainer(value)
    if explain is not None:
        try:
            yield from list(explain(value))
        except MalformedError as error:
            yield f"not a manifest of its kind that this castore reads: {error}"
        else:
            return
    yield from tree(value)


def _explainer(value: Value) -> Callable[[Value], Iterator[str]] | None:
    kind = value.get("kind") if isinstance(value, dict) else None
    return _EXPLAINERS.get(kind) if isinstance(kind, str) else None


def tree(value: Value, indent: str = "") -> Iterator[str]:
    """Yield a value as indented lines: a map's keys, a list's elements, scalars as in JSON."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _branch(f"{key}: ", child, indent)
    elif isinstance(value, list) and value:
        for child in value[:_LIST_SHOWN_MAX]:
            yield from _branch("- ", child, indent)
        if len(value) > _LIST_SHOWN_MAX:
            yield f"{indent}... and {len(value) - _LIST_SHOWN_MAX:,} more (castore cat shows all)"
    else:
        yield f"{indent}{_leaf(value)}"


def _branch(label: str, value: Value, indent: str) -> Iterator[str]:
    short = _short_list(value)
    if short is not None:
        yield f"{indent}{label}{short}"
    elif isinstance(value, dict | list) and value:
        yield f"{indent}{label.rstrip()}"
        yield from tree(value, indent + _LEVEL)
    else:
        yield f"{indent}{label}{_leaf(value)}"


def _short_list(value: Value) -> str | None:
    """Return a list of few numbers in one line, such as a shape."""
    if isinstance(value, list) and value and all(type(each) in (int, float) for each in value):
        text = ", ".join(_leaf(each) for each in value)
        return f"[{text}]" if len(text) <= 72 else None
    return None


def _leaf(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Link):
        return f"link to {value.oid}"
    if isinstance(value, WeakLink):
        return f"weak link to {value.oid}"
    if isinstance(value, bytes):
        return (
            f"{counted(len(value), 'byte')}: {value[:16].hex()}{'...' if len(value) > 16 else ''}"
        )
    return json.dumps(tagged(value))


def _tuning(value: Value) -> Iterator[str]:
    from castore.tuning.manifests import TuningManifest  # noqa: PLC0415 - only for this kind

    found = TuningManifest.from_value(value)
    yield f"tuning result for {found.kernel}"
    yield from _fields(_tuning_rows(found))
    if len(found.tie_set) > 1:
        yield "tie set (the measurements cannot tell these from the winner):"
        others = found.tie_set[1:]  # the winner stands first
        yield from (f"{_LEVEL}{schedule_text(schedule)}" for schedule in others)
    yield from _failures(found.failures, found.failed)
    yield "applies to:"
    yield from _fields(_applicability_rows(found.applicability))


def _tuning_rows(found: TuningManifest) -> Iterator[tuple[str, str]]:
    yield "winner", schedule_text(found.winner.schedule)
    yield "timing", _timing(found.winner.timing)
    yield "error", _error(found.winner.report)
    yield "round 1", f"the winner took {time_text(found.fastest_first_ns)}"
    if found.default is None:
        yield "default", "failed"
    else:
        yield "default", _default(found, found.default)
    yield "slowest", _against(found, found.slowest_first_ns)
    ties = len(found.tie_set) - 1
    yield "ties", counted(ties, "other schedule") if ties else "none"
    yield "candidates", f"{found.evaluated:,} tried, {found.failed:,} failed"
    effort = found.effort
    first = f"{counted(effort.samples, 'sample')} of at most {effort.candidates_max} candidates"
    second = f"{effort.finalist_samples} of {counted(effort.finalists, 'finalist')}"
    yield "effort", f"{first}, then {second}"
    yield "evidence", found.evidence
    yield "measured", _provenance(found)


def _certification(value: Value) -> Iterator[str]:
    from castore.tuning.manifests import CertificationManifest  # noqa: PLC0415 - as above

    found = CertificationManifest.from_value(value)
    yield f"certification of {found.kernel}: evidence, not proof"
    yield from _fields(
        [
            ("schedule", schedule_text(found.schedule)),
            ("level", found.level),
            ("error", _error(found.report)),
            ("timing", _timing(found.timing)),
            ("seed", str(found.seed)),
            *((f"input {name}", digest) for name, digest in found.inputs.items()),
            ("expected", found.expected),
            ("evidence", found.evidence),
            ("measured", _provenance(found)),
        ]
    )
    yield "applies to:"
    yield from _fields(_applicability_rows(found.applicability))


def _evidence(value: Value) -> Iterator[str]:
    from castore.tuning.evidence import Evidence  # noqa: PLC0415 - as above

    found = Evidence.from_value(value)
    yield f"evidence for {found.kernel} on {found.implementation}"
    yield from _fields(
        [
            ("clock", f"{found.timing_source}, {counted(found.dispatches, 'dispatch')} a sample"),
            ("trials", f"{len(found.trials):,} accepted by the oracle"),
            ("skipped", f"{len(found.skipped):,} beyond a limit of the adapter"),
        ]
    )
    for trial in found.trials:
        samples = [*trial.second_ns] or [*trial.first_ns]
        if samples:
            fastest = time_text(min(samples) // found.dispatches)
            yield f"{_LEVEL}{schedule_text(trial.schedule)}: {fastest} at best"
    yield from _failures(found.failures, len(found.failures))


_EXPLAINERS: dict[str, Callable[[Value], Iterator[str]]] = {
    "tuning": _tuning,
    "certification": _certification,
    "evidence": _evidence,
}


def hardware(topology: ObjectId, manifest: Value) -> Iterator[str]:
    """Yield lines that tell what a result was measured on; not made harmless yet.

    Args:
        topology: The topology's id.
        manifest: The topology, or None where the store does not have it.
    """
    yield "on this hardware:"
    yield from _fields(_hardware_rows(topology, manifest))


def _hardware_rows(topology: ObjectId, manifest: Value) -> Iterator[tuple[str, str]]:
    yield "topology", short_id(topology)
    if manifest is None:
        yield "device", "unknown: the topology is not in this store"
        return
    software = part(manifest, "software")
    backend = first_text(software, "backend")
    yield "device", device_text("numpy" if backend == "numpy" else "wgpu", manifest)
    driver = first_text(software, "driver_version", "driver")
    yield from ((name, text) for name, text in (("backend", backend), ("driver", driver)) if text)


def _fields(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    listed = list(rows)
    width = max(len(label) for label, _ in listed)
    return (f"{_LEVEL}{label:<{width}}  {text}" for label, text in listed)


def _applicability_rows(found: Applicability) -> Iterator[tuple[str, str]]:
    yield "kernel", f"{found.kernel_id}, semantic version {found.semantic_version}"
    yield "device", found.implementation
    yield "source", found.source
    yield "problem", _problem(found.problem)
    tolerance = found.tolerance
    yield "tolerance", f"absolute {tolerance.absolute:g}, relative {tolerance.relative:g}"
    yield "space", found.schedule_space
    yield "policy", found.measuring_policy.digest()


def _problem(problem: dict[str, Value]) -> str:
    """Return a problem in one line, such as `n=4: x float32[4] -> y float32[4]`."""
    from castore.tuning.fields import Fields  # noqa: PLC0415 - only for these kinds
    from castore.tuning.program import ArraySpec  # noqa: PLC0415 - as above

    fields = Fields.of(problem)
    try:
        sizes = schedule_text(fields.integer_map("sizes"))
        inputs = fields.list_of("inputs", ArraySpec.from_fields)
        output = ArraySpec.from_fields(fields.fields("output"))
    except MalformedError:
        return json.dumps(tagged(problem))  # another tool's problem
    return f"{sizes}: {', '.join(map(_array, inputs))} -> {_array(output)}"


def _array(spec: ArraySpec) -> str:
    return f"{spec.name} {spec.dtype}{list(spec.shape)}"


def _failures(failures: tuple[Failure, ...], count: int) -> Iterator[str]:
    if not failures:
        return
    yield "failures:"
    for failure in failures:
        yield f"{_LEVEL}{schedule_text(failure.schedule)}: {failure.stage}: {failure.reason}"
    if count > len(failures):
        yield f"{_LEVEL}... and {count - len(failures):,} more (the evidence has all)"


def _default(found: TuningManifest, default: CandidateResult) -> str:
    if default.schedule == found.winner.schedule:
        return "is the winner"
    schedule = schedule_text(default.schedule)
    if found.default_first_ns is None:  # another tool's manifest
        return f"{schedule}: {time_text(default.timing.median_ns)}"
    return f"{schedule}: {_against(found, found.default_first_ns)}"


def _against(found: TuningManifest, other_first_ns: int) -> str:
    """Compare with the winner in round 1: only there were all measured, the slowest included."""
    ratio = ratio_text(other_first_ns / max(found.fastest_first_ns, 1))
    return f"{time_text(other_first_ns)} in round 1; the winner was {ratio} as fast then"


def _timing(timing: TimingSummary) -> str:
    samples = f"{timing.sample_count} samples of {counted(timing.dispatches, 'dispatch')}"
    rejected = f", {timing.rejected_count} bad ones left out" if timing.rejected_count else ""
    return (
        f"median {time_text(timing.median_ns)}, p95 {time_text(timing.p95_ns)}, "
        f"minimum {time_text(timing.minimum_ns)} ({samples}, {timing.source}{rejected})"
    )


def _error(report: ComparisonReport) -> str:
    return (
        f"at most {report.absolute_error_max:.3g} absolute, {report.relative_error_max:.3g} "
        f"relative over {counted(report.compared, 'element')}"
    )


def _provenance(found: TuningManifest | CertificationManifest) -> str:
    origin = found.provenance
    return f"{moment_text(origin.time_ns)} on {origin.host} by {origin.writer} ({origin.origin})"
