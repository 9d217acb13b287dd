"""The layers hold, modules stay small and say what they own, and importing costs little."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "castore"
MODULES = sorted(PACKAGE.rglob("*.py"))
LINES_MAX = 500
VAGUE_NAMES = {"utils", "util", "helpers", "common", "base", "core", "misc"}
LAZY = ("blake3", "msgpack", "zstandard", "numpy", "wgpu", "platformdirs", "rich")

each_module = pytest.mark.parametrize(
    "module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE))
)


def loaded_by(code: str, *arguments: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after running `code`."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    return set(ran.stderr.split())


def test_import_linter_holds_the_layers() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    found = str(command) if command.exists() else shutil.which("lint-imports")
    assert found, "import-linter is not installed"
    ran = subprocess.run(
        [found, "--no-cache"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@each_module
def test_a_module_says_what_it_owns(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text()))


@each_module
def test_a_module_stays_small(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= LINES_MAX, "split the noun by verb"


@each_module
def test_a_module_has_a_name_that_says_something(module: Path) -> None:
    assert module.stem not in VAGUE_NAMES


@each_module
def test_no_module_imports_at_its_top_what_windows_lacks(module: Path) -> None:
    at_top = ast.parse(module.read_text()).body
    names = {
        alias.name for node in at_top if isinstance(node, ast.Import) for alias in node.names
    } | {node.module for node in at_top if isinstance(node, ast.ImportFrom)}
    assert not names & {"fcntl", "pwd", "grp", "resource", "termios"}


@each_module
def test_a_function_is_seldom_long(module: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno > 90]
    assert not long


def test_importing_castore_loads_nothing_that_it_may_never_need() -> None:
    loaded = loaded_by("import castore")
    assert not loaded & set(LAZY)
    assert "castore.store" not in loaded


def test_every_public_name_is_there_and_documented() -> None:
    import castore  # noqa: PLC0415 - only this test needs it in this process

    for name in castore.__all__:
        assert getattr(castore, name) is not None
    assert castore.Store.put.__doc__
    assert set(castore.__all__) <= set(dir(castore))


def test_using_a_store_loads_no_optional_package(tmp_path: Path) -> None:
    code = (
        "import castore, sys\n"
        "s = castore.open(sys.argv[1])\n"
        "s.record('tuning', '5a' * 32, 'k', {'a': 1})\n"
        "s.lookup('tuning', '5a' * 32, 'k')"
    )
    assert not loaded_by(code, str(tmp_path / "s")) & {"numpy", "wgpu", "rich", "platformdirs"}


def test_listing_refs_with_the_command_loads_no_numpy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from castore.cli.main import main\n"
        "try:\n    main(['--store', sys.argv[1], 'ls'])\n"
        "except SystemExit:\n    pass"
    )
    subprocess.run(
        [sys.executable, "-c", "import castore, sys; castore.open(sys.argv[1])", tmp_path / "s"],
        check=True,
        env={**os.environ},
        cwd=REPOSITORY,
    )
    assert not loaded_by(code, str(tmp_path / "s")) & {"numpy", "wgpu"}
