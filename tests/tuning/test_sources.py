"""Identity of source: the same text is the same kernel, one token makes another."""

import dataclasses
import importlib.machinery
import itertools
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from castore.errors import MalformedError
from castore.tuning import (
    PythonImplementation,
    ScheduleSpace,
    WgslImplementation,
    kernels,
)
from castore.tuning.errors import SourceUnavailableError
from castore.tuning.python_source import deferred

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
        SOURCE.replace("x * SCALE", "x  *  SCALE"),
        SOURCE.replace("        output", "                output"),
    ],
    ids=["line", "comments", "spaces", "indentation"],
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
        # What another function does may reach this one: through a table, say.
        ("    return x - 1", "    return x - 2"),
    ],
)
def test_one_token_of_the_module_makes_another_source(
    digest: Callable[[str], str], old: str, new: str
) -> None:
    assert digest(SOURCE.replace(old, new)) != digest(SOURCE)


KERNEL = "def kernel(inputs, output, sizes, schedule):\n    {}\n"
REACHED = {
    "import": ("import other\n", "other.helper()"),
    "import as": ("import other as o\n", "o.helper()"),
    "from": ("from other import helper\n", "helper()"),
    "star": ("from other import *\n", "helper()"),
    "try": ("try:\n    import other\nexcept ImportError:\n    other = None\n", "other.helper()"),
    "if": ("if True:\n    from other import helper\nelse:\n    helper = None\n", "helper()"),
    "inside": ("", "from other import helper; helper()"),
    "class": ("class Box:\n    import other\n", "Box.other.helper()"),
    "through a third": ("import third\n", "third.other.helper()"),
}


@pytest.mark.parametrize("how", REACHED)
def test_a_changed_helper_in_another_module_makes_another_source(
    tmp_path: Path, digest: Callable[[str], str], how: str
) -> None:
    imports, body = REACHED[how]
    (tmp_path / "third.py").write_text("import other\n")
    (tmp_path / "other.py").write_text("def helper():\n    return 1\n")
    before = digest(imports + KERNEL.format(body))
    (tmp_path / "other.py").write_text("def helper():\n    return 2\n")
    assert digest(imports + KERNEL.format(body)) != before


IN_A_PACKAGE = {
    "relative": ("from .inner import helper\n", "helper()"),
    "relative module": ("from . import inner\n", "inner.helper()"),
    "upwards": ("from ..pack.inner import helper\n", "helper()"),
    "absolute": ("import top.pack.inner\n", "top.pack.inner.helper()"),
    "what the package defines": ("import top.pack.inner\n", "top.of_the_package()"),
}


@pytest.mark.parametrize("how", IN_A_PACKAGE)
def test_a_changed_helper_in_the_same_package_makes_another_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    imports, body = IN_A_PACKAGE[how]
    monkeypatch.syspath_prepend(str(tmp_path))
    top = f"top_{next(_numbers)}"
    pack = tmp_path / top / "pack"
    pack.mkdir(parents=True)
    (pack / "__init__.py").write_text("")
    source = (imports + KERNEL.format(body)).replace("top", top)
    (pack / "kernels.py").write_text(source)
    package, inner = tmp_path / top / "__init__.py", pack / "inner.py"
    package.write_text("def of_the_package():\n    return 0\n")
    inner.write_text("def helper():\n    return 0\n")
    changing = package if "of_the_package" in body else inner
    seen = set()
    for _ in range(2):
        changing.write_text(changing.read_text() + "x = 1\n")
        seen.add(PythonImplementation(f"{top}.pack.kernels:kernel", SPACE).source_digest())
    assert len(seen) == 2


AROUND = {
    "relative import": ("from .sub.inner import f\n", "pack/sub/__init__.py"),
    "absolute import": ("from top.sub.inner import f\n", "sub/__init__.py"),
    "what a package imports": ("from .sub.inner import f\n", "patches.py"),
    "the function's package": ("", "pack/__init__.py"),
    "the package around it": ("", "__init__.py"),
}


@pytest.mark.parametrize("how", AROUND)
def test_the_packages_that_an_import_runs_are_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    imports, changing = AROUND[how]
    monkeypatch.syspath_prepend(str(tmp_path))
    top = f"top_{next(_numbers)}"
    for package in ("", "sub", "pack", "pack/sub"):
        folder = tmp_path / top / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("from .inner import f\n")
        (folder / "inner.py").write_text("def f(): pass\n")
    (tmp_path / top / "pack" / "sub" / "__init__.py").write_text(f"import {top}.patches\n")
    (tmp_path / top / "patches.py").write_text("x = 1\n")
    (tmp_path / top / "pack" / "kernels.py").write_text(
        imports.replace("top", top) + KERNEL.format("pass")
    )
    seen = set()
    for _ in range(2):
        with (tmp_path / top / changing).open("a") as file:
            file.write("x = 1\n")
        seen.add(PythonImplementation(f"{top}.pack.kernels:kernel", SPACE).source_digest())
    assert len(seen) == 2


def test_what_the_packages_around_a_function_import_is_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    top = f"top_{next(_numbers)}"
    (tmp_path / top).mkdir()
    (tmp_path / top / "__init__.py").write_text("from . import other\n")
    (tmp_path / top / "kernels.py").write_text("import math\n" + KERNEL.format("pass"))
    seen = set()
    for number in range(2):
        (tmp_path / top / "other.py").write_text(f"x = {number}\n")
        seen.add(PythonImplementation(f"{top}.kernels:kernel", SPACE).source_digest())
    assert len(seen) == 1


def test_what_only_a_type_checker_imports_is_no_source(
    tmp_path: Path, digest: Callable[[str], str]
) -> None:
    source = "if TYPE_CHECKING:\n    import other\n" + KERNEL.format("pass")
    (tmp_path / "other.py").write_text("x = 1\n")
    before = digest(source)
    (tmp_path / "other.py").write_text("x = 2\n")
    assert digest(source) == before


def test_packages_of_others_are_no_source(tmp_path: Path, digest: Callable[[str], str]) -> None:
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other.py").write_text("x = 1\n")
    before = digest("import other\n" + KERNEL.format("pass"))
    (tmp_path / "other.py").write_text("x = 2\n")
    assert digest("import other\n" + KERNEL.format("pass")) == before


def test_a_compiled_helper_counts_by_its_bytes(
    tmp_path: Path, digest: Callable[[str], str]
) -> None:
    compiled = tmp_path / f"other{importlib.machinery.EXTENSION_SUFFIXES[-1]}"
    source = "import other\n" + KERNEL.format("other.helper()")
    seen = {digest(source)}
    for content in (b"\x7fELF 1", b"\x7fELF 2"):
        compiled.write_bytes(content)
        seen.add(digest(source))
    assert len(seen) == 3


def test_a_helper_that_cannot_be_parsed_counts_by_its_bytes(
    tmp_path: Path, digest: Callable[[str], str]
) -> None:
    source = "try:\n    import other\nexcept SyntaxError:\n    pass\n" + KERNEL.format("pass")
    (tmp_path / "other.py").write_bytes(b"print 'python 2'\n")
    before = digest(source)
    (tmp_path / "other.py").write_bytes(b"print 'python 3'\n\xff\0")
    assert digest(source) != before


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\n", "not defined"),
        ("def kernel(:\n", "cannot be read"),
        ("def kernel(): pass\n\0", "cannot be read"),
        ("# coding: no-such-coding\ndef kernel(): pass\n", "cannot be read"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_with_the_reason(
    digest: Callable[[str], str], source: str, reason: str
) -> None:
    with pytest.raises(SourceUnavailableError, match=reason):
        digest(source)


@pytest.mark.parametrize(
    "reference",
    [
        "no_such_module_anywhere:f",
        "no_such_package_anywhere.inner:f",
        "sys:exit",  # built in
        "zipimport:f",  # frozen
        "math.inner:f",  # no package
        "typed_in:f",  # made by exec
    ],
)
def test_a_module_without_a_source_file_is_refused_with_the_reason(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typed_in", types.ModuleType("typed_in"))
    with pytest.raises(SourceUnavailableError, match="cannot be read"):
        PythonImplementation(reference, SPACE).source_digest()


@pytest.mark.parametrize("reference", ["nonsense", ":f", "a:", "a:b.c", "a:b:c", "a b:c", len, 3])
def test_a_function_is_given_as_text_that_a_worker_can_import(reference: object) -> None:
    with pytest.raises(MalformedError, match="expected the text module:name"):
        PythonImplementation(reference, SPACE)  # type: ignore[arg-type]  # that is the point


def test_a_function_of_the_running_script_is_refused() -> None:
    with pytest.raises(MalformedError, match="move the function to a module"):
        PythonImplementation("__main__:f", SPACE)
    with pytest.raises(MalformedError, match="move the function to a module"):
        deferred("__main__:f")


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
        {"uniforms": ("x",)},
        {"entry_point": "other"},
    ],
)
def test_every_part_of_a_wgsl_implementation_is_in_its_source(change: dict[str, object]) -> None:
    assert dataclasses.replace(wgsl(), **change).source_digest() != wgsl().source_digest()


def test_a_template_that_names_something_unknown_is_refused() -> None:
    kernel = kernels.affine_f32
    broken = dataclasses.replace(wgsl(), template="${nothing}")
    with pytest.raises(MalformedError, match=r"\$\{nothing\} is not known; .* are contiguous, it"):
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
