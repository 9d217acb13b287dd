import subprocess
import sys

import pytest

import castore
from castore.cli.parser import COMMANDS, load
from castore.cli.status import MEANINGS, ExitStatus

from .conftest import Run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_tells_its_statuses_and_two_examples(command: str, run: Run) -> None:
    told = run(command, "--help")
    assert told.status == ExitStatus.DONE
    assert "exit status:\n  0  " in told.out
    _, _, examples = told.out.partition("examples:\n")
    lines = examples.splitlines()
    assert len(lines) >= 2
    assert all(f"castore {command}" in line or "castore --store" in line for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_help_is_wider_than_a_terminal(command: str) -> None:
    told = load(command).HELP
    lines = f"{told.description}\n{told.epilog}".splitlines()
    assert [line for line in lines if len(line) > 88] == []
    assert [line for line in told.description.splitlines() if len(line) > 85] == []


def test_the_help_has_the_whole_table_of_statuses(run: Run) -> None:
    told = run("--help").out
    for status, meaning in MEANINGS.items():
        assert f"  {status.value:<3}  {meaning}\n" in told
    assert set(MEANINGS) == set(ExitStatus)


def test_gc_tells_its_default_grace_period_in_days(run: Run) -> None:
    assert "(default: 14d)" in run("gc", "--help").out


def test_init_tells_whom_root_trusts(run: Run) -> None:
    told = " ".join(run("init", "--help").out.split())
    assert "root uses those of all users on purpose, unless every user may write them" in told


@pytest.mark.parametrize("command", ["tune", "why", "topology"])
def test_each_choice_of_a_device_is_explained(command: str, run: Run) -> None:
    told = " ".join(run(command, "--help").out.split())
    for what in ("wgpu: what WebGPU finds", "numpy: the CPU", "auto: wgpu where there is"):
        assert what in told


def test_without_a_command_the_help_goes_to_stderr(run: Run) -> None:
    told = run()
    assert (told.status, told.out) == (ExitStatus.USAGE, "")
    assert "commands:" in told.err


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").out == f"castore {castore.__version__}\n"


_LIGHT = """
import contextlib, io, sys
from castore.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main({arguments!r}) == 0
heavy = {{"numpy", "wgpu", "rich", "castore.tuning", "castore.integrations", "shtab"}}
heavy |= {{"castore.cli." + name for name in {unwanted!r}}}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ls"], ["fsck"], ["gc", "--dry-run"], ["stats"]]
)
def test_a_light_command_imports_nothing_heavy(arguments: list[str], run: Run) -> None:
    run("init")
    unwanted = sorted(COMMANDS.keys() - set(arguments))
    code = _LIGHT.format(arguments=arguments, unwanted=unwanted)
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "[]\n"
