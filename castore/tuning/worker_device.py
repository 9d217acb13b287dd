"""A device that measures in worker processes: one candidate's crash costs one candidate."""

from __future__ import annotations

import dataclasses
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from castore.errors import MalformedError
from castore.tuning.device import Clock, Observation, Trials
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.job import Job, digest
from castore.tuning.machine import topology
from castore.tuning.oracle import judge, poison
from castore.tuning.program import GUARD_BYTES
from castore.tuning.records import Failure
from castore.tuning.worker_process import START_LIMIT_S, WorkerLostError, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import Value
    from castore.tuning.fields import Fields
    from castore.tuning.oracle import Verdict
    from castore.tuning.program import Program
    from castore.tuning.records import ComparisonReport, MeasuringPolicy
    from castore.tuning.space import Schedule


class WorkerDevice:
    """The device of one entry point in `castore.devices`, run in worker processes."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return self._name

    @property
    def implementation(self) -> str:
        """The same: a kernel's implementations are keyed by it."""
        return self._name

    def topology(self) -> dict[str, Value]:
        """Return the manifest of the machine and the device.

        Raises:
            DeviceUnavailableError: There is no such device here.
        """
        return topology(self._name)

    @contextmanager
    def trials(self, job: Job, *, policy: MeasuringPolicy, time_limit_s: float) -> Iterator[Trials]:
        """Lay the job's inputs out in a private folder and measure from there."""
        with tempfile.TemporaryDirectory(prefix="castore-") as folder:
            for name, array in job.inputs.items():
                Path(folder, f"input-{name}").write_bytes(array.tobytes())
            trials = _WorkerTrials(self._name, job, Path(folder), policy, time_limit_s)
            try:
                yield trials
            finally:
                trials.stop()


class _WorkerTrials:
    def __init__(
        self,
        device: str,
        job: Job,
        folder: Path,
        policy: MeasuringPolicy,
        time_limit_s: float,
    ) -> None:
        self._device = device
        self._job = job
        self._folder = folder
        self._policy = policy
        self._time_limit_s = time_limit_s
        self._worker: WorkerProcess | None = None
        self._clock: Clock | None = None
        # Most candidates give the same bits, and comparing costs more than hashing.
        self._verdicts: dict[str, Verdict] = {}

    def measure(
        self, schedule: Schedule, program: Program, *, samples: int, dispatches: int
    ) -> Observation | Failure:
        """Have a worker run the candidate, and judge what it wrote."""
        worker, clock = self._running()
        message: dict[str, Value] = {
            "op": "measure",
            "program": program.to_value(),
            "samples": samples,
            "warmups": self._policy.warmups,
            "dispatches": dispatches,
        }
        try:
            reply = worker.ask(message, time_limit_s=self._time_limit_s)
            seen = self._judged(schedule, reply, clock)
        except WorkerLostError as error:
            seen = Failure(schedule, "worker", error.reason)
        except MalformedError as error:
            seen = Failure(schedule, "worker", f"the worker talks nonsense: {error}")
        if isinstance(seen, Failure):
            # A device that is lost, inputs that are spoilt, memory that was written over: what
            # one candidate did must not be held against the next.
            self.stop()
        return seen

    def stop(self) -> None:
        """End the worker; the next measurement starts another."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _running(self) -> tuple[WorkerProcess, Clock]:
        if self._worker is None:
            self._worker = WorkerProcess(str(self._folder))
            self._clock = self._load(self._worker)
        assert self._clock is not None  # noqa: S101 - set together with the worker
        return self._worker, self._clock

    def _load(self, worker: WorkerProcess) -> Clock:
        message: dict[str, Value] = {
            "op": "load",
            "device": self._device,
            "folder": str(self._folder),
            "inputs": [spec.to_value() for spec in self._job.signature.inputs],
            "output": self._job.signature.output.to_value(),
        }
        if self._clock is not None:
            message["clock"] = {"source": self._clock.source, "tick_ns": self._clock.tick_ns}
        try:
            reply = worker.ask(message, time_limit_s=START_LIMIT_S)
        except WorkerLostError as error:
            self.stop()
            raise DeviceUnavailableError(self._device, error.reason) from None
        if reply.has("failure"):
            self.stop()
            raise DeviceUnavailableError(self._device, reply.text("failure"))
        clock = reply.fields("clock")
        return Clock(clock.text("source"), clock.number("tick_ns"))

    def _judged(self, schedule: Schedule, reply: Fields, clock: Clock) -> Observation | Failure:
        if reply.has("failure"):
            return Failure(schedule, reply.text("stage"), reply.text("failure"))
        changed = self._changed_inputs(reply)
        if changed:
            return Failure(schedule, "oracle", f"wrote into its input {', '.join(changed)}")
        reports = []
        for dispatch in ("first", "last"):
            verdict = self._verdict(dispatch)
            if verdict.reason:
                return Failure(schedule, "oracle", f"{dispatch} dispatch: {verdict.reason}")
            reports.append(verdict.report)
        return Observation(_samples(reply), clock.source, _worst(reports))

    def _changed_inputs(self, reply: Fields) -> list[str]:
        now = reply.fields("inputs")
        return [name for name, want in self._job.input_digests.items() if now.text(name) != want]

    def _verdict(self, dispatch: str) -> Verdict:
        data = (self._folder / dispatch).read_bytes()
        key = digest(data)
        if key not in self._verdicts:
            self._verdicts[key] = self._compared(data)
        return self._verdicts[key]

    def _compared(self, data: bytes) -> Verdict:
        output = self._job.signature.output
        got = np.frombuffer(data[: output.size_bytes], output.dtype).reshape(output.shape)
        verdict = judge(got, self._job.expected, self._job.tolerance)
        if data[output.size_bytes :] != poison(GUARD_BYTES):
            verdict = dataclasses.replace(verdict, reason="wrote outside its output")
        return verdict


def _worst(reports: list[ComparisonReport]) -> ComparisonReport:
    return max(reports, key=lambda report: report.absolute_error_max)


def _samples(reply: Fields) -> tuple[float, ...]:
    raw = reply.get("samples_ns")
    values = raw if isinstance(raw, list) else []
    return tuple(value for value in values if type(value) is int or type(value) is float)
