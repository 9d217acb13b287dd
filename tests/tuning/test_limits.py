import dataclasses

import pytest

from castore.tuning import kernels
from castore.tuning.candidates import candidates_for
from castore.tuning.limits import limits_of, violation
from castore.tuning.program import Program, WgslProgram

LIMITS = {
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-workgroups-per-dimension": 65535,
    "max-storage-buffer-binding-size": 2**27,
    "max-buffer-size": 2**28,
    "max-uniform-buffer-binding-size": 65536,
    "max-storage-buffers-per-shader-stage": 8,
}


def program() -> WgslProgram:
    kernel = kernels.matmul_f32
    wgsl = kernel.implementations["wgpu"]
    made: Program = wgsl.program(kernel, wgsl.space.default_schedule(kernel.sizes))
    assert isinstance(made, WgslProgram)
    return made


def test_a_program_at_every_limit_is_accepted() -> None:
    at_limit = dataclasses.replace(
        program(), workgroup=(4, 4, 16), dispatch=(65535, 65535, 65535), workgroup_bytes=16384
    )
    assert violation(at_limit, LIMITS) is None


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"workgroup": (257, 1, 1)}, "max-compute-workgroup-size-x"),
        ({"workgroup": (1, 257, 1)}, "max-compute-workgroup-size-y"),
        ({"workgroup": (1, 1, 65)}, "max-compute-workgroup-size-z"),
        ({"workgroup": (16, 16, 2)}, "max-compute-invocations-per-workgroup"),
        ({"workgroup_bytes": 16385}, "max-compute-workgroup-storage-size"),
        ({"dispatch": (1, 65536, 1)}, "max-compute-workgroups-per-dimension"),
    ],
)
def test_one_past_a_limit_is_refused_with_its_name(change: dict[str, object], limit: str) -> None:
    assert limit in str(violation(dataclasses.replace(program(), **change), LIMITS))


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("max-storage-buffer-binding-size", 1000),
        ("max-buffer-size", 1000),
        ("max-storage-buffers-per-shader-stage", 2),
    ],
)
def test_buffers_beyond_a_limit_are_refused(limit: str, value: int) -> None:
    assert limit in str(violation(program(), {**LIMITS, limit: value}))


def test_a_uniform_beyond_its_limit_is_refused() -> None:
    kernel = kernels.affine_f32
    wgsl = kernel.implementations["wgpu"]
    made = wgsl.program(kernel, wgsl.space.default_schedule(kernel.sizes))
    assert "uniform" in str(violation(made, {**LIMITS, "max-uniform-buffer-binding-size": 7}))


def test_schedules_beyond_the_adapter_are_left_out_with_the_reason() -> None:
    topology = {"software": {"limits": dict(LIMITS)}}
    kept, skipped = candidates_for(kernels.affine_f32, "wgpu", topology, candidates_max=100)
    assert {c.schedule["workgroup_size"] for c in kept} == {32, 64, 128, 256}
    assert {f.schedule["workgroup_size"] for f in skipped.first} == {512, 1024}
    assert all(f.stage == "limits" and "exceeds max-" in f.reason for f in skipped.first)
    assert skipped.count == len(skipped.first) == 18


def test_a_topology_without_limits_has_none() -> None:
    assert limits_of({"software": {}}) == limits_of({}) == {}
