"""What holds of the format for every value and for all bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.format import frame
from castore.format.canonical import decode, encode, object_id, unpack
from castore.format.scan import first_violation
from castore.format.value import Link, ObjectId, Value, WeakLink

if TYPE_CHECKING:
    from collections.abc import Callable

OIDS = st.binary(min_size=32, max_size=32).map(ObjectId.from_bytes)
LENGTHS = st.sampled_from([0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    OIDS.map(Link),
    OIDS.map(WeakLink),
    LENGTHS.map(lambda length: "x" * length),
    LENGTHS.map(bytes),
)
VALUES = st.recursive(
    SCALARS,
    lambda children: (
        st.lists(children, max_size=20) | st.dictionaries(st.text(max_size=40), children)
    ),
    max_leaves=40,
)


def spelled(value: Value) -> Any:
    """Return something that is equal for two values only if they are the same value."""
    if isinstance(value, dict):
        return "dict", sorted((key, spelled(child)) for key, child in value.items())
    if isinstance(value, list):
        return "list", [spelled(child) for child in value]
    if isinstance(value, float):
        return "float", "nan" if value != value else struct.pack(">d", value).hex()  # noqa: PLR0124 - the test for NaN
    return type(value).__name__, repr(value)


@st.composite
def damaged(draw: st.DrawFn, intact: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes of which some were changed, put in, taken out or moved."""
    data = bytearray(draw(intact))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 6)))
        match draw(st.sampled_from(["replace", "repeat", "cut"])):
            case "replace":
                data[at:until] = draw(st.binary(max_size=4) | HEADS)
            case "repeat":
                data[at:at] = data[at:until]
            case "cut":
                del data[at:]
    return bytes(data)


# Every first byte that has a length, a number or a type after it, with small ones behind.
HEADS = st.builds(
    lambda head, rest: bytes((head,)) + rest,
    st.sampled_from([*range(0xC0, 0xE0), 0x80, 0x81, 0x90, 0x91, 0xA0, 0xA1, 0xE0, 0xFF]),
    st.binary(max_size=2) | st.just(bytes(4)) | st.just(b"\xff" * 4),
)
CANONICAL = VALUES.map(encode)
ANY_BYTES = st.one_of(damaged(CANONICAL), st.binary(max_size=40), CANONICAL)


def rejection(read: Callable[[bytes], object], data: bytes) -> MalformedError | None:
    try:
        read(data)
    except MalformedError as error:
        return error
    return None


def accepted(read: Callable[[bytes], object], data: bytes) -> bool:
    return rejection(read, data) is None


@given(value=VALUES)
def test_a_value_comes_back_as_it_was(value: Value) -> None:
    data = encode(value)
    assert spelled(decode(data)) == spelled(value)
    assert spelled(unpack(data)) == spelled(value)


@given(value=VALUES, data=st.data())
def test_equal_values_have_one_spelling(value: Value, data: st.DataObject) -> None:
    def shuffled(value: Value) -> Value:
        if isinstance(value, dict):
            keys = data.draw(st.permutations(list(value)))
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(child) for child in value] if isinstance(value, list) else value

    assert encode(shuffled(value)) == encode(value)


@given(one=VALUES, other=VALUES)
def test_two_values_have_two_spellings(one: Value, other: Value) -> None:
    assert (encode(one) == encode(other)) == (spelled(one) == spelled(other))
    assert (object_id(encode(one)) == object_id(encode(other))) == (spelled(one) == spelled(other))


@given(data=ANY_BYTES)
def test_accepted_bytes_are_the_only_spelling(data: bytes) -> None:
    if accepted(decode, data):
        assert encode(decode(data)) == data


@given(data=ANY_BYTES)
def test_the_scan_and_the_decoder_agree(data: bytes) -> None:
    """One decides by walking the bytes, the other by encoding what it read."""
    assert (first_violation(data) is None) == accepted(decode, data)


@given(data=ANY_BYTES)
def test_every_rejection_names_a_rule_and_a_byte(data: bytes) -> None:
    errors = [rejection(read, data) for read in (decode, unpack)]
    for error in errors:
        if error is not None:
            assert error.rule.startswith("CAN-")
            assert 0 <= int(error.where.removeprefix("byte ")) <= len(data)


@given(data=ANY_BYTES)
def test_what_is_canonical_can_be_unpacked(data: bytes) -> None:
    if accepted(decode, data):
        assert spelled(unpack(data)) == spelled(decode(data))


@given(data=ANY_BYTES)
def test_limits_are_broken_only_by_what_is_broken(data: bytes) -> None:
    if first_violation(data, limits_only=True) is not None:
        assert first_violation(data) is not None


@pytest.mark.parametrize("first", range(256))
def test_every_first_byte_is_read_alike_by_scan_and_decoder(first: int) -> None:
    for rest in (b"", b"\x00", b"\x01" * 9, b"\xff" * 9, b"\x20\x01" + bytes(32), bytes(40)):
        data = bytes((first,)) + rest
        assert (first_violation(data) is None) == accepted(decode, data)


@given(content=st.binary(min_size=1, max_size=2000) | CANONICAL)
def test_a_frame_gives_its_content_back(content: bytes) -> None:
    assert frame.decompress(frame.compress(content)) == content


@given(
    data=damaged(st.binary(min_size=1, max_size=200).map(frame.compress)) | st.binary(max_size=40)
)
def test_a_damaged_frame_gives_bytes_or_a_typed_error(data: bytes) -> None:
    error = rejection(frame.decompress, data)
    assert error is None or error.rule in ("OBJ-2", "CAN-8")
