"""What an adapter allows, and whether a program keeps to it.

The check is ours because wgpu's has holes: sizes that come from override constants
and workgroup memory beyond the limit have compiled and run, with whatever result.
A limit that the topology does not state is not checked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from castore.tuning.program import Program, WgslProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from castore.format.value import Value


def limits_of(topology: Mapping[str, Value]) -> dict[str, int]:
    """Return the limits in a topology manifest, by WebGPU's names; empty where it has none."""
    software = topology.get("software")
    limits = software.get("limits") if isinstance(software, dict) else None
    if not isinstance(limits, dict):
        return {}
    return {name: value for name, value in limits.items() if type(value) is int}


def violation(program: Program, limits: Mapping[str, int]) -> str | None:
    """Return which limit the program breaks, in words, or None when it keeps to all."""
    if not isinstance(program, WgslProgram):
        return None
    for what, needed, name in _demands(program):
        allowed = limits.get(name)
        if allowed is not None and needed > allowed:
            return f"{what} of {needed} exceeds {name} = {allowed}"
    return None


def _demands(program: WgslProgram) -> list[tuple[str, int, str]]:
    storage = [b.size_bytes for b in program.bindings if b.access != "uniform"]
    uniform = [b.size_bytes for b in program.bindings if b.access == "uniform"]
    x, y, z = program.workgroup
    return [
        ("workgroup size x", x, "max-compute-workgroup-size-x"),
        ("workgroup size y", y, "max-compute-workgroup-size-y"),
        ("workgroup size z", z, "max-compute-workgroup-size-z"),
        ("workgroup of", math.prod(program.workgroup), "max-compute-invocations-per-workgroup"),
        ("workgroup memory", program.workgroup_bytes, "max-compute-workgroup-storage-size"),
        ("dispatch", max(program.dispatch), "max-compute-workgroups-per-dimension"),
        ("storage binding", max(storage, default=0), "max-storage-buffer-binding-size"),
        ("buffer", max(storage + uniform, default=0), "max-buffer-size"),
        ("uniform binding", max(uniform, default=0), "max-uniform-buffer-binding-size"),
        ("storage buffer count", len(storage), "max-storage-buffers-per-shader-stage"),
    ]
