"""WGSL on a real adapter."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import castore
from castore.store.store import Store
from castore.tuning import (
    Evidence,
    Found,
    Kernel,
    WgslImplementation,
    find,
    kernels,
    topology,
    tune,
)
from castore.tuning.device import Observation, Trials
from castore.tuning.job import Job
from castore.tuning.limits import limits_of
from castore.tuning.program import WgslProgram
from castore.tuning.records import Failure, MeasuringPolicy
from castore.tuning.space import subset
from castore.tuning.worker_device import WorkerDevice

pytestmark = pytest.mark.adapter


@contextmanager
def workbench(kernel: Kernel, *, time_limit_s: float = 60.0) -> Iterator[Trials]:
    job = Job.of(kernel, seed=2)
    device = WorkerDevice("wgpu")
    with device.trials(job, policy=MeasuringPolicy(), time_limit_s=time_limit_s) as trials:
        yield trials


def wgsl(kernel: Kernel) -> WgslImplementation:
    made = kernel.implementations["wgpu"]
    assert isinstance(made, WgslImplementation)
    return made


def default_program(kernel: Kernel) -> WgslProgram:
    return wgsl(kernel).program(kernel, wgsl(kernel).space.default_schedule(kernel.sizes))


def changed(kernel: Kernel, old: str, new: str) -> WgslProgram:
    program = default_program(kernel)
    assert old in program.source
    return dataclasses.replace(program, source=program.source.replace(old, new))


def measure(trials: Trials, program: WgslProgram) -> Observation | Failure:
    return trials.measure({}, program, samples=1, dispatches=1)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.affine_f32.sized(n=1),
        kernels.affine_f32.sized(n=4097),
        kernels.matmul_f32.sized(m=1, n=1, k=1),
        kernels.matmul_f32.sized(m=33, n=65, k=17),
        kernels.matmul_f32.sized(m=64, n=31, k=100),
    ],
    ids=lambda kernel: kernel.text,
)
def test_wgsl_agrees_with_the_oracle_for_schedules_all_over_the_space(kernel: Kernel) -> None:
    space = wgsl(kernel).space
    schedules = subset(
        list(space.schedules(kernel.sizes)),
        space.default_schedule(kernel.sizes),
        budget=12,
        seed_text=kernel.text,
    )
    with workbench(kernel) as trials:
        for schedule in schedules:
            program = wgsl(kernel).program(kernel, schedule)
            seen = trials.measure(schedule, program, samples=1, dispatches=2)
            assert isinstance(seen, Observation), seen
            assert seen.report.compared > 0


@pytest.mark.parametrize(
    "kernel",
    [kernels.affine_f32.sized(n=2**14), kernels.matmul_f32.sized(m=64, n=64, k=64)],
    ids=lambda kernel: kernel.id,
)
def test_both_kernels_are_tuned_found_and_not_tuned_again(store: Store, kernel: Kernel) -> None:
    result = tune(
        store, kernel, device="wgpu", candidates_max=6, samples=2, finalists=2, finalist_samples=3
    )
    assert result.median_ns > 0
    assert result.winner.timing.source in ("gpu-timestamp", "completion-clock")
    assert result.failures == ()
    found = find(store, kernel, topology=topology("wgpu"))
    assert isinstance(found, Found)
    assert found.object == result.object
    assert tune(store, kernel, device="wgpu").was_stored
    evidence = Evidence.from_value(store.get(result.manifest.evidence))
    assert len(evidence.trials) == 6


def test_the_topology_tells_hardware_and_driver_apart() -> None:
    found = topology("wgpu")
    silicon, software = found["silicon"], found["software"]
    assert isinstance(silicon, dict)
    assert isinstance(software, dict)
    assert {"adapter_type", "device"} <= silicon.keys()
    assert {"backend", "wgpu", "features", "limits"} <= software.keys()
    assert "stackgroup_min_size" not in software
    assert limits_of(found)["max-compute-invocations-per-workgroup"] >= 128
    if silicon["adapter_type"] == "cpu":
        assert "cores" in silicon
    assert "LLVM" not in str(silicon["device"])
    assert castore.encode(found)


def test_a_shader_that_does_not_compile_is_rejected_with_the_compilers_words() -> None:
    kernel = kernels.affine_f32.sized(n=256)
    with workbench(kernel) as trials:
        failure = measure(trials, changed(kernel, "coefficients.y", "nowhere"))
        assert isinstance(failure, Failure)
        assert failure.stage == "compile"
        # On one line, and each thing once.
        assert failure.reason.startswith("no definition in scope for identifier: `nowhere`; ")
        assert "; in the line: y[" in failure.reason
        assert failure.reason.count("coefficients.x") == 1
        assert not {"│", "\n"} & set(failure.reason)
        assert isinstance(measure(trials, default_program(kernel)), Observation)


def test_a_dispatch_that_takes_for_ever_is_killed_and_the_search_goes_on() -> None:
    """A huge dispatch, not an endless loop: some drivers end loops silently after 65,535 turns."""
    kernel = kernels.affine_f32.sized(n=256)
    work = "for (var turn = 0u; turn < 60000u; turn++) { x_sum = x_sum * 1.0001 + x[at % 256u]; }"
    endless = changed(kernel, "if (at < 256u) {", f"var x_sum = 0.0; {work} if (at < 256u) {{")
    endless = dataclasses.replace(
        endless,
        source=endless.source.replace("coefficients.y;", "coefficients.y + x_sum;"),
        dispatch=(65535, 65535, 1),
    )
    with workbench(kernel, time_limit_s=3.0) as trials:
        assert isinstance(measure(trials, default_program(kernel)), Observation)
        failure = measure(trials, endless)
        assert isinstance(failure, Failure)
        assert "no answer within 3 s" in failure.reason
        assert isinstance(measure(trials, default_program(kernel)), Observation)


def test_a_program_beyond_the_limits_is_refused_before_it_is_compiled() -> None:
    """An override of 4096 invocations, and 400 KB of workgroup memory, compile and run."""
    kernel = kernels.affine_f32.sized(n=256)
    wide = dataclasses.replace(
        default_program(kernel), constants=(("workgroup_size", 4096),), workgroup=(4096, 1, 1)
    )
    greedy = dataclasses.replace(default_program(kernel), workgroup_bytes=400_000)
    with workbench(kernel) as trials:
        for program in (wide, greedy):
            failure = measure(trials, program)
            assert isinstance(failure, Failure)
            assert (failure.stage, "exceeds max-" in failure.reason) == ("compile", True)


WRONG_SHADERS = {
    "writes the tail never": (
        "if (at < 300u)",
        "if (at < 299u)",
        "1 of 300 elements were not written",
    ),
    "writes past the end": ("if (at < 300u)", "if (at < 301u)", "wrote outside its output"),
    "writes even elements": ("if (at < 300u)", "if (at < 300u && at % 2u == 0u)", "not written"),
    "adds to its output": ("y[at] = ", "y[at] = y[at] + ", "first dispatch"),
    "looks whether the first element is right already": (
        "if (at < 300u)",
        "if (y[0] != coefficients.x * x[0] + coefficients.y && at < 300u)",
        "elements were not written",
    ),
    "writes where there is NaN only": (
        "if (at < 300u)",
        "if (at < 300u && (bitcast<u32>(y[at]) & 0x7fffffffu) > 0x7f800000u)",
        "last dispatch: 300 of 300 elements were not written",
    ),
    "computes something else": ("coefficients.x * ", "", "elements are wrong"),
    "returns NaN": ("coefficients.y;", "bitcast<f32>(0x7fc00000u | (at & 1u));", "got nan"),
    "writes into its input": (
        "y[at] = coefficients.x * x[at] + coefficients.y;",
        "y[at] = coefficients.x * x[at] + coefficients.y; x[at] = 0.0;",
        "wrote into its input x",
    ),
}


@pytest.mark.parametrize("case", WRONG_SHADERS)
def test_a_wrong_shader_is_rejected_with_the_reason(case: str) -> None:
    kernel = kernels.affine_f32.sized(n=300)
    old, new, reason = WRONG_SHADERS[case]
    program = changed(kernel, old, new)
    if "input" in case:
        writable = program.source.replace("<storage, read> x", "<storage, read_write> x")
        program = dataclasses.replace(program, source=writable)
    with workbench(kernel) as trials:
        failure = measure(trials, program)
        assert isinstance(failure, Failure)
        assert failure.stage == "oracle"
        assert reason in failure.reason
        assert isinstance(measure(trials, default_program(kernel)), Observation)
