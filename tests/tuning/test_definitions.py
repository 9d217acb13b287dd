"""What an author may write down as a kernel: refused early, or found again after tuning."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.store.store import Store
from castore.tuning import (
    ArraySpec,
    Found,
    Kernel,
    Knob,
    PythonImplementation,
    Recorded,
    ReplayDevice,
    ScheduleSpace,
    Tolerance,
    WgslImplementation,
    find,
    kernels,
    tune,
)
from castore.tuning.job import Job

DoubleKernel = Callable[..., Kernel]


@pytest.mark.parametrize("tolerance", [Tolerance(0, 1), Tolerance(np.float32(0), np.int64(1))])
def test_a_tolerance_of_whole_numbers_is_the_one_of_floats(tolerance: Tolerance) -> None:
    assert encode(tolerance.to_value()) == encode(Tolerance(0.0, 1.0).to_value())


def test_a_kernel_with_a_tolerance_of_whole_numbers_is_found_again(
    store: Store, double: DoubleKernel, topology: dict[str, Any]
) -> None:
    kernel = double(0, tolerance=Tolerance(0, 1))
    device = ReplayDevice(topology, "numpy", [({"mode": 0}, Recorded((1e6,)))])
    tune(store, kernel, device=device)
    assert isinstance(find(store, kernel, topology=device.topology()), Found)


@pytest.mark.parametrize("bad", [-1.0, float("inf"), float("nan"), True, None, "0.1", 1j])
def test_a_tolerance_that_is_no_number_of_at_least_zero_is_refused(bad: Any) -> None:
    with pytest.raises(MalformedError, match=r"\.tolerance\.relative"):
        Tolerance(0.0, bad)


@pytest.mark.parametrize(
    ("field", "bad", "where"),
    [
        ("id", "Double", r"\.id"),
        ("id", "", r"\.id"),
        ("id", None, r"\.id"),
        ("semantic_version", 1.0, r"\.semantic_version"),
        ("semantic_version", True, r"\.semantic_version"),
        ("semantic_version", -1, r"\.semantic_version"),
        ("sizes", {"N": 1}, r"\.sizes"),
        ("sizes", {"n": 0}, r"\.sizes\.n"),
        ("sizes", {"n": np.int64(4)}, r"\.sizes\.n.*\(int64\)"),
        ("sizes", {"n": 4, "mode": 1}, r"\.implementations\.numpy: mode is the name of a size"),
        ("tolerance", 1e-6, r"\.tolerance: expected a Tolerance"),
        ("implementations", {"numpy": print}, r"\.implementations\.numpy: expected a Python"),
    ],
)
def test_a_kernel_that_could_not_be_stored_is_refused(
    double: DoubleKernel, field: str, bad: object, where: str
) -> None:
    with pytest.raises(MalformedError, match=where):
        double(0, **{field: bad})


@pytest.mark.parametrize(
    ("default", "reason"),
    [
        ({}, "expected a value for each"),
        ({"a": 1, "b": 2}, "expected a value for each"),
        ({"a": 1.0}, r"\.default\.a"),
        ({"a": True}, r"\.default\.a"),
    ],
)
def test_a_default_that_does_not_fit_the_knobs_is_refused(default: Any, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        ScheduleSpace((Knob("a", (1, 2)),), default)


def test_a_space_with_two_knobs_of_a_name_or_one_text_of_constraints_is_refused() -> None:
    with pytest.raises(MalformedError, match="there twice"):
        ScheduleSpace((Knob("a", (1,)), Knob("a", (2,))), {"a": 1})
    with pytest.raises(MalformedError, match="expected a tuple of expressions"):
        ScheduleSpace((Knob("a", (1,)),), {"a": 1}, "a > 0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: ScheduleSpace(Knob("a", (1,)), {"a": 1}), r"\.knobs: expected a tuple of Knobs"),
        (lambda: ScheduleSpace(("a",), {"a": 1}), r"\.knobs: expected a Knob, got 'a'"),
        (lambda: ScheduleSpace((), [1]), r"\.default: expected a mapping"),
        (lambda: Knob("a", 1), r"\.knobs\.a: expected a tuple of integers"),
        (
            lambda: dataclasses.replace(kernels.affine_f32, sizes=[5]),
            r"\.sizes: expected a mapping by name, got \[5\]",
        ),
        (
            lambda: dataclasses.replace(kernels.affine_f32, implementations=("numpy",)),
            r"\.implementations: expected a mapping",
        ),
    ],
)
def test_a_field_of_another_shape_is_refused_by_its_name(
    make: Callable[[], object], where: str
) -> None:
    with pytest.raises(MalformedError, match=where):
        make()


def test_a_default_that_breaks_a_constraint_is_refused_with_the_constraint() -> None:
    space = ScheduleSpace((Knob("a", (1, 2)),), {"a": 2}, ("a < 9", "a * 4 <= n"))
    with pytest.raises(MalformedError, match=r"breaks 'a \* 4 <= n' of \.constraints"):
        space.default_schedule({"n": 4})


def test_a_default_of_no_knobs_value_is_refused_with_the_knob() -> None:
    with pytest.raises(MalformedError, match="'a' may not be 3"):
        ScheduleSpace((Knob("a", (1, 2)),), {"a": 3}).default_schedule({})


def test_an_oracle_of_less_precision_than_promised_is_refused(
    double: Callable[..., Kernel],
) -> None:
    kernel = double(0, oracle=lambda inputs: 2 * inputs["x"])
    with pytest.raises(MalformedError, match=r"\.oracle: expected float64, got float32"):
        Job.of(kernel, seed=1)


@pytest.mark.parametrize(
    ("array", "where"),
    [
        (("x", "float64", (4,)), r"\.x\.dtype: 'float64' is not one of float32, int32, uint32"),
        (("x", "float32", (4.0,)), r"\.x\.shape"),
        (("x", "float32", (0,)), r"\.x\.shape"),
        (("x", "float32", 4), r"\.x\.shape: expected a tuple"),
        (("x", "float32", [4]), r"\.x\.shape: expected a tuple"),
        (("../x", "float32", (4,)), r"\.arrays"),
    ],
)
def test_an_array_that_no_device_could_bind_is_refused(array: Any, where: str) -> None:
    with pytest.raises(MalformedError, match=where):
        ArraySpec(*array)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"workgroup": ("64", "1")}, r"\.workgroup: expected a tuple of three"),
        ({"workgroup": (64, 1, 1)}, r"\.workgroup: expected a tuple of three"),
        ({"dispatch": "n"}, r"\.dispatch: expected a tuple of three"),
        ({"derived": {"items": "1"}}, r"\.derived\.items: there is a knob"),
        ({"derived": {"Tile": "1"}}, r"\.derived"),
        ({"overrides": "workgroup_size"}, r"\.overrides: expected a tuple of names"),
        ({"uniforms": "coefficients"}, r"\.uniforms: expected a tuple of names"),
        ({"uniforms": ()}, r"\.uniforms: the template declares var<uniform>"),
    ],
)
def test_a_wgsl_implementation_that_contradicts_itself_is_refused(
    change: dict[str, Any], where: str
) -> None:
    made = kernels.affine_f32.implementations["wgpu"]
    assert isinstance(made, WgslImplementation)
    with pytest.raises(MalformedError, match=where):
        dataclasses.replace(made, **change)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"template": "${m} ${n}"},
            r"\$\{m\} is not known; .* are contiguous, items, n, work",
        ),
        ({"template": "$ ${n}"}, r"as in \$\{name\}"),
        ({"dispatch": ("m", "1", "1")}, "'m' is not known"),
        ({"uniforms": ("coefficient",)}, r"\.uniforms: coefficient: inputs are coefficients, x"),
    ],
)
def test_a_wgsl_implementation_that_names_what_is_not_there_is_refused(
    change: dict[str, Any], reason: str
) -> None:
    kernel = kernels.affine_f32
    made = kernel.implementations["wgpu"]
    assert isinstance(made, WgslImplementation)
    broken = dataclasses.replace(made, **change)
    with pytest.raises(MalformedError, match=reason):
        broken.program(kernel, broken.space.default_schedule(kernel.sizes))


def test_a_knob_that_nothing_uses_is_refused() -> None:
    made = kernels.affine_f32.implementations["wgpu"]
    assert isinstance(made, WgslImplementation)
    space = made.space
    more = ScheduleSpace((*space.knobs, Knob("idle", (1,))), {**space.default, "idle": 1})
    with pytest.raises(MalformedError, match=r"\.knobs\.idle: neither the template nor any"):
        dataclasses.replace(made, space=more)


def test_a_function_object_is_refused_with_the_text_that_might_name_it() -> None:
    with pytest.raises(MalformedError, match="which dataclasses:replace might name"):
        PythonImplementation(dataclasses.replace, ScheduleSpace((), {}))  # type: ignore[arg-type]


def test_an_override_that_nothing_gives_a_value_is_refused() -> None:
    kernel = kernels.affine_f32
    made = kernel.implementations["wgpu"]
    assert isinstance(made, WgslImplementation)
    broken = dataclasses.replace(made, overrides=("width",))
    with pytest.raises(MalformedError, match=r"\.overrides: width: sizes, knobs and derived"):
        broken.program(kernel, broken.space.default_schedule(kernel.sizes))
