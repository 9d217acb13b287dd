"""The wgpu device: real WGSL on whatever adapter WebGPU finds.

It is used inside a worker process only. Timestamps of the GPU are ticks whose
length WebGPU does not tell, so they are calibrated against the completion clock
(submission until the results can be read); where the two do not agree about the
length of a tick, that clock is used for the whole run, and the result says so.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import wgpu

from castore.errors import CastoreError, MalformedError
from castore.format.value import Value
from castore.tuning.device import Clock
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.host import cpu_silicon, device_name, operating_system
from castore.tuning.limits import violation
from castore.tuning.program import GUARD_BYTES, ArraySpec, Program, WgslProgram
from castore.tuning.statistics import COMPLETION_CLOCK, GPU_TIMESTAMP
from castore.tuning.topology_manifest import manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


_TIMESTAMP_FEATURE = "timestamp-query"
_STAMPS_BYTES = 16
_USAGE = wgpu.BufferUsage

_FAULT = re.compile(r"^Shader (?:'.*' )?(?:parsing|validation) error: (.+)$", re.MULTILINE)
_PLACE = re.compile(r"┌─ .*?:(\d+):\d+$", re.MULTILINE)
_BESIDE = re.compile(r"^ *(?:│ [ │]*\^[ ^]* |= )(\S.*)$", re.MULTILINE)
"""The words beside a caret, and the notes below the drawing."""

_CALIBRATION_NS = 20_000_000
_CALIBRATION_DISPATCHES_MAX = 2**14
_CALIBRATIONS = 5
_AGREEMENT = 0.15
"""How far calibrations may lie apart, and from one nanosecond to count as one."""

# Work that a compiler cannot leave out, far below the loop limit of any driver.
_CALIBRATION_WGSL = """
    @group(0) @binding(0) var<storage, read_write> sink: array<u32>;

    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        var state = id.x + 1u;
        for (var step = 0u; step < 2048u; step++) { state = state * 1664525u + 1013904223u; }
        sink[id.x] = state;
    }
"""
_CALIBRATION_WORKGROUPS = 64


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pipeline with its buffers, and how to time it."""

    timer: _Timer
    pipeline: Any
    bind_group: Any
    dispatch: tuple[int, int, int]
    clock: Clock

    def run(self, dispatches: int) -> int:
        """Run so many dispatches in one pass and return the nanoseconds."""
        ticks, clock_ns = self.timer.time(self, dispatches)
        if self.clock.source == GPU_TIMESTAMP:
            return round(ticks * self.clock.tick_ns)
        return clock_ns


class _Timer:
    """Runs passes and reads both clocks."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401 - wgpu has no useful types
        self._device = device
        self._queries = None
        if _TIMESTAMP_FEATURE in device.features:
            self._queries = device.create_query_set(type="timestamp", count=2)
        usage = _USAGE.QUERY_RESOLVE | _USAGE.COPY_SRC | _USAGE.COPY_DST
        self._stamps = device.create_buffer(size=_STAMPS_BYTES, usage=usage)
        usage = _USAGE.MAP_READ | _USAGE.COPY_DST
        self._readable = device.create_buffer(size=_STAMPS_BYTES, usage=usage)

    @property
    def has_timestamps(self) -> bool:
        """Whether the device has a clock of its own."""
        return self._queries is not None

    def time(self, work: _Pass, dispatches: int) -> tuple[int, int]:
        """Return the ticks between the pass's timestamps, and nanoseconds until completion."""
        encoder = self._device.create_command_encoder()
        compute = encoder.begin_compute_pass(**self._writes())
        compute.set_pipeline(work.pipeline)
        compute.set_bind_group(0, work.bind_group)
        for _ in range(dispatches):
            compute.dispatch_workgroups(*work.dispatch)
        compute.end()
        if self._queries is not None:
            encoder.resolve_query_set(self._queries, 0, 2, self._stamps, 0)
        encoder.copy_buffer_to_buffer(self._stamps, 0, self._readable, 0, _STAMPS_BYTES)
        commands = encoder.finish()
        start_ns = time.perf_counter_ns()
        self._device.queue.submit([commands])
        # Mapping waits for all that was submitted before.
        self._readable.map_sync("READ")
        elapsed_ns = time.perf_counter_ns() - start_ns
        begin, end = np.frombuffer(self._readable.read_mapped(), np.uint64).tolist()
        self._readable.unmap()
        return end - begin, elapsed_ns

    def _writes(self) -> dict[str, Any]:
        if self._queries is None:
            return {}
        where = {"beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
        return {"timestamp_writes": {"query_set": self._queries, **where}}


class WgpuDevice:
    """Runs `WgslProgram`s on the adapter that WebGPU prefers."""

    def __init__(self) -> None:
        self._adapter = _adapter()
        self._limits = {name: int(value) for name, value in self._adapter.limits.items()}
        self._device: Any = None
        self._timer: Any = None
        self._clock = Clock(COMPLETION_CLOCK)
        self._buffers: dict[str, Any] = {}
        self._input_names: list[str] = []
        self._output_name = ""

    def topology(self) -> dict[str, Value]:
        """Return the adapter as hardware, and its driver, features and limits as software."""
        info = self._adapter.info
        silicon: dict[str, Value] = {
            "adapter_type": str(info.get("adapter_type", "")).lower(),
            "device": device_name(str(info.get("device", ""))),
            # 0 stands for an id that the platform does not tell.
            "vendor_id": int(info.get("vendor_id", 0)) or None,
            "device_id": int(info.get("device_id", 0)) or None,
        }
        if silicon["adapter_type"] == "cpu":
            silicon = {**cpu_silicon(), **silicon}
        software: dict[str, Value] = {
            "backend": str(info.get("backend_type", "")),
            "device_text": str(info.get("device", "")),
            "driver": str(info.get("vendor", "")),
            "driver_version": str(info.get("description", "")),
            "wgpu": importlib.metadata.version("wgpu"),
            "features": [str(name) for name in sorted(self._adapter.features)],
            "limits": dict[str, Value](sorted(self._limits.items())),
        }
        return manifest(silicon, {**software, **operating_system()})

    def load(
        self, inputs: Mapping[str, NDArray[Any]], output: ArraySpec, clock: Clock | None
    ) -> Clock:
        """Open the device, put the arrays into buffers, and choose the clock."""
        features = [_TIMESTAMP_FEATURE] if _TIMESTAMP_FEATURE in self._adapter.features else []
        self._device = self._adapter.request_device_sync(
            required_features=features, required_limits=_required(self._limits)
        )
        self._timer = _Timer(self._device)
        usage = _USAGE.STORAGE | _USAGE.UNIFORM | _USAGE.COPY_SRC | _USAGE.COPY_DST
        for name, array in inputs.items():
            data = np.ascontiguousarray(array)
            self._buffers[name] = self._device.create_buffer_with_data(data=data, usage=usage)
        usage = _USAGE.STORAGE | _USAGE.COPY_SRC | _USAGE.COPY_DST
        self._buffers[output.name] = self._device.create_buffer(
            size=output.size_bytes + GUARD_BYTES, usage=usage
        )
        self._input_names, self._output_name = list(inputs), output.name
        self._clock = clock or self._calibrated()
        return self._clock

    def prepare(self, program: Program) -> _Pass:
        """Check the program against the limits and compile it."""
        if not isinstance(program, WgslProgram):
            raise MalformedError(".language", "the wgpu device runs WGSL only")
        broken = violation(program, self._limits)
        if broken is not None:
            raise MalformedError(".program", broken)
        pipeline = self._pipeline(program.source, program.entry_point, dict(program.constants))
        entries = [
            {
                "binding": number,
                "resource": {
                    "buffer": self._buffers[binding.array],
                    "offset": 0,
                    "size": binding.size_bytes,
                },
            }
            for number, binding in enumerate(program.bindings)
        ]
        return self._pass(pipeline, entries, program.dispatch)

    def fill(self, data: bytes) -> None:
        """Give the output and its guard these bytes."""
        buffer = self._buffers[self._output_name]
        self._device.queue.write_buffer(buffer, 0, data)
        # Reading back waits, so that the copy is not timed with what follows.
        self._device.queue.read_buffer(buffer, 0, 4)

    def output(self) -> bytes:
        """Return the output's bytes and its guard's."""
        return bytes(self._device.queue.read_buffer(self._buffers[self._output_name]))

    def set_inputs(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Write other values into the buffers that candidates are given."""
        for name, array in inputs.items():
            self._device.queue.write_buffer(self._buffers[name], 0, np.ascontiguousarray(array))

    def inputs(self) -> dict[str, bytes]:
        """Return the bytes that the inputs hold now."""
        read = self._device.queue.read_buffer
        return {name: bytes(read(self._buffers[name])) for name in self._input_names}

    def _pipeline(self, source: str, entry_point: str, constants: dict[str, int]) -> Any:  # noqa: ANN401 - wgpu has no useful types
        try:
            module = self._device.create_shader_module(code=source)
        except wgpu.GPUValidationError as error:
            raise ShaderError(shader_fault(str(error), source)) from error
        compute = {"module": module, "entry_point": entry_point, "constants": constants}
        return self._device.create_compute_pipeline(layout="auto", compute=compute)

    def _pass(self, pipeline: Any, entries: list[Any], dispatch: tuple[int, int, int]) -> _Pass:  # noqa: ANN401 - wgpu has no useful types
        layout = pipeline.get_bind_group_layout(0)
        bind_group = self._device.create_bind_group(layout=layout, entries=entries)
        return _Pass(self._timer, pipeline, bind_group, dispatch, self._clock)

    def _calibrated(self) -> Clock:
        if not self._timer.has_timestamps:
            return Clock(COMPLETION_CLOCK)
        size = 4 * 64 * _CALIBRATION_WORKGROUPS
        sink = self._device.create_buffer(size=size, usage=_USAGE.STORAGE)
        entries = [{"binding": 0, "resource": {"buffer": sink, "offset": 0, "size": size}}]
        pipeline = self._pipeline(_CALIBRATION_WGSL, "main", {})
        work = self._pass(pipeline, entries, (_CALIBRATION_WORKGROUPS, 1, 1))
        dispatches = 1
        while self._timer.time(work, dispatches)[1] < _CALIBRATION_NS:
            if dispatches >= _CALIBRATION_DISPATCHES_MAX:
                break
            dispatches *= 2
        readings = [
            (self._timer.time(work, dispatches), self._timer.time(work, 3 * dispatches))
            for _ in range(_CALIBRATIONS)
        ]
        return clock_from(readings)


class ShaderError(CastoreError):
    """A shader does not compile; the message is of one line.

    Attributes:
        reason: The compiler's words, with the line of the shader.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


def shader_fault(told: str, source: str) -> str:
    """Return what a compiler's report says, and the line of the shader that it says it of.

    The report is a drawing: a line of the shader between bars, with carets and words below. Its
    line numbers are those of a text that the author never saw, filled in for one schedule.

    Args:
        told: The report.
        source: The shader.
    """
    first = _FAULT.search(told)
    if first is None:
        return " ".join(told.split())
    words = [first[1], *_BESIDE.findall(told)]
    place = _PLACE.search(told)
    lines = source.splitlines()
    if place is None or not 1 <= int(place[1]) <= len(lines):
        return "; ".join(words)
    return f"{'; '.join(words)}; in the line: {lines[int(place[1]) - 1].strip()}"


def clock_from(readings: list[tuple[tuple[int, int], tuple[int, int]]]) -> Clock:
    """Return the clock that pairs of measurements speak for.

    A tick's length is the slope between a short and a long run, which leaves out what
    submission and reading cost. Of the slopes, the least and the greatest are left out, as
    another process may get in the way once; the others must agree.

    Args:
        readings: For each of at least three pairs, (ticks, nanoseconds) of the short run and
            of the long one.
    """
    slopes = []
    for (short_ticks, short_ns), (long_ticks, long_ns) in readings:
        ticks, elapsed_ns = long_ticks - short_ticks, long_ns - short_ns
        if short_ticks <= 0 or ticks <= 0 or elapsed_ns <= 0:
            return Clock(COMPLETION_CLOCK)
        slopes.append(elapsed_ns / ticks)
    tick_ns = median(slopes)
    if any(abs(slope / tick_ns - 1) > _AGREEMENT for slope in sorted(slopes)[1:-1]):
        return Clock(COMPLETION_CLOCK)
    return Clock(GPU_TIMESTAMP, 1.0 if abs(tick_ns - 1) <= _AGREEMENT else tick_ns)


def _adapter() -> Any:  # noqa: ANN401 - wgpu has no useful types
    # What wgpu has to say is a page about every backend that it was built without.
    with contextlib.suppress(RuntimeError):
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        if adapter is not None:
            return adapter
    raise DeviceUnavailableError("wgpu", "no adapter was found")


def _required(limits: Mapping[str, int]) -> dict[str, int]:
    # A device has the smallest limits that WebGPU allows unless more is asked for.
    names = (
        "max-compute-workgroup-size-x",
        "max-compute-workgroup-size-y",
        "max-compute-workgroup-size-z",
        "max-compute-invocations-per-workgroup",
        "max-compute-workgroup-storage-size",
        "max-compute-workgroups-per-dimension",
        "max-storage-buffer-binding-size",
        "max-buffer-size",
        "max-storage-buffers-per-shader-stage",
    )
    return {name: limits[name] for name in names if name in limits}
