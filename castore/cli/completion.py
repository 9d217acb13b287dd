"""`castore completion`: print a completion script for a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli.parser import COMMANDS, Help, build
from castore.cli.status import ExitStatus

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output

HELP = Help(
    description="""\
Print a script that lets a shell complete castore's commands, options, folders and
built-in kernels. Needs the package shtab: pip install 'castore[completion]'.
Changes nothing.""",
    examples=(
        "castore completion bash > ~/.local/share/bash-completion/completions/castore",
        "castore completion zsh > ~/.zfunc/_castore",
    ),
    meanings={ExitStatus.INCOMPLETE: "shtab is not installed"},
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the script."""
    try:
        from castore.integrations.completion import script  # noqa: PLC0415 - optional
    except ImportError:
        output.note("castore: completion needs shtab; run: pip install 'castore[completion]'")
        return ExitStatus.INCOMPLETE
    from castore.tuning.kernels import BUILT_IN  # noqa: PLC0415 - other commands need no tuner

    kernels = [kernel.id for kernel in BUILT_IN]
    print(script(build(COMMANDS), args.shell, kernels=kernels))
    return ExitStatus.DONE
