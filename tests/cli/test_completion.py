import subprocess
import sys
from pathlib import Path

import pytest

from castore.cli.parser import COMMANDS

from .conftest import Run


def test_the_completion_script_knows_commands_and_options(run: Run) -> None:
    pytest.importorskip("shtab", reason="completion is an optional extra")
    script = run("completion", "bash").out
    for word in (*COMMANDS, "--grace", "--finalist-samples"):
        assert word in script
    checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
    assert checked.returncode == 0


def test_the_shell_is_offered_kernels_and_folders(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("shtab", reason="completion is an optional extra")
    script = tmp_path / "castore.bash"
    script.write_text(run("completion", "bash").out)
    (tmp_path / "tunings").mkdir()
    (tmp_path / "turbine.json").write_text("")

    def offered(*words: str) -> list[str]:
        asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_castore"
        code = f'source {script}; {asked}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(
            ["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert offered("castore", "tune", "aff") == ["affine_f32"]
    for command in ("why", "show", "cat", "log", "restore"):
        assert offered("castore", command, "mat") == ["matmul_f32"]
    assert offered("castore", "--store", "tu") == ["tunings"]
    assert offered("castore", "ls", "--store", "tu") == ["tunings"]
    assert offered("castore", "put", "tur") == ["turbine.json"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_are_offered_kernels_too(shell: str, run: Run) -> None:
    pytest.importorskip("shtab", reason="completion is an optional extra")
    assert "(affine_f32 matmul_f32)" in run("completion", shell).out


def test_without_shtab_the_command_says_how_to_get_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.delitem(sys.modules, "castore.integrations.completion", raising=False)
    ended = run("completion", "zsh")
    assert ended.status == 9
    assert "pip install 'castore[completion]'" in ended.err
