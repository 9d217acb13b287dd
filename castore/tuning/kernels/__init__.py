"""The kernels that castore brings along: `affine_f32` and `matmul_f32`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.tuning.errors import UnknownKernelError
from castore.tuning.kernels.affine import affine_f32
from castore.tuning.kernels.matmul import matmul_f32

if TYPE_CHECKING:
    from castore.tuning.kernel import Kernel

BUILT_IN: tuple[Kernel, ...] = (affine_f32, matmul_f32)
"""Every built-in kernel with its usual problem, sorted by id."""

__all__ = ["BUILT_IN", "affine_f32", "by_id", "matmul_f32"]


def by_id(kernel_id: str) -> Kernel:
    """Return the built-in kernel of this id.

    Raises:
        UnknownKernelError: There is none.
    """
    for kernel in BUILT_IN:
        if kernel.id == kernel_id:
            return kernel
    raise UnknownKernelError(kernel_id, tuple(kernel.id for kernel in BUILT_IN))
