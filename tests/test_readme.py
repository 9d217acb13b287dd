"""What the README shows runs as it stands."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import castore
from castore import tuning

README = Path(__file__).parent.parent / "README.md"


def python_blocks() -> list[tuple[str, str]]:
    """Return what stands behind the word python, such as a file's name, and the text."""
    found = re.findall(
        r"^```python *(.*?)\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return [(name, text) for name, text in found]


def write_modules(folder: Path) -> None:
    for name, text in python_blocks():
        if name.endswith(".py"):
            (folder / name).write_text(text, "utf-8")


def test_the_python_examples_run_one_after_the_other(tmp_path: Path) -> None:
    """Those marked no-test need packages that castore's tests do not install."""
    blocks = [text for name, text in python_blocks() if not name]
    assert len(blocks) >= 4
    write_modules(tmp_path)
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks), "utf-8")
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.adapter
def test_the_kernel_in_the_readme_runs_on_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_modules(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = importlib.import_module("scale_kernel").scale_f32
    with castore.open(tmp_path / "store", durability="none") as store:
        result = tuning.tune(store, kernel, device="wgpu")
        assert result.manifest.failed == 0
        assert isinstance(
            tuning.find(store, kernel, topology=tuning.topology("wgpu")), tuning.Found
        )


def test_the_readme_names_every_command() -> None:
    text = README.read_text("utf-8")
    shown = subprocess.run(
        [sys.executable, "-m", "castore", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = re.findall(r"^    ([a-z]+)\b", shown, re.MULTILINE)
    assert len(commands) > 10
    assert [
        name for name in commands if f"`{name}`" not in text and f"castore {name}" not in text
    ] == []
