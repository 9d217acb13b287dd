"""Tuning: find the best schedule of a kernel on a device, and keep it with its evidence.

`tune` measures and stores, `find` looks up, `topology` says what this machine is.
Names are loaded when first used; `find` needs neither numpy nor a device when it is
told the topology.

A kernel of your own is a `Kernel`: sizes, a `Signature` of `ArraySpec`s (of float32, int32
or uint32), inputs from a seed (`uniform_f32` makes some), an oracle in float64, a
`Tolerance`, and an implementation for each kind of device. README.md has one in full.

- `WgslImplementation` for `wgpu`: a template with `${name}` for sizes, knobs and derived
  names, and expressions for the launch. `expression.evaluate` says what they may hold.
- `PythonImplementation` for `numpy`: the `module:name` of a function
  `f(inputs, output, sizes, schedule)` that fills the array `output` in place. A worker process
  imports it by that name, so it cannot live in the running script.
- `deferred("module:name")` stands for a function that is imported when it is called: give
  it as `make_inputs` and `oracle` where a lookup must not import numpy.
- Results hang on the function's module and on what it imports of your own; raise
  `semantic_version` when the meaning changes in another way.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from castore.tuning.errors import PackageMissingError

if TYPE_CHECKING:
    from castore.tuning import kernels
    from castore.tuning.device import Clock, Device, LocalDevice
    from castore.tuning.errors import (
        DeviceUnavailableError,
        KernelChangedError,
        NestedTuningError,
        NothingAcceptableError,
        SourceUnavailableError,
        UnknownKernelError,
    )
    from castore.tuning.events import (
        CandidateMeasured,
        CandidateRejected,
        Event,
        Finished,
        RoundBegan,
    )
    from castore.tuning.evidence import Evidence, Trial
    from castore.tuning.expression import evaluate
    from castore.tuning.finder import Found, Missing, find
    from castore.tuning.inputs import uniform_f32
    from castore.tuning.kernel import Implementation, Kernel, Signature, Tolerance
    from castore.tuning.machine import topology
    from castore.tuning.manifests import CertificationManifest, Provenance, TuningManifest
    from castore.tuning.program import ArraySpec, Binding, Program, PythonProgram, WgslProgram
    from castore.tuning.python_source import PythonImplementation, deferred
    from castore.tuning.records import (
        Applicability,
        CandidateResult,
        ComparisonReport,
        Effort,
        Failure,
        MeasuringPolicy,
    )
    from castore.tuning.replay import Recorded, ReplayDevice
    from castore.tuning.space import Knob, Schedule, ScheduleSpace
    from castore.tuning.statistics import TimingSummary
    from castore.tuning.topology_manifest import silicon_id
    from castore.tuning.tuner import TuneResult, tune
    from castore.tuning.wgsl import WgslImplementation

_HOMES = {
    "Applicability": "records",
    "ArraySpec": "program",
    "Binding": "program",
    "CandidateMeasured": "events",
    "CandidateRejected": "events",
    "CandidateResult": "records",
    "CertificationManifest": "manifests",
    "Clock": "device",
    "ComparisonReport": "records",
    "Device": "device",
    "DeviceUnavailableError": "errors",
    "Effort": "records",
    "Event": "events",
    "Evidence": "evidence",
    "Failure": "records",
    "Finished": "events",
    "Found": "finder",
    "Implementation": "kernel",
    "Kernel": "kernel",
    "KernelChangedError": "errors",
    "Knob": "space",
    "LocalDevice": "device",
    "MeasuringPolicy": "records",
    "Missing": "finder",
    "NestedTuningError": "errors",
    "NothingAcceptableError": "errors",
    "Program": "program",
    "Provenance": "manifests",
    "PythonImplementation": "python_source",
    "PythonProgram": "program",
    "Recorded": "replay",
    "ReplayDevice": "replay",
    "RoundBegan": "events",
    "Schedule": "space",
    "ScheduleSpace": "space",
    "Signature": "kernel",
    "SourceUnavailableError": "errors",
    "TimingSummary": "statistics",
    "Tolerance": "kernel",
    "Trial": "evidence",
    "TuneResult": "tuner",
    "TuningManifest": "manifests",
    "UnknownKernelError": "errors",
    "WgslImplementation": "wgsl",
    "WgslProgram": "program",
    "deferred": "python_source",
    "evaluate": "expression",
    "find": "finder",
    "silicon_id": "topology_manifest",
    "topology": "machine",
    "tune": "tuner",
    "uniform_f32": "inputs",
}

__all__ = [
    "Applicability",
    "ArraySpec",
    "Binding",
    "CandidateMeasured",
    "CandidateRejected",
    "CandidateResult",
    "CertificationManifest",
    "Clock",
    "ComparisonReport",
    "Device",
    "DeviceUnavailableError",
    "Effort",
    "Event",
    "Evidence",
    "Failure",
    "Finished",
    "Found",
    "Implementation",
    "Kernel",
    "KernelChangedError",
    "Knob",
    "LocalDevice",
    "MeasuringPolicy",
    "Missing",
    "NestedTuningError",
    "NothingAcceptableError",
    "PackageMissingError",
    "Program",
    "Provenance",
    "PythonImplementation",
    "PythonProgram",
    "Recorded",
    "ReplayDevice",
    "RoundBegan",
    "Schedule",
    "ScheduleSpace",
    "Signature",
    "SourceUnavailableError",
    "TimingSummary",
    "Tolerance",
    "Trial",
    "TuneResult",
    "TuningManifest",
    "UnknownKernelError",
    "WgslImplementation",
    "WgslProgram",
    "deferred",
    "evaluate",
    "find",
    "kernels",
    "silicon_id",
    "topology",
    "tune",
    "uniform_f32",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for."""
    if name == "kernels":
        return import_module("castore.tuning.kernels")
    if name not in _HOMES:
        raise AttributeError(f"module 'castore.tuning' has no attribute {name!r}")
    try:
        found = getattr(import_module(f"castore.tuning.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name == "numpy":
            raise PackageMissingError("numpy", "tune") from error
        raise
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
