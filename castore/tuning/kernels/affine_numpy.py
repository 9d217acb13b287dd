"""`affine_f32` in numpy: inputs, oracle, and the blocked computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from castore.tuning.inputs import uniform_f32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def make_inputs(sizes: Mapping[str, int], seed: int) -> dict[str, NDArray[np.float32]]:
    """Return `coefficients`, shape (2,), and `x`, shape (n,), all in [-1, 1)."""
    return {
        "coefficients": uniform_f32(seed, "coefficients", (2,)),
        "x": uniform_f32(seed, "x", (sizes["n"],)),
    }


def oracle(inputs: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return a * x + b in float64, shape (n,)."""
    a, b = inputs["coefficients"].astype(np.float64)
    expected: NDArray[np.float64] = a * inputs["x"].astype(np.float64) + b
    return expected


def affine(
    inputs: Mapping[str, NDArray[np.float32]],
    output: NDArray[np.float32],
    sizes: Mapping[str, int],
    schedule: Mapping[str, int],
) -> None:
    """Write a * x + b into `output`, block by block, so that a block stays in a core's memory.

    A block of 0 is the whole vector.
    """
    a, b = inputs["coefficients"]
    x, block = inputs["x"], schedule["block"] or sizes["n"]
    for start in range(0, sizes["n"], block):
        part = output[start : start + block]
        np.multiply(x[start : start + block], a, out=part)
        np.add(part, b, out=part)
