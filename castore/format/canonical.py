"""Canonical msgpack: exactly one spelling for each value.

MessagePack leaves choices open (integer widths, key order, float sizes); an id
must not depend on them. SPEC.md closes each choice with a numbered rule, CAN-1 to
CAN-8. `encode` obeys the rules; `decode` rejects bytes that do not, by encoding
what it read and comparing. That costs one more pass and makes it impossible for
reader and writer to disagree about what canonical means. `unpack` is the reading
half alone, for content whose id has been checked already.

What `encode` accepts is narrow on purpose: a tuple that came back as a list, or an
integer key that came back as text, would be another value under the caller's feet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgpack
from blake3 import blake3

from castore.errors import MalformedError
from castore.format.scan import first_violation
from castore.format.value import (
    CONTENT_BYTES_MAX,
    DEPTH_MAX,
    ID_BYTES,
    LINK_TYPE,
    VALUES_MAX,
    WEAK_LINK_TYPE,
    Link,
    ObjectId,
    Value,
    WeakLink,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_NAN = float("nan")
# Packed as they are. Integers still need their range checked, which msgpack does.
_ATOMS = frozenset({str, int, bool, bytes, type(None)})
# msgpack's own buffer of 256 KiB is mapped and faulted in anew by every call; this one grows.
_BUFFER_BYTES = 8192
# What stands before the type (-1) of a timestamp of 4, 8 or 12 bytes: its header or its length.
_BEFORE_TIMESTAMP = frozenset(b"\xd6\xd7\x04\x08\x0c")
_TYPE_BYTES_TRIED_MAX = 16
_NUMPY_ITEM_BYTES_MAX = 8
_ACCEPTED = "None, bool, int, float, str, bytes, list, dict, Link and WeakLink"


def encode(value: Value) -> bytes:
    """Return the canonical bytes of `value`.

    Numpy booleans, integers and floats of up to 64 bits are taken as the number
    they hold. Any other type than the exact ones of `Value` is refused.

    Raises:
        MalformedError: The value cannot be an object's content; `where` is the path of the
            field, such as `.knobs[2].name`, and `rule` the rule it breaks.
    """
    try:
        packer = msgpack.Packer(strict_types=True, buf_size=_BUFFER_BYTES)
        content: bytes = packer.pack(_ordered(value, 0, [VALUES_MAX - 1]))
    except (TypeError, OverflowError, UnicodeEncodeError, _RefusedError):
        refused = _explain(value, "", 0, [VALUES_MAX - 1])
        if refused is None:
            raise
        raise refused from None
    if len(content) > CONTENT_BYTES_MAX:
        raise MalformedError(".", f"more than {CONTENT_BYTES_MAX} bytes of content", "CAN-8")
    return content


def decode(data: bytes) -> Value:
    """Return the value that canonical bytes spell.

    Raises:
        MalformedError: The bytes are not the canonical spelling of a value; `rule` names the
            first rule that they break.
    """
    # Not bytes(data): that makes zeros of a number.
    data = memoryview(data).tobytes()
    value = unpack(data)
    try:
        respelled = encode(value)
    except MalformedError:
        respelled = b""
    if respelled != data:
        raise first_violation(data) or MalformedError("byte 0", "not canonical msgpack", "CAN-1")
    return value


def unpack(content: bytes) -> Value:
    """Return the value in msgpack bytes of the known types, canonical or not.

    Map keys may be bytes here, and containers nest as deep as msgpack itself allows (1024):
    whoever walks such a value must not recurse.

    Raises:
        MalformedError: The bytes are not one msgpack value of those types, or hold too much.
    """
    return _unpack(content, _link)


def unpack_with_links(content: bytes) -> tuple[Value, list[ObjectId], list[ObjectId]]:
    """Return what `unpack` returns, and the ids of its strong and of its weak links.

    They are noted where they are decoded: to walk the value takes longer than to decode it.
    """
    strong: list[ObjectId] = []
    weak: list[ObjectId] = []

    def note(code: int, digest: bytes) -> Link | WeakLink:
        link = _link(code, digest)
        (strong if code == LINK_TYPE else weak).append(link.oid)
        return link

    return _unpack(content, note), strong, weak


def _unpack(content: bytes, ext_hook: Callable[[int, bytes], Link | WeakLink]) -> Value:
    if len(content) > VALUES_MAX:
        violation = first_violation(content, limits_only=True)
        if violation is not None:
            raise violation
    try:
        value = msgpack.unpackb(content, ext_hook=ext_hook)
    except (ValueError, UnicodeDecodeError, MalformedError) as error:
        violation = first_violation(content)
        raise violation or MalformedError("byte 0", str(error), "CAN-1") from None
    if _may_hold_timestamp(content) and _holds_timestamp(value):
        violation = first_violation(content, limits_only=True)
        raise violation or MalformedError("extension", "a timestamp", "CAN-7")
    return cast("Value", value)


def object_id(data: bytes) -> ObjectId:
    """Return the id of an object with these canonical bytes: their BLAKE3-256 (OBJ-1)."""
    return ObjectId.trusted(blake3(data).hexdigest())


class _RefusedError(Exception):
    """The quick pass met something that `_explain` will name."""


def _ordered(value: Any, depth: int, left: list[int]) -> Any:  # noqa: ANN401, PLR0911 - one branch a type, on the hot path
    """Return `value` as msgpack should pack it: keys sorted, links and NaN spelled.

    Args:
        value: What is left to do.
        depth: How many containers it stands in.
        left: How many more values there may be, in a list of one so that all calls share it: a
            list that holds another twice, forty times over, has 2^40 values.
    """
    kind = type(value)
    if kind is dict:
        return _ordered_map(value, depth, left)
    if kind in _ATOMS:
        return value
    if kind is float:
        return value if value == value else _NAN  # noqa: PLR0124 - the test for NaN
    if kind is list:
        left[0] -= len(value)
        if depth == DEPTH_MAX or left[0] < 0:
            raise _RefusedError
        if _ATOMS.issuperset(map(type, value)):
            return value
        return [_ordered(child, depth + 1, left) for child in value]
    if kind is Link:
        return msgpack.ExtType(LINK_TYPE, bytes.fromhex(value.oid))
    if kind is WeakLink:
        return msgpack.ExtType(WEAK_LINK_TYPE, bytes.fromhex(value.oid))
    if _is_numpy_number(value):
        return _ordered(value.item(), depth, left)
    raise _RefusedError


def _ordered_map(value: dict[Any, Any], depth: int, left: list[int]) -> dict[str, Any]:
    """Return a map with sorted keys; most of a manifest's encoding is spent here.

    Code points sort as their UTF-8 bytes do, so sorting strings is sorting keys (CAN-5).
    """
    left[0] -= len(value)
    if depth == DEPTH_MAX or left[0] < 0:
        raise _RefusedError
    depth += 1
    ordered = {}
    for key in sorted(value):
        child = value[key]
        kind = type(child)
        if type(key) is not str:
            raise _RefusedError
        # A call costs more than all else that is done for an atom or a map.
        if kind in _ATOMS:
            ordered[key] = child
        elif kind is dict:
            ordered[key] = _ordered_map(child, depth, left)
        else:
            ordered[key] = _ordered(child, depth, left)
    return ordered


def _is_numpy_number(value: Any) -> bool:  # noqa: ANN401 - input is checked here
    """Tell whether `value` is a numpy scalar of at most 64 bits, without importing numpy."""
    return (
        any(c.__module__ == "numpy" and c.__name__ == "generic" for c in type(value).__mro__)
        and value.dtype.kind in "biuf"
        and value.dtype.itemsize <= _NUMPY_ITEM_BYTES_MAX
    )


def _explain(value: Any, where: str, depth: int, left: list[int]) -> MalformedError | None:  # noqa: ANN401 - as above
    """Return the error for the first field that cannot be encoded, in the caller's order."""
    kind = type(value)
    if kind is dict or kind is list:
        return _explain_children(value, where, depth, left)
    if kind is int and not _INT_MIN <= value <= _INT_MAX:
        return MalformedError(where or ".", "an integer beyond -2^63 to 2^64-1", "CAN-2")
    if kind is str and not _is_utf8(value):
        return MalformedError(where or ".", "text with a lone surrogate", "CAN-4")
    if kind in _ATOMS or kind in (float, Link, WeakLink) or _is_numpy_number(value):
        return None
    return MalformedError(where or ".", _refusal(kind), "")


def _explain_children(
    value: Any,  # noqa: ANN401 - as above
    where: str,
    depth: int,
    left: list[int],
) -> MalformedError | None:
    left[0] -= len(value)
    if left[0] < 0:
        return MalformedError(where or ".", f"more than {VALUES_MAX} values", "CAN-8")
    if depth == DEPTH_MAX:
        return MalformedError(where or ".", f"nested deeper than {DEPTH_MAX}", "CAN-8")
    if type(value) is list:
        children = ((f"{where}[{i}]", child) for i, child in enumerate(value))
    else:
        for key in value:
            if type(key) is not str:
                return MalformedError(
                    where or ".", f"key {key!r} is {_article(type(key))}; keys are str", "CAN-5"
                )
            if not _is_utf8(key):
                return MalformedError(where or ".", "a key with a lone surrogate", "CAN-4")
        children = ((f"{where}.{key}", child) for key, child in value.items())
    refusals = (_explain(child, path, depth + 1, left) for path, child in children)
    return next((refused for refused in refusals if refused is not None), None)


def _refusal(kind: type) -> str:
    advice: dict[type, str] = {
        tuple: "use a list",
        set: "use a sorted list",
        frozenset: "use a sorted list",
        bytearray: "use bytes",
        memoryview: "use bytes",
        ObjectId: "use castore.Link to make it a link, or str() to store its digits",
    }
    hint = advice.get(kind, f"convert it to one of {_ACCEPTED}")
    return f"{_article(kind)} is not stored, as it would come back as something else: {hint}"


def _article(kind: type) -> str:
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _link(code: int, digest: bytes) -> Link | WeakLink:
    if len(digest) != ID_BYTES or code not in (LINK_TYPE, WEAK_LINK_TYPE):
        raise MalformedError("extension", f"type {code} of {len(digest)} bytes", "CAN-7")
    oid = ObjectId.trusted(digest.hex())
    return Link(oid) if code == LINK_TYPE else WeakLink(oid)


def _may_hold_timestamp(content: bytes) -> bool:
    """Tell whether msgpack may have read a timestamp, which it decodes without asking us.

    Its type byte is ff, after one of a few bytes. Where there are many ff, this says yes.
    """
    position = 0
    for _ in range(_TYPE_BYTES_TRIED_MAX):
        position = content.find(b"\xff", position + 1)
        if position < 0:
            return False
        if content[position - 1] in _BEFORE_TIMESTAMP:
            return True
    return True


def _holds_timestamp(value: object) -> bool:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if type(found) is dict:
            waiting.extend(found.values())
        elif type(found) is list:
            waiting.extend(found)
        elif type(found) is msgpack.Timestamp:
            return True
    return False
