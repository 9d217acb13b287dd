import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.tuning import ArraySpec, Kernel, Signature, kernels
from castore.tuning.inputs import uniform_f32
from castore.tuning.job import Job
from castore.tuning.oracle import judge
from castore.tuning.python_source import PythonImplementation, resolved

SIZES = st.integers(1, 70)


def agrees(kernel: Kernel, schedule: dict[str, int]) -> None:
    implementation = kernel.implementations["numpy"]
    assert isinstance(implementation, PythonImplementation)
    job = Job.of(kernel, seed=3)
    output = np.full(job.signature.output.shape, np.nan, np.float32)
    resolved(implementation.function)(job.inputs, output, kernel.sizes, schedule)
    assert judge(output, job.expected, kernel.tolerance, poison=0).reason == ""


@given(st.integers(1, 3000), st.sampled_from([0, 512, 1024]))
@settings(deadline=None)
def test_affine_in_blocks_agrees_with_the_oracle(n: int, block: int) -> None:
    agrees(kernels.affine_f32.sized(n=n), {"block": block})


@given(SIZES, SIZES, SIZES, st.sampled_from([24, 48]), st.sampled_from([24, 48]))
@settings(deadline=None)
def test_matmul_in_blocks_agrees_with_the_oracle(
    m: int, n: int, k: int, block_m: int, block_k: int
) -> None:
    schedule = {"block_m": block_m, "block_n": 24, "block_k": block_k}
    agrees(kernels.matmul_f32.sized(m=m, n=n, k=k), schedule)


def test_inputs_depend_on_seed_and_name_and_on_nothing_else() -> None:
    one = uniform_f32(1, "x", (8,))
    assert (one == uniform_f32(1, "x", (8,))).all()
    assert (one != uniform_f32(2, "x", (8,))).any()
    assert (one != uniform_f32(1, "y", (8,))).any()


def test_inputs_are_the_same_on_every_machine() -> None:
    want = ["0x1.c681180000000p-1", "0x1.16cb740000000p-1"]
    assert [float(value).hex() for value in uniform_f32(0, "x", (2,))] == want


def test_inputs_are_spread_over_minus_one_to_one() -> None:
    many = uniform_f32(0, "x", (4096,))
    assert many.min() >= -1
    assert many.max() < 1
    assert abs(float(many.mean())) < 0.05


@pytest.mark.parametrize("kernel", kernels.BUILT_IN, ids=lambda kernel: kernel.id)
def test_every_default_schedule_is_in_its_space(kernel: Kernel) -> None:
    for implementation in kernel.implementations.values():
        assert implementation.space.default_schedule(kernel.sizes)


@pytest.mark.parametrize("n", [1, 100, 512, 513, 2**20])
def test_no_block_of_affine_is_as_long_as_the_vector(n: int) -> None:
    space = kernels.affine_f32.implementations["numpy"].space
    blocks = [schedule["block"] for schedule in space.schedules({"n": n})]
    assert blocks == [0, *(2**power for power in range(9, 20) if 2**power < n)]


def test_blocks_of_matmul_grow_with_the_matrix() -> None:
    space = kernels.matmul_f32.implementations["numpy"].space

    def blocks(n: int) -> set[int]:
        return {schedule["block_n"] for schedule in space.schedules({"m": 1, "k": 1, "n": n})}

    assert blocks(1) == blocks(48) == {24, 48}
    assert blocks(49) == blocks(96) == {24, 48, 96}
    assert blocks(97) == blocks(1000) == {24, 48, 96, 192}
    assert space.default_schedule({"m": 1, "n": 1, "k": 1})


def test_a_job_is_fixed_before_any_candidate_and_names_itself_by_digests() -> None:
    job = Job.of(kernels.affine_f32.sized(n=100), seed=5)
    again = Job.of(kernels.affine_f32.sized(n=100), seed=5)
    other = Job.of(kernels.affine_f32.sized(n=100), seed=6)
    assert job.expected_digest == again.expected_digest != other.expected_digest
    assert job.input_digests == again.input_digests != other.input_digests
    with pytest.raises(ValueError, match="read-only"):
        job.expected[0] = 1


SPEC = ArraySpec("y", "float32", (4,))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"make_inputs": lambda *_: None}, ".make_inputs: expected a mapping of arrays by name"),
        ({"make_inputs": lambda *_: [np.zeros(4)]}, ".make_inputs: expected a mapping"),
        (
            {"make_inputs": lambda *_: {}},
            ".make_inputs.coefficients: expected float32 (2,), got NoneType",
        ),
        (
            {"make_inputs": lambda *_: {"coefficients": [0.0, 0.0]}},
            ".make_inputs.coefficients: expected float32 (2,), ",
        ),
        ({"make_inputs": lambda *_: {"coefficients": np.zeros(2)}}, "got float64 (2,)"),
        ({"signature": lambda _: None}, ".signature: expected a Signature, got None"),
        ({"signature": lambda _: Signature(SPEC, SPEC)}, ".signature.inputs: expected a tuple"),
        ({"signature": lambda _: Signature((None,), SPEC)}, ".signature.inputs[0]: expected an"),
        ({"signature": lambda _: Signature((), None)}, ".signature.output: expected an ArraySpec"),
        ({"oracle": lambda _: np.zeros(5)}, ".oracle: expected shape (4,), got (5,)"),
        ({"oracle": lambda _: None}, ".oracle: expected float64, got object"),
        ({"oracle": lambda _: [[0.0], [0.0, 0.0]]}, ".oracle: expected an array: "),
        ({"oracle": lambda _: np.zeros(4, complex)}, ".oracle: expected float64, got complex128"),
        ({"oracle": lambda _: np.array(["1"] * 4)}, ".oracle: expected float64, got <U1"),
    ],
)
def test_arrays_that_are_not_as_the_signature_says_are_refused(
    change: dict[str, Any], said: str
) -> None:
    kernel = dataclasses.replace(kernels.affine_f32.sized(n=4), **change)
    with pytest.raises(MalformedError, match=re.escape(said)):
        Job.of(kernel, seed=0)
    if "signature" in change:
        with pytest.raises(MalformedError, match=re.escape(said)):
            kernel.problem  # noqa: B018 - it is read for what it raises
