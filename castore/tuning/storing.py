"""Writing the result of a run into a store, all of it or nothing."""

from __future__ import annotations

import dataclasses
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import castore
from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.tuning.evidence import Evidence
from castore.tuning.manifests import (
    MANIFEST_BYTES_MAX,
    CertificationManifest,
    Provenance,
    TuningManifest,
)
from castore.tuning.statistics import SYNTHETIC

if TYPE_CHECKING:
    from castore.format.value import ObjectId, Value
    from castore.refs.transaction import PreviousValue
    from castore.store.store import Store
    from castore.tuning.candidates import Skipped
    from castore.tuning.job import Job
    from castore.tuning.kernel import Kernel
    from castore.tuning.records import Applicability, CandidateResult, Effort, Failure
    from castore.tuning.search import Outcome

_REASON_CHARACTERS_MAX = 160
_FAILURES_MAX = 8
_TIES_MAX = 16


@dataclass(frozen=True, slots=True)
class Run:
    """A search that found a winner, with all that went into it.

    Attributes:
        kernel: The kernel.
        applicability: What the result holds for, as it was before anything was measured.
        job: The inputs and the expected output.
        effort: How hard it searched.
        outcome: What it found.
        skipped: Schedules that break a limit of the adapter.
    """

    kernel: Kernel
    applicability: Applicability
    job: Job
    effort: Effort
    outcome: Outcome
    skipped: Skipped

    @property
    def was_replayed(self) -> bool:
        """Whether nothing was run."""
        return self.outcome.timing_source == SYNTHETIC


def store_run(
    store: Store,
    topology: dict[str, Value],
    run: Run,
    *,
    expected: ObjectId | PreviousValue,
    reason: str,
) -> ObjectId:
    """Store evidence, certification and tuning manifest with their refs, and return the last's id.

    A result that was there is replaced; the refs' logs keep it. A reader sees the old result or
    the new one.

    Args:
        store: The store.
        topology: The manifest of where it was measured.
        run: What was measured.
        expected: What the tuning ref must name until now.
        reason: Why, for the log.

    Raises:
        RefConflictError: It names something else; no ref was changed.
    """
    origin = "replayed" if run.was_replayed else "tuned"
    writer = f"castore {castore.__version__}"
    provenance = Provenance(time.time_ns(), platform.node(), writer, origin)
    text = run.kernel.text
    with store.batch():
        evidence = store.put(_evidence(run).to_value())
        certified = _certification(run, evidence, provenance).to_value()
        tuned = within_limit(_tuning(run, evidence, provenance)).to_value()
        stored = store.record(
            "tuning",
            topology,
            text,
            tuned,
            on_conflict="replace",
            expected=expected,
            reason=reason,
        )
        store.record(
            "certification", topology, text, certified, on_conflict="replace", reason=reason
        )
    return stored


def within_limit(manifest: TuningManifest) -> TuningManifest:
    """Return the manifest with as many failures and ties as fit in its size; evidence has all.

    Raises:
        MalformedError: It is too large without any; its kernel has very many knobs or arrays.
    """
    failures = [_short(failure) for failure in manifest.failures[:_FAILURES_MAX]]
    ties = manifest.tie_set[:_TIES_MAX]
    while True:
        fitted = dataclasses.replace(manifest, failures=tuple(failures), tie_set=ties)
        size_bytes = len(encode(fitted.to_value()))
        if size_bytes < MANIFEST_BYTES_MAX:
            return fitted
        if failures:
            failures.pop()
        elif len(ties) > 1:
            ties = ties[:-1]
        else:
            raise MalformedError(
                manifest.kernel, f"{size_bytes} bytes are too many for a tuning manifest"
            )


def _short(failure: Failure) -> Failure:
    if len(failure.reason) <= _REASON_CHARACTERS_MAX:
        return failure
    return dataclasses.replace(failure, reason=failure.reason[: _REASON_CHARACTERS_MAX - 3] + "...")


def _evidence(run: Run) -> Evidence:
    return Evidence(
        kernel=run.kernel.text,
        implementation=run.applicability.implementation,
        timing_source=run.outcome.timing_source,
        dispatches=run.outcome.dispatches,
        trials=run.outcome.trials,
        failures=run.outcome.failures,
        skipped=run.skipped.first,
    )


def _tuning(run: Run, evidence: ObjectId, provenance: Provenance) -> TuningManifest:
    outcome = run.outcome
    winner_first = next(r for r in outcome.first if r.schedule == outcome.winner.schedule)
    default = _default(run)
    default_first = default and next(r for r in outcome.first if r.schedule == default.schedule)
    return TuningManifest(
        kernel=run.kernel.text,
        applicability=run.applicability,
        winner=outcome.winner,
        tie_set=outcome.tie_set,
        default=default,
        fastest_first_ns=winner_first.timing.median_ns,
        slowest_first_ns=outcome.first[-1].timing.median_ns,
        default_first_ns=default_first.timing.median_ns if default_first else None,
        evaluated=len(outcome.trials) + len(outcome.failures),
        failed=len(outcome.failures),
        skipped=run.skipped.count,
        failures=outcome.failures,
        effort=run.effort,
        evidence=evidence,
        provenance=provenance,
    )


def _default(run: Run) -> CandidateResult | None:
    space = run.kernel.implementations[run.applicability.implementation].space
    default = space.default_schedule(run.kernel.sizes)
    return next((r for r in run.outcome.finalists if r.schedule == default), None)


def _certification(run: Run, evidence: ObjectId, provenance: Provenance) -> CertificationManifest:
    winner = run.outcome.winner
    return CertificationManifest(
        kernel=run.kernel.text,
        applicability=run.applicability,
        schedule=winner.schedule,
        level="replayed" if run.was_replayed else "certified",
        report=winner.report,
        timing=winner.timing,
        seed=run.job.seed,
        inputs=run.job.input_digests,
        expected=run.job.expected_digest,
        evidence=evidence,
        provenance=provenance,
    )
