"""Tuning one kernel on one device: propose, measure, judge, choose, store."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.errors import MalformedError, ReadOnlyStoreError, RefConflictError
from castore.format.canonical import encode, object_id
from castore.refs.transaction import PreviousValue
from castore.tuning.candidates import candidates_for
from castore.tuning.errors import (
    DeviceUnavailableError,
    KernelChangedError,
    NothingAcceptableError,
)
from castore.tuning.events import Event, Finished
from castore.tuning.finder import Found, find
from castore.tuning.job import Job
from castore.tuning.machine import chosen
from castore.tuning.manifests import TuningManifest
from castore.tuning.records import Applicability, Effort, MeasuringPolicy
from castore.tuning.search import Outcome, Search
from castore.tuning.storing import Run, store_run
from castore.tuning.worker_device import WorkerDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.format.value import ObjectId, Value
    from castore.store.store import Store
    from castore.tuning.device import Device
    from castore.tuning.kernel import Kernel
    from castore.tuning.records import CandidateResult, Failure
    from castore.tuning.space import Schedule

_SEED_MAX = 2**63 - 1
_STORE_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What is stored for a kernel now.

    Attributes:
        kernel: The kernel text.
        device: The device's name.
        manifest: The stored result.
        object: Its id.
        topology: The topology's id.
        was_stored: Whether it was there already, so that nothing was measured.
    """

    kernel: str
    device: str
    manifest: TuningManifest
    object: ObjectId
    topology: ObjectId
    was_stored: bool

    @property
    def winner(self) -> CandidateResult:
        """The best candidate found."""
        return self.manifest.winner

    @property
    def schedule(self) -> Schedule:
        """The schedule of the winner."""
        return self.manifest.winner.schedule

    @property
    def median_ns(self) -> int:
        """The winner's median per dispatch."""
        return self.manifest.winner.timing.median_ns

    @property
    def p95_ns(self) -> int:
        """The winner's p95 per dispatch."""
        return self.manifest.winner.timing.p95_ns

    @property
    def speed_against_default(self) -> float | None:
        """How many times as fast as the default schedule, both in the first round.

        That is the round in which the slowest was measured too, so that the two ratios can be
        compared. None when the default failed.
        """
        default_ns = self.manifest.default_first_ns
        return None if default_ns is None else default_ns / max(self.manifest.fastest_first_ns, 1)

    @property
    def speed_against_slowest(self) -> float:
        """How many times as fast as the slowest acceptable candidate, both in the first round."""
        return self.manifest.slowest_first_ns / max(self.manifest.fastest_first_ns, 1)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The first few failures; the evidence has all."""
        return self.manifest.failures

    @property
    def tie_set(self) -> tuple[Schedule, ...]:
        """Schedules that the measurements cannot tell from the winner, itself first."""
        return self.manifest.tie_set


def tune(  # noqa: PLR0913 - each is one named knob of the search's effort
    store: Store,
    kernel: Kernel,
    *,
    device: str | Device = "auto",
    force: bool = False,
    candidates_max: int = 48,
    samples: int = 3,
    finalists: int = 6,
    finalist_samples: int = 11,
    seed: int = 0,
    time_limit_s: float = 20.0,
    progress: Callable[[Event], None] | None = None,
) -> TuneResult:
    """Return the stored result of a kernel on a device, measuring it first if need be.

    Of two tuners that measure the same kernel at once, the one that ends first stores its
    result, and the other returns that, unless it is forced.

    Args:
        store: Where the result is looked for and stored.
        kernel: The kernel with its problem.
        device: `wgpu`, `numpy`, `auto`, or a device of your own.
        force: Measure even if a stored result applies; it is replaced.
        candidates_max: The most candidates to try; larger spaces are sampled evenly.
        samples: Samples of each candidate in the first round.
        finalists: Candidates in the second round, beside the default schedule.
        finalist_samples: Samples of each finalist.
        seed: From which the inputs are made, at least 0.
        time_limit_s: Seconds that a candidate may take for one sample with its checks.
        progress: Is told of every step, in the caller's thread.

    Raises:
        NothingAcceptableError: Every candidate failed; nothing was stored.
        DeviceUnavailableError: There is no such device here, or it does not run this kernel.
        MalformedError: A number is out of its range, the kernel contradicts itself, or there is
            something to measure inside a batch.
        SourceUnavailableError: The source of what would be measured cannot be read.
        KernelChangedError: The source changed while it was measured; nothing was stored.
        ReadOnlyStoreError: There is something to measure, and nowhere to store it.
    """
    effort = Effort(candidates_max, samples, finalists, finalist_samples, time_limit_s)
    _check(effort, seed)
    on = WorkerDevice(chosen(device)) if isinstance(device, str) else device
    if on.implementation not in kernel.implementations:
        raise DeviceUnavailableError(on.name, f"{kernel.id} has no implementation for it")
    topology = on.topology()
    if not force:
        found = find(store, kernel, topology=topology)
        if isinstance(found, Found):
            return TuneResult(
                kernel.text, on.name, found.manifest, found.object, found.topology, was_stored=True
            )
    # Both are found out now, not after minutes of measuring.
    if store.read_only:
        raise ReadOnlyStoreError(str(store.root), store.read_only)
    if store.in_batch:
        reason = "tune measures for minutes; for as long a batch would hold its result and gc back"
        raise MalformedError("batch", f"{reason}: call it outside, it stores all in one batch")
    run = _searched(kernel, on, topology, effort, seed, progress or _ignore)
    stored, was_stored = _stored(store, topology, run, force=force)
    return TuneResult(
        kernel.text, on.name, stored.manifest, stored.object, stored.topology, was_stored
    )


def _searched(
    kernel: Kernel,
    device: Device,
    topology: dict[str, Value],
    effort: Effort,
    seed: int,
    progress: Callable[[Event], None],
) -> Run:
    implementation, policy = device.implementation, MeasuringPolicy()
    # Taken before the first worker reads the source: that is what will be measured.
    applicability = Applicability.of(kernel, implementation)
    job = Job.of(kernel, seed=seed)
    default = kernel.implementations[implementation].space.default_schedule(kernel.sizes)
    candidates, skipped = candidates_for(
        kernel, implementation, topology, candidates_max=effort.candidates_max
    )
    if not candidates:
        reasons = tuple((failure.reason, 1) for failure in skipped.first[:3])
        raise NothingAcceptableError(kernel.text, skipped.count, reasons)
    with device.trials(job, policy=policy, time_limit_s=effort.time_limit_s) as trials:
        search = Search(kernel.text, trials, policy=policy, effort=effort, progress=progress)
        outcome: Outcome = search.run(candidates, default)
    progress(Finished(kernel.text, outcome.winner.schedule, outcome.winner.timing.median_ns))
    return Run(kernel, applicability, job, effort, outcome, skipped)


def _stored(
    store: Store, topology: dict[str, Value], run: Run, *, force: bool
) -> tuple[Found, bool]:
    """Store a run, or find what another tuner stored for the same kernel meanwhile.

    Returns:
        What is stored now, and whether it was there already.

    Raises:
        KernelChangedError: The kernel is not what was measured any more.
        RefConflictError: Others kept replacing the result, each time with one that does not apply.
    """
    kernel, implementation = run.kernel, run.applicability.implementation
    topology_id = object_id(encode(topology))
    attempts_left = _STORE_ATTEMPTS
    while True:
        attempts_left -= 1
        changed = Applicability.of(kernel, implementation).differs_in(run.applicability)
        if changed:
            raise KernelChangedError(kernel.text, changed)
        ref = store.get_ref("tuning", topology_id, kernel.text)
        if not force:
            found = find(store, kernel, topology=topology)
            if isinstance(found, Found):
                return found, True
        try:
            stored = store_run(
                store,
                topology,
                run,
                expected=PreviousValue.MUST_NOT_EXIST if ref is None else ref.object,
                reason="tuned again" if force else "tuned",
            )
        except RefConflictError:
            if not attempts_left:
                raise
            continue  # Another tuner was quicker, by moments; its result may do.
        manifest = TuningManifest.from_value(store.get(stored))
        reason = f"{kernel.text} was tuned on this topology"
        return Found(manifest, stored, topology_id, is_exact=True, reason=reason), False


def _check(effort: Effort, seed: int) -> None:
    counts = {
        "candidates_max": effort.candidates_max,
        "samples": effort.samples,
        "finalists": effort.finalists,
        "finalist_samples": effort.finalist_samples,
    }
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise MalformedError(name, f"expected an integer of at least 1, got {count!r}")
    limit: object = effort.time_limit_s
    if type(limit) not in (int, float) or not 0 < effort.time_limit_s <= threading.TIMEOUT_MAX:
        raise MalformedError("time_limit_s", f"expected seconds, more than 0, got {limit!r}")
    if type(seed) is not int or not 0 <= seed <= _SEED_MAX:
        raise MalformedError("seed", f"expected an integer of 0 to {_SEED_MAX}, got {seed!r}")


def _ignore(_: Event) -> None:
    pass
