"""Identity of source: the same text is the same kernel, one token makes another."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from castore.errors import MalformedError
from castore.tuning import PythonImplementation, ScheduleSpace, WgslImplementation, kernels

SPACE = ScheduleSpace((), {})
SOURCE = """
import functools
import math as np

SCALE = 2
LOW, HIGH = 0, 3


def helper(x):
    return x * SCALE


def unrelated(x):
    return x - 1


@functools.cache
def shape(n):
    return np.floor(n)


def kernel(inputs, output, sizes, schedule):
    shape(LOW)
    for at in range(3):
        output[at] = helper(inputs["x"][at])
"""

_numbers = itertools.count()


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def of(source: str) -> str:
        name = f"source_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(source)
        return PythonImplementation(f"{name}:kernel", SPACE).source_digest()

    return of


@pytest.mark.parametrize(
    "same",
    [
        "\n\n# moved down\n" + SOURCE,
        SOURCE.replace("    return x * SCALE", "    # scaled\n\n    return x * SCALE  # done"),
        SOURCE.replace("    return x - 1", "    return x - 2"),
        SOURCE.replace("x * SCALE", "x  *  SCALE"),
        SOURCE.replace("        output", "                output"),
    ],
    ids=["line", "comments", "unrelated", "spaces", "indentation"],
)
def test_the_same_tokens_elsewhere_are_the_same_source(
    digest: Callable[[str], str], same: str
) -> None:
    assert digest(same) == digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(3)", "range(4)"),
        ("x * SCALE", "x + SCALE"),
        ("SCALE = 2", "SCALE = 3"),
        ("LOW, HIGH = 0", "LOW, HIGH = 1"),
        ("import math as np", "import cmath as np"),
        ("@functools.cache", "@functools.lru_cache"),
        ("SCALE = 2", "SCALE = 2\nif HIGH:\n    SCALE = 4"),
        ('["x"]', '["y"]'),
        ("        output[at]", "        pass\n    output[at]"),
    ],
)
def test_one_token_of_the_function_or_of_what_it_uses_makes_another_source(
    digest: Callable[[str], str], old: str, new: str
) -> None:
    assert digest(SOURCE.replace(old, new)) != digest(SOURCE)


def test_a_function_that_is_not_there_is_refused(digest: Callable[[str], str]) -> None:
    with pytest.raises(MalformedError, match="not defined"):
        digest("x = 1\n")
    with pytest.raises(MalformedError, match="cannot be found"):
        PythonImplementation("no_such_module_anywhere:f", SPACE).source_digest()
    with pytest.raises(MalformedError, match="module:name"):
        PythonImplementation("nonsense", SPACE).source_digest()


def wgsl() -> WgslImplementation:
    made = kernels.affine_f32.implementations["wgpu"]
    assert isinstance(made, WgslImplementation)
    return made


def test_a_template_is_the_same_whatever_its_indentation_and_line_ends() -> None:
    moved = "\n\n" + "\r\n".join("    " + line for line in wgsl().template.splitlines()) + "\n"
    assert dataclasses.replace(wgsl(), template=moved).source_digest() == wgsl().source_digest()


@pytest.mark.parametrize(
    "change",
    [
        {"template": "fn main() {}"},
        {"dispatch": ("1", "1", "1")},
        {"workgroup": ("workgroup_size", "2", "1")},
        {"workgroup_bytes": "4"},
        {"overrides": ()},
        {"derived": {"tile": "items"}},
        {"uniforms": ()},
        {"entry_point": "other"},
    ],
)
def test_every_part_of_a_wgsl_implementation_is_in_its_source(change: dict[str, object]) -> None:
    assert dataclasses.replace(wgsl(), **change).source_digest() != wgsl().source_digest()


def test_a_template_that_names_something_unknown_is_refused() -> None:
    kernel = kernels.affine_f32
    broken = dataclasses.replace(wgsl(), template="${nothing}")
    with pytest.raises(MalformedError, match="cannot be filled in"):
        broken.program(kernel, broken.space.default_schedule(kernel.sizes))


def test_a_kernel_text_names_the_problem_with_sorted_sizes() -> None:
    assert kernels.matmul_f32.text == "matmul_f32[k=192,m=192,n=192]"
    assert kernels.matmul_f32.sized(k=8).text == "matmul_f32[k=8,m=192,n=192]"


@pytest.mark.parametrize("sizes", [{"q": 4}, {"m": 0}, {"m": -1}, {"m": 1.5}])
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(MalformedError):
        kernels.matmul_f32.sized(**sizes)


def test_an_unknown_kernel_names_those_that_there_are() -> None:
    with pytest.raises(KeyError, match="affine_f32, matmul_f32"):
        kernels.by_id("nothing")
    assert kernels.by_id("affine_f32") is kernels.affine_f32
