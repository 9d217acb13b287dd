import subprocess
import sys

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


def test_without_shtab_the_command_says_how_to_get_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.delitem(sys.modules, "castore.integrations.completion", raising=False)
    ended = run("completion", "zsh")
    assert ended.status == 9
    assert "pip install 'castore[completion]'" in ended.err
