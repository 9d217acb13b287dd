"""What an output holds before a dispatch that is judged.

A candidate may leave elements out, add to what is there, or do nothing at all when
the right result seems to be there already. So no judged dispatch finds a right
result: `first` finds one pattern everywhere, `last` another, and two more find a
result that is right but for every sixteenth element, in case a candidate looks at
some element to decide whether there is anything to do. One more finds other inputs,
in case a candidate remembers the result elsewhere.

One of the patterns may be what the kernel computes, an integer above all. It is
never held against a candidate: an element that is right counts as written, and one
that is right with both patterns, without being written, does not exist.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST = "first"
LAST = "last"
TEMPTED: Mapping[str, int] = {"tempted-5": 5, "tempted-6": 6}
"""Dispatches over a result that is almost right, with the first element that is not."""

OTHER = "other"

_STRIDE = 16

TOLD: Mapping[str, str] = {
    FIRST: "first dispatch",
    LAST: "last dispatch",
    **dict.fromkeys(TEMPTED, "dispatch over an almost right result"),
    OTHER: "dispatch with other inputs",
}
"""All judged dispatches, with what people are told about them."""

# A NaN that no computation here produces, and a number far from any. To integers, nothing
# is impossible: these two only differ in every bit.
_PATTERNS: Mapping[str, tuple[int, int]] = {
    "float32": (0x7FFFA5A5, 0xF1A5A5A5),
    "int32": (0xA5A5A5A5, 0x5A5A5A5A),
    "uint32": (0xA5A5A5A5, 0x5A5A5A5A),
}


def pattern(dtype: str, dispatch: str) -> int:
    """Return the bits of an element that a judged dispatch finds, as a number of 32 bits.

    Args:
        dtype: A key of `program.ITEM_BYTES`.
        dispatch: A key of `TOLD`.
    """
    return _PATTERNS[dtype][0 if dispatch == FIRST else 1]


def poison(bits: int, size_bytes: int) -> bytes:
    """Return `size_bytes` bytes of a pattern; the size is a multiple of four."""
    return struct.pack("<I", bits) * (size_bytes // 4)


def almost(result: bytes, bits: int, start: int) -> bytes:
    """Return a result with a pattern in every sixteenth element, from number `start` on."""
    elements = np.frombuffer(result, "<u4").copy()
    elements[start % max(1, min(_STRIDE, elements.size)) :: _STRIDE] = bits
    return elements.tobytes()
