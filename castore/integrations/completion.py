"""Completion scripts for shells, made by shtab from the parser itself.

What an argument takes shows in its placeholder: DIR a folder, FILE a file, KERNEL
the id of a kernel, and so does OBJECT or REF, which is most often one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shtab

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

_KERNELS_FUNCTION = "_castore_kernels"


def script(parser: argparse.ArgumentParser, shell: str, *, kernels: Sequence[str]) -> str:
    """Return the script that completes the command line of `parser` in a shell.

    Args:
        parser: The whole parser; its `prog` is the command's name.
        shell: `bash`, `zsh` or `tcsh`.
        kernels: The ids to offer where a kernel is asked for.
    """
    words = " ".join(kernels)
    kernel = {"bash": _KERNELS_FUNCTION, "zsh": f"({words})", "tcsh": f"({words})"}
    completers = {
        "DIR": shtab.DIRECTORY,
        "STORE": shtab.DIRECTORY,
        "FILE": shtab.FILE,
        **dict.fromkeys(("KERNEL", "OBJECT", "REF"), kernel),
    }
    for action in _actions(parser):
        if action.metavar in completers:
            action.complete = completers[action.metavar]  # type: ignore[attr-defined]
    bash = f'{_KERNELS_FUNCTION}() {{ compgen -W "{words}" -- "$1"; }}'
    preamble = {"bash": bash}
    return str(shtab.complete(parser, shell=shell, preamble=preamble))  # type: ignore[arg-type]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - there is no public way to list them
        yield action
        if action.nargs == "A..." and isinstance(action.choices, dict):
            for command in action.choices.values():
                yield from _actions(command)
