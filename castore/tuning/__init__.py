"""Tuning: find the best schedule of a kernel on a device, and keep it with its evidence.

`tune` measures and stores, `find` looks up, `topology` says what this machine is.
Names are loaded when first used; `find` needs neither numpy nor a device when it is
told the topology.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from castore.tuning import kernels
    from castore.tuning.device import Clock, Device, LocalDevice
    from castore.tuning.errors import (
        DeviceUnavailableError,
        NestedTuningError,
        NothingAcceptableError,
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
    from castore.tuning.finder import Found, Missing, find
    from castore.tuning.kernel import Kernel, Signature, Tolerance
    from castore.tuning.machine import topology
    from castore.tuning.manifests import CertificationManifest, Provenance, TuningManifest
    from castore.tuning.program import ArraySpec
    from castore.tuning.python_source import PythonImplementation
    from castore.tuning.records import (
        Applicability,
        CandidateResult,
        ComparisonReport,
        Effort,
        Failure,
        MeasuringPolicy,
    )
    from castore.tuning.replay import Recorded, ReplayDevice
    from castore.tuning.space import Knob, ScheduleSpace
    from castore.tuning.statistics import TimingSummary
    from castore.tuning.topology_manifest import silicon_id
    from castore.tuning.tuner import TuneResult, tune
    from castore.tuning.wgsl import WgslImplementation

_HOMES = {
    "Applicability": "records",
    "ArraySpec": "program",
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
    "Kernel": "kernel",
    "Knob": "space",
    "LocalDevice": "device",
    "MeasuringPolicy": "records",
    "Missing": "finder",
    "NestedTuningError": "errors",
    "NothingAcceptableError": "errors",
    "Provenance": "manifests",
    "PythonImplementation": "python_source",
    "Recorded": "replay",
    "ReplayDevice": "replay",
    "RoundBegan": "events",
    "ScheduleSpace": "space",
    "Signature": "kernel",
    "TimingSummary": "statistics",
    "Tolerance": "kernel",
    "Trial": "evidence",
    "TuneResult": "tuner",
    "TuningManifest": "manifests",
    "UnknownKernelError": "errors",
    "WgslImplementation": "wgsl",
    "find": "finder",
    "silicon_id": "topology_manifest",
    "topology": "machine",
    "tune": "tuner",
}

__all__ = [
    "Applicability",
    "ArraySpec",
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
    "Kernel",
    "Knob",
    "LocalDevice",
    "MeasuringPolicy",
    "Missing",
    "NestedTuningError",
    "NothingAcceptableError",
    "Provenance",
    "PythonImplementation",
    "Recorded",
    "ReplayDevice",
    "RoundBegan",
    "ScheduleSpace",
    "Signature",
    "TimingSummary",
    "Tolerance",
    "Trial",
    "TuneResult",
    "TuningManifest",
    "UnknownKernelError",
    "WgslImplementation",
    "find",
    "kernels",
    "silicon_id",
    "topology",
    "tune",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for."""
    if name == "kernels":
        return import_module("castore.tuning.kernels")
    if name not in _HOMES:
        raise AttributeError(f"module 'castore.tuning' has no attribute {name!r}")
    found = getattr(import_module(f"castore.tuning.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
