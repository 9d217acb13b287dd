"""Completion scripts for shells, made by shtab from the parser itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shtab

if TYPE_CHECKING:
    import argparse


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that completes the command line of `parser` in a shell.

    Args:
        parser: The whole parser; its `prog` is the command's name.
        shell: `bash`, `zsh` or `tcsh`.
    """
    return str(shtab.complete(parser, shell=shell))
