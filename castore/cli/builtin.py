"""The built-in kernels as they are named on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.cli.naming import near_kernels

if TYPE_CHECKING:
    from castore.tuning.kernel import Kernel


def built_in(text: str) -> Kernel:
    """Return the built-in kernel that has this id, or this text.

    Raises:
        UnknownKernelError: There is none; a note tells what may have been meant.
    """
    from castore.tuning import kernels  # noqa: PLC0415 - other commands need no tuner
    from castore.tuning.errors import UnknownKernelError  # noqa: PLC0415 - as above

    for kernel in kernels.BUILT_IN:
        if text in (kernel.id, kernel.text):
            return kernel
    error = UnknownKernelError(text, tuple(kernel.id for kernel in kernels.BUILT_IN))
    near = near_kernels((kernel.text for kernel in kernels.BUILT_IN), text)
    if near and "[" in text:
        error.add_note(f"did you mean {near[0]}? Other problems are tuned from Python")
    elif near:
        error.add_note(f"did you mean {near[0]}?")
    raise error
