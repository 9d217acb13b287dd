"""`matmul_f32` in numpy: inputs, oracle, and the blocked computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from castore.tuning.inputs import uniform_f32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def make_inputs(sizes: Mapping[str, int], seed: int) -> dict[str, NDArray[np.float32]]:
    """Return `a`, shape (m, k), and `b`, shape (k, n), all in [-1, 1)."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {"a": uniform_f32(seed, "a", (m, k)), "b": uniform_f32(seed, "b", (k, n))}


def oracle(inputs: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return A B in float64, shape (m, n)."""
    product: NDArray[np.float64] = inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)
    return product


def matmul(
    inputs: Mapping[str, NDArray[np.float32]],
    output: NDArray[np.float32],
    sizes: Mapping[str, int],
    schedule: Mapping[str, int],
) -> None:
    """Write A B into `output`, a block of it at a time, in float32."""
    a, b = inputs["a"], inputs["b"]
    block_m, block_n, block_k = schedule["block_m"], schedule["block_n"], schedule["block_k"]
    for row in range(0, sizes["m"], block_m):
        for col in range(0, sizes["n"], block_n):
            tile = output[row : row + block_m, col : col + block_n]
            tile[...] = 0.0
            for at in range(0, sizes["k"], block_k):
                left = a[row : row + block_m, at : at + block_k]
                tile += left @ b[at : at + block_k, col : col + block_n]
