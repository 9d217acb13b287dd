"""A device that measures in worker processes: one candidate's crash costs one candidate.

Each worker has a folder of its own, laid out anew, so that not even a candidate that
spoils files can spoil them for the next.
"""

from __future__ import annotations

import copy
import dataclasses
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.tuning.device import Clock, Observation, Trials
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.job import Job, digest
from castore.tuning.machine import forget, topology
from castore.tuning.oracle import judge
from castore.tuning.poison import FIRST, LAST, OTHER, TOLD, pattern, poison
from castore.tuning.program import GUARD_BYTES
from castore.tuning.records import Failure
from castore.tuning.topology_manifest import differing_fields
from castore.tuning.worker_process import START_LIMIT_S, WorkerLostError, WorkerProcess, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
        self._topology: dict[str, Value] | None = None

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return self._name

    @property
    def implementation(self) -> str:
        """The same: a kernel's implementations are keyed by it."""
        return self._name

    def topology(self) -> dict[str, Value]:
        """Return the manifest of the machine and the device: always the first answer.

        Raises:
            DeviceUnavailableError: There is no such device here.
        """
        if self._topology is None:
            self._topology = topology(self._name)
        return copy.deepcopy(self._topology)

    @contextmanager
    def trials(self, job: Job, *, policy: MeasuringPolicy, time_limit_s: float) -> Iterator[Trials]:
        """Measure in workers, all of which must find the topology that was told.

        Raises:
            DeviceUnavailableError: A worker cannot use the device, or finds another one.
        """
        trials = _WorkerTrials(self._name, job, policy, time_limit_s, self._topology)
        try:
            yield trials
        finally:
            trials.stop()


class _WorkerTrials:
    def __init__(
        self,
        device: str,
        job: Job,
        policy: MeasuringPolicy,
        time_limit_s: float,
        topology: dict[str, Value] | None,
    ) -> None:
        self._device = device
        self._job = job
        self._policy = policy
        self._time_limit_s = time_limit_s
        self._topology = topology
        self._worker: WorkerProcess | None = None
        self._clock: Clock | None = None
        # Most candidates give the same bits, and comparing costs more than hashing.
        self._verdicts: dict[tuple[str, bool, int], Verdict] = {}

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
            seen = self._judged(worker.folder, schedule, reply, clock)
        except WorkerLostError as error:
            seen = Failure(schedule, "worker", error.reason)
        except (MalformedError, OSError) as error:
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
            self._worker = WorkerProcess()
            try:
                self._clock = self._load(self._worker)
            except BaseException:
                self.stop()
                raise
        assert self._clock is not None  # noqa: S101 - set together with the worker
        return self._worker, self._clock

    def _load(self, worker: WorkerProcess) -> Clock:
        message: dict[str, Value] = {
            "op": "load",
            "device": self._device,
            "inputs": [spec.to_value() for spec in self._job.signature.inputs],
            "output": self._job.signature.output.to_value(),
        }
        if self._clock is not None:
            message["clock"] = {"source": self._clock.source, "tick_ns": self._clock.tick_ns}
        try:
            for kind, arrays in (("input", self._job.inputs), ("other", self._job.other_inputs)):
                for name, array in arrays.items():
                    (worker.folder / f"{kind}-{name}").write_bytes(array.tobytes())
            reply = worker.ask(message, time_limit_s=START_LIMIT_S)
        except WorkerLostError as error:
            raise DeviceUnavailableError(self._device, error.reason) from None
        except OSError as error:
            raise DeviceUnavailableError(self._device, f"no room for its inputs: {error}") from None
        if reply.has("failure"):
            forget()
            raise unavailable(self._device, reply)
        self._must_be_where_it_was(reply.fields("topology").values)
        clock = reply.fields("clock")
        return Clock(clock.text("source"), clock.number("tick_ns"))

    def _must_be_where_it_was(self, here: dict[str, Value]) -> None:
        if self._topology is None:
            self._topology = here
        if encode(here) != encode(self._topology):
            forget()
            fields = ", ".join(differing_fields(here, self._topology))
            raise DeviceUnavailableError(
                self._device, f"it is not what it was a moment ago; try again ({fields})"
            )

    def _judged(
        self, folder: Path, schedule: Schedule, reply: Fields, clock: Clock
    ) -> Observation | Failure:
        if reply.has("failure"):
            return Failure(schedule, reply.text("stage"), reply.text("failure"))
        changed = self._changed_inputs(reply)
        if changed:
            return Failure(schedule, "oracle", f"wrote into its input {', '.join(changed)}")
        reports = []
        for dispatch in _outputs(reply):
            verdict = self._verdict(folder, dispatch)
            if verdict.reason:
                return Failure(schedule, "oracle", f"{TOLD[dispatch]}: {verdict.reason}")
            reports.append(verdict.report)
        return Observation(_samples(reply), clock.source, _worst(reports))

    def _changed_inputs(self, reply: Fields) -> list[str]:
        now = reply.fields("inputs")
        return [name for name, want in self._job.input_digests.items() if now.text(name) != want]

    def _verdict(self, folder: Path, dispatch: str) -> Verdict:
        output = self._job.signature.output
        data = _read(folder / dispatch, output.size_bytes + GUARD_BYTES)
        bits = pattern(output.dtype, dispatch)
        result, guard = data[: output.size_bytes], data[output.size_bytes :]
        expected = self._job.other_expected if dispatch == OTHER else self._job.expected
        key = (digest(result), dispatch == OTHER, bits)
        if key not in self._verdicts:
            got = np.frombuffer(result, output.dtype).reshape(output.shape)
            self._verdicts[key] = judge(got, expected, self._job.tolerance, poison=bits)
        verdict = self._verdicts[key]
        if guard != poison(bits, GUARD_BYTES):
            return dataclasses.replace(verdict, reason="wrote outside its output")
        return verdict


def _outputs(reply: Fields) -> tuple[str, ...]:
    outputs = reply.texts("outputs")
    if not {FIRST, LAST} <= set(outputs) <= TOLD.keys():
        raise MalformedError(".outputs", f"unexpected {outputs}")
    return outputs


def _read(path: Path, size_bytes: int) -> bytes:
    # A candidate can write to the folder too: nothing here may block or fill the memory.
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size != size_bytes:
        raise MalformedError(path.name, f"expected a file of {size_bytes} bytes")
    return path.read_bytes()


def _worst(reports: list[ComparisonReport]) -> ComparisonReport:
    return max(reports, key=lambda report: report.absolute_error_max)


def _samples(reply: Fields) -> tuple[float, ...]:
    raw = reply.get("samples_ns")
    values = raw if isinstance(raw, list) else []
    return tuple(value for value in values if type(value) is int or type(value) is float)
