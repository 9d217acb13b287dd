"""Inputs from a seed, the same on every machine and with every version of numpy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3

if TYPE_CHECKING:
    from numpy.typing import NDArray


def uniform_f32(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return evenly distributed numbers in [-1, 1), multiples of 2^-23.

    They are the extended output of BLAKE3 over the seed and the name. numpy's own generators
    may change from version to version, and a certification names its inputs by their seed.

    Args:
        seed: Any integer.
        name: Tells apart the arrays of one seed.
        shape: The extents of the array.
    """
    stream = blake3(f"castore inputs 1 {seed} {name}".encode()).digest(length=4 * math.prod(shape))
    integers = np.frombuffer(stream, dtype="<u4") >> np.uint32(8)
    fractions = integers.astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
    return fractions.reshape(shape)
