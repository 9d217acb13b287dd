"""What the README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_python_examples_run_one_after_the_other(tmp_path: Path) -> None:
    """Those marked no-test need packages that castore's tests do not install."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) >= 4
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks), "utf-8")
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


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
