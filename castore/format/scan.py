"""Find the first rule of canonical msgpack that bytes break, without building values.

`canonical.decode` answers "is this canonical?" by encoding what it read and
comparing, which is quick and cannot disagree with the encoder, but says nothing
of the cause and builds everything first. This module is the other half: it walks
the bytes with a stack of its own, spends no memory on values, and names the rule.
It is used for rejected input, and beforehand for content that is long enough to
hold more values than an object may.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from castore.errors import MalformedError
from castore.format.value import (
    CONTENT_BYTES_MAX,
    DEPTH_MAX,
    ID_BYTES,
    LINK_TYPE,
    VALUES_MAX,
    WEAK_LINK_TYPE,
)

_CANONICAL_NAN = bytes.fromhex("cb7ff8000000000000")
_LINK_HEADERS = (b"\xc7\x20\x01", b"\xc7\x20\x02")

# First byte -> (family, bytes of the length or number that follows).
_UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_STRINGS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BINARIES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}


class _Head(NamedTuple):
    """One value's header: what it is, where its body starts, how long that is."""

    family: str  # "scalar", "str", "array" or "map"
    start: int
    length: int  # bytes of a scalar or string body, elements of an array, pairs of a map


class _Open:
    """A container that the walk is inside of."""

    __slots__ = ("is_map", "last_key", "left")

    def __init__(self, left: int, *, is_map: bool) -> None:
        self.left = left
        self.is_map = is_map
        self.last_key: bytes | None = None


def first_violation(data: bytes, *, limits_only: bool = False) -> MalformedError | None:
    """Return the first broken rule in `data`, or None when it is canonical.

    With `limits_only`, only what must be known before memory is spent counts: that
    the bytes are one whole msgpack value within CAN-8.
    """
    try:
        _Walk(data, limits_only=limits_only).run()
    except MalformedError as violation:
        return violation
    return None


class _Walk:
    def __init__(self, data: bytes, *, limits_only: bool) -> None:
        self.data = data
        self.strict = not limits_only
        self.values = 0

    def run(self) -> None:
        if len(self.data) > CONTENT_BYTES_MAX:
            self.fail(0, "CAN-8", f"more than {CONTENT_BYTES_MAX} bytes")
        position = 0
        stack: list[_Open] = []
        self.count(0, 1)
        while True:
            position = self.value(position, stack)
            while stack and stack[-1].left == 0:
                stack.pop()
            if not stack:
                break
            top = stack[-1]
            top.left -= 1
            if top.is_map:
                position = self.key(position, top)
        if position != len(self.data):
            self.fail(position, "CAN-1", "bytes after the value")

    def value(self, position: int, stack: list[_Open]) -> int:
        """Walk over the value at `position`; a container is put on the stack."""
        head = self.head(position)
        if head.family in ("array", "map"):
            if len(stack) == DEPTH_MAX:
                self.fail(position, "CAN-8", f"containers nest deeper than {DEPTH_MAX}")
            self.count(position, head.length)
            stack.append(_Open(head.length, is_map=head.family == "map"))
            return head.start
        end = head.start + head.length
        if self.strict and head.family == "str":
            self.text(position, self.data[head.start : end])
        return end

    def key(self, position: int, top: _Open) -> int:
        head = self.head(position)
        end = head.start + head.length
        if head.family != "str":
            self.fail(position, "CAN-5", "a map key is not a string")
        if self.strict:
            key = self.data[head.start : end]
            self.text(position, key)
            if top.last_key is not None and key <= top.last_key:
                same = key == top.last_key
                self.fail(position, "CAN-5", f"map key {'twice' if same else 'out of order'}")
            top.last_key = key
        return end

    def head(self, position: int) -> _Head:
        """Read one header, and check that a body whose length is in bytes is all there."""
        if position >= len(self.data):
            self.fail(position, "CAN-1", "a value is missing")
        first = self.data[position]
        if first < 0x80 or first >= 0xE0:
            return _Head("scalar", position + 1, 0)
        if first < 0x90:
            return _Head("map", position + 1, first & 0x0F)
        if first < 0xA0:
            return _Head("array", position + 1, first & 0x0F)
        if first < 0xC0:
            return self.body(position, "str", position + 1, first & 0x1F)
        return self.long_head(position, first)

    def long_head(self, position: int, first: int) -> _Head:
        if first in (0xC0, 0xC2, 0xC3):
            return _Head("scalar", position + 1, 0)
        if first == 0xC1:
            self.fail(position, "CAN-1", "the reserved byte c1")
        if first in _UNSIGNED or first in _SIGNED:
            return self.integer(position, first)
        if first in (0xCA, 0xCB):
            return self.float(position, first)
        if first in _STRINGS or first in _BINARIES:
            return self.bytes_or_text(position, first)
        if first in _ARRAYS or first in _MAPS:
            return self.container(position, first)
        return self.extension(position, first)

    def integer(self, position: int, first: int) -> _Head:
        signed = first in _SIGNED
        width = _SIGNED[first] if signed else _UNSIGNED[first]
        number = self.number(position, width, signed=signed)
        if self.strict and _integer_head(number) != first:
            self.fail(position, "CAN-2", f"{number} is not in its shortest form")
        return _Head("scalar", position + 1 + width, 0)

    def float(self, position: int, first: int) -> _Head:
        width = 4 if first == 0xCA else 8
        head = self.body(position, "scalar", position + 1, width)
        if self.strict and width == 4:
            self.fail(position, "CAN-3", "a 32-bit float")
        if self.strict:
            spelled = self.data[position : position + 9]
            number = struct.unpack(">d", spelled[1:])[0]
            if number != number and spelled != _CANONICAL_NAN:  # noqa: PLR0124 - the test for NaN
                self.fail(position, "CAN-3", "NaN is not 7ff8000000000000")
        return head

    def bytes_or_text(self, position: int, first: int) -> _Head:
        text = first in _STRINGS
        width = _STRINGS[first] if text else _BINARIES[first]
        length = self.number(position, width, signed=False)
        if length > CONTENT_BYTES_MAX:
            self.fail(position, "CAN-8", f"declares {length} bytes")
        head = self.body(position, "str" if text else "scalar", position + 1 + width, length)
        below = {1: 32 if text else 0, 2: 2**8, 4: 2**16}[width]
        if self.strict and length < below:
            self.fail(position, "CAN-4", f"a header of {width + 1} bytes for {length} bytes")
        return head

    def container(self, position: int, first: int) -> _Head:
        is_map = first in _MAPS
        width = _MAPS[first] if is_map else _ARRAYS[first]
        length = self.number(position, width, signed=False)
        if length > VALUES_MAX:
            self.fail(position, "CAN-8", f"declares {length} elements")
        if self.strict and length < {2: 16, 4: 2**16}[width]:
            self.fail(position, "CAN-6", f"a header of {width + 1} bytes for {length} elements")
        return _Head("map" if is_map else "array", position + 1 + width, length)

    def extension(self, position: int, first: int) -> _Head:
        if first in _FIXED_EXTENSIONS:
            width, length = 0, _FIXED_EXTENSIONS[first]
        else:
            width = _EXTENSIONS[first]
            length = self.number(position, width, signed=False)
        if length > CONTENT_BYTES_MAX:
            self.fail(position, "CAN-8", f"declares {length} bytes")
        head = self.body(position, "scalar", position + 2 + width, length)
        code = self.data[position + 1 + width]
        if code not in (LINK_TYPE, WEAK_LINK_TYPE) or length != ID_BYTES:
            self.fail(position, "CAN-7", f"extension type {code} of {length} bytes")
        if self.strict and self.data[position : position + 3] not in _LINK_HEADERS:
            self.fail(position, "CAN-7", "a link with a longer header than c7 20")
        return head

    def body(self, position: int, family: str, start: int, length: int) -> _Head:
        if start + length > len(self.data):
            missing = start + length - len(self.data)
            self.fail(position, "CAN-1", f"{missing} bytes are missing")
        return _Head(family, start, length)

    def number(self, position: int, width: int, *, signed: bool) -> int:
        self.body(position, "scalar", position + 1, width)
        return int.from_bytes(self.data[position + 1 : position + 1 + width], signed=signed)

    def text(self, position: int, spelled: bytes) -> None:
        try:
            spelled.decode()
        except UnicodeDecodeError as error:
            self.fail(position, "CAN-4", f"not UTF-8: {error.reason}")

    def count(self, position: int, values: int) -> None:
        self.values += values
        if self.values > VALUES_MAX:
            self.fail(position, "CAN-8", f"more than {VALUES_MAX} values")

    def fail(self, position: int, rule: str, reason: str) -> None:
        raise MalformedError(f"byte {position}", reason, rule)


def _integer_head(number: int) -> int:
    """Return the first byte of the shortest form of `number` (CAN-2)."""
    if number >= 0:
        for limit, head in ((0x80, number), (2**8, 0xCC), (2**16, 0xCD), (2**32, 0xCE)):
            if number < limit:
                return head
        return 0xCF
    for limit, head in ((-32, number & 0xFF), (-(2**7), 0xD0), (-(2**15), 0xD1), (-(2**31), 0xD2)):
        if number >= limit:
            return head
    return 0xD3
