"""Encoding and decoding: what comes back, what is refused, and with which words."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest

from castore.errors import MalformedError
from castore.format.canonical import decode, encode, unpack, unpack_with_links
from castore.format.scan import first_violation
from castore.format.value import CONTENT_BYTES_MAX, DEPTH_MAX, VALUES_MAX, Link, ObjectId, WeakLink
from castore.store.closure import split_links

OID = "ab" * 32


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 1


class Name(enum.StrEnum):
    ANN = "ann"


class Dict(dict[str, Any]):
    pass


class List(list[Any]):
    pass


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Data(bytes):
    pass


class Pair(NamedTuple):
    left: int


@dataclass
class Config:
    block: int


def nested(depth: int, inner: Any = None) -> Any:
    value = inner
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def refusal(value: Any) -> MalformedError:
    with pytest.raises(MalformedError) as caught:
        encode(value)
    return caught.value


# --- what encode refuses --------------------------------------------------------------------

OTHER_TYPES = [
    pytest.param((1, 2), id="tuple"),
    pytest.param(Pair(1), id="named tuple"),
    pytest.param({1}, id="set"),
    pytest.param(frozenset({1}), id="frozenset"),
    pytest.param(Colour.RED, id="enum"),
    pytest.param(Level.HIGH, id="int enum"),
    pytest.param(Name.ANN, id="str enum"),
    pytest.param(Dict(a=1), id="subclass of dict"),
    pytest.param(OrderedDict(a=1), id="OrderedDict"),
    pytest.param(List([1]), id="subclass of list"),
    pytest.param(Text("a"), id="subclass of str"),
    pytest.param(Number(1), id="subclass of int"),
    pytest.param(Real(1), id="subclass of float"),
    pytest.param(Data(b"a"), id="subclass of bytes"),
    pytest.param(bytearray(b"a"), id="bytearray"),
    pytest.param(memoryview(b"a"), id="memoryview"),
    pytest.param(ObjectId(OID), id="ObjectId"),
    pytest.param(1j, id="complex"),
    pytest.param(Config(1), id="dataclass"),
    pytest.param(range(3), id="range"),
    pytest.param(int, id="type"),
    pytest.param(object(), id="object"),
    pytest.param(msgpack.Timestamp(1), id="timestamp"),
    pytest.param(msgpack.ExtType(5, b""), id="extension type"),
    pytest.param(np.zeros(2), id="array"),
    pytest.param(np.array(1.0), id="array without dimensions"),
    pytest.param(np.longdouble(1), id="longdouble"),
    pytest.param(np.complex64(1), id="numpy complex"),
    pytest.param(np.datetime64("2026-01-01"), id="datetime64"),
    pytest.param(np.timedelta64(1, "s"), id="timedelta64"),
    pytest.param(np.str_("a"), id="numpy str"),
    pytest.param(np.bytes_(b"a"), id="numpy bytes"),
    pytest.param(np.dtype("float32"), id="dtype"),
]


@pytest.mark.parametrize("value", OTHER_TYPES)
def test_another_type_is_refused_with_the_path_of_its_field(value: Any) -> None:
    assert refusal(value).where == "."
    assert refusal([0, value]).where == "[1]"
    assert refusal({"first": 1, "knobs": [{}, {"name": value}]}).where == ".knobs[1].name"


@pytest.mark.parametrize("value", OTHER_TYPES)
def test_a_refusal_names_the_type(value: Any) -> None:
    assert type(value).__name__ in refusal({"a": value}).reason


@pytest.mark.parametrize(
    "key", [1, 1.5, None, True, b"a", ("a",), Text("a"), Name.ANN, np.int64(1)]
)
def test_a_key_that_is_no_str_is_refused_with_the_path_of_its_map(key: Any) -> None:
    for value, where in (({key: 1}, "."), ({"a": [{"ok": 0, key: 1}]}, ".a[0]")):
        assert (refusal(value).where, refusal(value).rule) == (where, "CAN-5")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (2**64, "CAN-2"),
        (-(2**63) - 1, "CAN-2"),
        (10**1000, "CAN-2"),
        ("a\ud800", "CAN-4"),
        ("\udfff", "CAN-4"),
        (cycle(), "CAN-8"),
    ],
)
def test_a_value_outside_the_rules_is_refused_by_their_number(value: Any, rule: str) -> None:
    assert refusal(value).rule == rule
    error = refusal({"a": [None, value]})
    assert error.where.startswith(".a[1]")
    assert error.rule == rule


def test_a_key_with_a_lone_surrogate_is_refused() -> None:
    error = refusal({"a": {"\ud800": 1}})
    assert (error.where, error.rule) == (".a", "CAN-4")


def test_a_map_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {"other": 1}
    value["self"] = value
    error = refusal(value)
    assert error.where == ".self" * DEPTH_MAX
    assert error.rule == "CAN-8"


def test_the_first_field_at_fault_in_the_order_of_the_caller_is_named() -> None:
    assert refusal({"z": (), "a": set()}).where == ".z"


@pytest.mark.parametrize("inner", [None, []])
def test_containers_nest_as_deep_as_the_limit_and_no_deeper(inner: Any) -> None:
    depth = DEPTH_MAX - (inner is not None)
    assert decode(encode(nested(depth, inner))) == nested(depth, inner)
    error = refusal(nested(depth + 1, inner))
    assert (error.where, error.rule) == ("[0]" * DEPTH_MAX, "CAN-8")


def test_an_object_holds_as_many_values_as_the_limit_and_no_more() -> None:
    # The list is a value, too; its elements are one byte each.
    assert encode([None] * (VALUES_MAX - 1))[:5] == b"\xdd\x00\x0f\xff\xff"
    error = refusal([None] * VALUES_MAX)
    assert (error.where, error.rule) == (".", "CAN-8")
    error = refusal({"a": [0] * (VALUES_MAX // 2), "b": [0] * (VALUES_MAX // 2)})
    assert error.rule == "CAN-8"


def test_content_is_as_large_as_the_limit_and_no_larger() -> None:
    header_bytes = 5
    data = encode(bytes(CONTENT_BYTES_MAX - header_bytes))
    assert len(data) == CONTENT_BYTES_MAX
    error = refusal(bytes(CONTENT_BYTES_MAX - header_bytes + 1))
    assert (error.where, error.rule) == (".", "CAN-8")


def test_many_keys_are_no_values() -> None:
    value: Any = {f"{n:07}": n for n in range(VALUES_MAX // 8)}
    assert decode(encode(value)) == value


# --- what encode takes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalar", "plain"),
    [
        (np.bool_(True), True),  # noqa: FBT003 - a value, not an option
        (np.int8(-128), -128),
        (np.int16(-3), -3),
        (np.int32(7), 7),
        (np.int64(-(2**63)), -(2**63)),
        (np.uint8(255), 255),
        (np.uint16(1), 1),
        (np.uint32(2**32 - 1), 2**32 - 1),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float16(0.1), float(np.float16(0.1))),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(0.1), 0.1),
        (np.float64("nan"), float("nan")),
        (np.float32("-inf"), float("-inf")),
        (np.float64(-0.0), -0.0),
    ],
)
def test_a_numpy_number_is_stored_as_the_number_it_holds(scalar: Any, plain: Any) -> None:
    assert encode(scalar) == encode(plain)
    assert encode({"a": [scalar]}) == encode({"a": [plain]})


def test_a_numpy_number_beside_a_refused_field_is_not_blamed() -> None:
    assert refusal([np.float32(1), np.int64(1), ()]).where == "[2]"


def test_castore_format_imports_no_numpy() -> None:
    script = "import sys, castore.format.canonical; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_nan_is_one_value() -> None:
    negative = -float("nan")
    assert encode(negative) == encode(float("nan")) == bytes.fromhex("cb7ff8000000000000")


def test_the_callers_value_is_left_as_it_was() -> None:
    value: Any = {"b": [{"d": 1, "c": 2}], "a": [np.int64(1)]}
    encode(value)
    assert list(value) == ["b", "a"]
    assert list(value["b"][0]) == ["d", "c"]
    assert type(value["a"][0]) is np.int64


def test_the_order_of_keys_given_makes_no_difference() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})


# --- decode and unpack ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_decode_takes_any_bytes(kind: Any) -> None:
    assert decode(kind(b"\x91\x01")) == [1]


@pytest.mark.parametrize("data", [1, [1], "a", None])
def test_decode_takes_nothing_but_bytes(data: Any) -> None:
    with pytest.raises(TypeError):
        decode(data)


def test_decode_gives_links_of_the_kind_they_were() -> None:
    value: Any = [Link(ObjectId(OID)), WeakLink(ObjectId(OID))]
    assert decode(encode(value)) == value


def test_unpack_takes_what_is_msgpack_but_not_canonical() -> None:
    assert unpack(bytes.fromhex("82a162cc05a161ca3fc00000")) == {"b": 5, "a": 1.5}


TIMESTAMPS = [
    "d6ff00000001",
    "d7ff0000000100000001",
    "c70cff000000010000000000000001",
    "c704ff00000001",
    "c708ff0000000100000001",
    "c80004ff00000001",
    "c8000cff000000010000000000000001",
    "c900000008ff0000000100000001",
]


@pytest.mark.parametrize("read", [decode, unpack])
@pytest.mark.parametrize("timestamp", TIMESTAMPS)
def test_a_timestamp_is_refused_under_every_header(read: Any, timestamp: str) -> None:
    """The msgpack library turns these into an object of its own, and asks nobody."""
    for data in (bytes.fromhex(timestamp), bytes.fromhex("91" + timestamp)):
        with pytest.raises(MalformedError) as caught:
            read(data)
        assert caught.value.rule == "CAN-7"


@pytest.mark.parametrize("timestamp", TIMESTAMPS)
def test_a_timestamp_among_bytes_that_look_like_one_is_refused(timestamp: str) -> None:
    decoys = b"\xff" * 40 + b"\xc4\x50" + b"\xd6\xff" * 40
    data = b"\xdc\x00\x2b" + decoys + b"\x81\xa1a" + bytes.fromhex(timestamp) + b"\xc0"
    with pytest.raises(MalformedError) as caught:
        unpack(data)
    assert caught.value.rule == "CAN-7"


def test_bytes_that_look_like_timestamps_are_read() -> None:
    value = [-1] * 40 + [b"\xd6\xff" * 40, {"a": b"\x0c\xff"}]
    assert decode(encode(value)) == value


@pytest.mark.parametrize("code", [0, 3, 127, 128, 254])
def test_another_extension_is_refused(code: int) -> None:
    data = bytes((0xC7, 0x20, code)) + bytes(32)
    for read in (decode, unpack):
        with pytest.raises(MalformedError) as caught:
            read(data)
        assert caught.value.rule == "CAN-7"


@pytest.mark.parametrize(
    ("read", "depth"),
    [(decode, DEPTH_MAX + 1), (decode, 600), (decode, 100_000), (unpack, 1100), (unpack, 100_000)],
)
def test_what_nests_too_deep_is_refused(read: Any, depth: int) -> None:
    for head in (b"\x91", b"\x81\xa1a"):
        with pytest.raises(MalformedError) as caught:
            read(head * depth + b"\xc0")
        assert caught.value.rule == "CAN-8"


@pytest.mark.parametrize("key", ["01", "c0", "c40161", "cb3ff0000000000000", "90", "c72001" + OID])
def test_a_map_key_that_is_no_string_is_refused(key: str) -> None:
    with pytest.raises(MalformedError) as caught:
        decode(bytes.fromhex("81" + key + "01"))
    assert caught.value.rule == "CAN-5"


def test_a_violation_names_the_byte_where_it_is() -> None:
    violation = first_violation(bytes.fromhex("9301cc05c0"))
    assert violation is not None
    assert violation.where == "byte 2"


def test_a_list_shared_forty_levels_deep_is_refused_at_once() -> None:
    """It was expanded to 2^40 values before anybody counted."""
    shared: list[Any] = [1]
    for _ in range(40):
        shared = [shared, shared]
    with pytest.raises(MalformedError) as refused:
        encode(shared)
    assert refused.value.rule == "CAN-8"


def test_a_refused_field_behind_a_shared_list_is_found_in_bounded_time() -> None:
    shared: list[Any] = [1]
    for _ in range(40):
        shared = [shared, shared]
    with pytest.raises(MalformedError):
        encode({"z": shared, "a": (1,)})


def test_links_are_noted_where_they_are_decoded_as_a_walk_finds_them() -> None:
    one, other = ObjectId(OID), ObjectId("cd" * 32)
    value: Any = {"a": [Link(one), {"b": WeakLink(other)}], "c": "c7 20 01", "d": [[Link(other)]]}
    found, strong, weak = unpack_with_links(encode(value))
    assert found == value
    assert (strong, weak) == ([one, other], [other])
    walked = split_links(found)
    assert (sorted(walked[0]), walked[1]) == (strong, weak)


def test_links_of_what_is_no_value_are_refused() -> None:
    for content in (b"", b"\xc1", b"\xc7\x20\x03" + bytes(32)):
        with pytest.raises(MalformedError):
            unpack_with_links(content)
