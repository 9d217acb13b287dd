"""Values as JSON and back, without losing what JSON cannot say.

JSON has no links, bytes, NaN or infinities, and many readers take every number for
a 64-bit float. A map with a single key that begins with `$` stands for each of these:

    {"$link": HEX}     a link                   {"$bytes": BASE64}   bytes
    {"$weak": HEX}     a weak link              {"$float": "nan"}    also "inf" and "-inf"
    {"$int": "18446744073709551615"}            an integer beyond 2^53 either way

A real map with a single key that begins with `$` gets one more `$` in front of it.
Floats keep their point or exponent (`1.0`), integers have none (`1`). So
`untagged(tagged(value))` is `value`, and `castore put` gives back the id that
`castore cat` was asked for.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import TYPE_CHECKING, NoReturn, cast

from castore.errors import MalformedError
from castore.format.value import DEPTH_MAX, Link, ObjectId, Value, WeakLink, shown

if TYPE_CHECKING:
    from collections.abc import Callable

_EXACT_MAX = 2**53
_INT_DIGITS_MAX = 20
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def tagged(value: Value) -> object:
    """Return what to give to a JSON writer for `value`."""
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)).startswith("$"):
            return {f"${key}": tagged(child) for key, child in value.items()}
        return {key: tagged(child) for key, child in value.items()}
    if isinstance(value, list):
        return [tagged(child) for child in value]
    return _tagged_scalar(value)


def _tagged_scalar(value: Value) -> object:
    if isinstance(value, Link):
        return {"$link": str(value.oid)}
    if isinstance(value, WeakLink):
        return {"$weak": str(value.oid)}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "nan" if math.isnan(value) else repr(value)}
    if type(value) is int and abs(value) > _EXACT_MAX:
        return {"$int": str(value)}
    return value


def to_json(value: Value, *, indent: int | None = 2) -> str:
    """Return `value` as JSON text in ASCII, which no terminal takes for a command."""
    return json.dumps(tagged(value), ensure_ascii=True, allow_nan=False, indent=indent)


def from_json(text: str) -> Value:
    """Return the value that JSON text spells.

    Raises:
        MalformedError: It is not JSON, repeats a key, has a number that would change, or a map
            that looks like a tag and is none.
    """
    try:
        found = json.loads(
            text,
            object_pairs_hook=_map,
            parse_constant=_refuse_constant,
            parse_float=_float,
            parse_int=_from_int,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise MalformedError(where, f"not JSON: {error.msg}") from None
    except RecursionError:
        raise MalformedError("JSON", f"nested deeper than {DEPTH_MAX}", "CAN-8") from None
    return untagged(found)


def untagged(found: object, where: str = "", depth: int = 0) -> Value:
    """Return the value that parsed JSON stands for.

    Raises:
        MalformedError: A map looks like a tag and is none; `where` is the path of the field.
    """
    if isinstance(found, dict | list) and depth > DEPTH_MAX:
        raise MalformedError(where, f"nested deeper than {DEPTH_MAX}", "CAN-8")
    if isinstance(found, list):
        return [untagged(child, f"{where}[{i}]", depth + 1) for i, child in enumerate(found)]
    if not isinstance(found, dict):
        return cast("Value", found)
    if len(found) == 1:
        ((key, child),) = found.items()
        if key.startswith("$$"):
            return {key[1:]: untagged(child, f"{where}.{key}", depth + 1)}
        if key.startswith("$"):
            return _from_tag(key, child, where or ".")
    return {key: untagged(child, f"{where}.{key}", depth + 1) for key, child in found.items()}


def _from_tag(tag: str, content: object, where: str) -> Value:
    read = _TAGS.get(tag)
    if read is None:
        reason = f"{shown(tag)} is no tag; a real key that begins with $ takes one more $"
        raise MalformedError(where, reason)
    if not isinstance(content, str):
        raise MalformedError(where, f"{tag} takes text, got {shown(content)}")
    try:
        return read(content)
    except MalformedError as error:
        raise MalformedError(where, error.reason, error.rule) from None
    except (ValueError, KeyError):
        raise MalformedError(where, f"{shown(content)} does not fit {tag}") from None


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise MalformedError("", f"not base64: {error}") from None


def _from_int(text: str) -> int:
    # Python refuses to read thousands of digits, with an error about its own settings.
    digits = text.removeprefix("-")
    if len(digits) > _INT_DIGITS_MAX or not (digits.isascii() and digits.isdigit()):
        raise MalformedError("JSON", f"{shown(text)} is beyond -2^63 to 2^64-1", "CAN-2")
    return int(text)


_TAGS: dict[str, Callable[[str], Value]] = {
    "$link": lambda text: Link(ObjectId(text)),
    "$weak": lambda text: WeakLink(ObjectId(text)),
    "$bytes": _from_base64,
    "$float": lambda text: _FLOATS[text],
    "$int": _from_int,
}


def _map(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add returns None, which goes on
        raise MalformedError("JSON", f"the key {shown(twice)} stands twice in one map", "CAN-5")
    return found


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        reason = f'{shown(text)} is beyond the range of a float; write {{"$float": "inf"}}'
        raise MalformedError("JSON", reason, "CAN-3")
    return number


def _refuse_constant(name: str) -> NoReturn:
    spelled = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[name]
    raise MalformedError("JSON", f'{name} is not JSON; write {{"$float": "{spelled}"}}')
