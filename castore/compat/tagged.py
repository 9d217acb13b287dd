"""Configurations as plain data, with tags for what plain data lacks.

A list stays a list and a map with text keys stays a map. What msgpack and JSON would
bring back as something else becomes a map with one key, its tag:

    {"$tuple": [...]}                  a tuple
    {"$namedtuple": [class, [...]]}    a tuple with named fields
    {"$dict": [[key, value], ...]}     a dict with other keys than text, or with `$` keys
    {"$set": [...]}, {"$frozenset": [...]}
    {"$enum": [class, name, value]}    an enum member
    {"$record": [class, {field: value}]}    a dataclass

A class is noted by its qualified name, and that name is only ever compared with the
classes that the reader's own annotations mention: nothing is imported or called
because a store says so. A reader without annotations gets a record's fields, a named
tuple's items and an enum's value.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, cast

from castore.compat import hints
from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.format.value import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from castore.compat.hints import Hint
    from castore.format.value import Value

_TUPLE, _NAMED_TUPLE, _DICT = "$tuple", "$namedtuple", "$dict"
_SET, _FROZENSET = "$set", "$frozenset"
_ENUM, _RECORD = "$enum", "$record"
_ATOMS = frozenset({bool, int, float, str, bytes, type(None)})
_SETS: dict[type, str] = {set: _SET, frozenset: _FROZENSET}
# A dataclass that is one of these as well holds more than its fields.
_PLAIN = (int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset)
_UNSET = object()


def tag(value: object, where: str = "", depth: int = 0) -> Value:  # noqa: PLR0911 - one branch a type
    """Return the plain data for a configuration.

    Raises:
        MalformedError: Something in it cannot be stored so that it comes back equal; `where`
            is the path of the field.
    """
    if depth > DEPTH_MAX:
        raise MalformedError(where, f"nested deeper than {DEPTH_MAX}, or within itself", "CAN-8")
    kind = type(value)
    if isinstance(value, Enum):
        return _tag_enum(value)
    if kind is list:
        return _tag_items(cast("list[object]", value), where, depth)
    if kind is tuple:
        return {_TUPLE: _tag_items(cast("tuple[object, ...]", value), where, depth)}
    if hints.is_named_tuple(kind):
        items = _tag_items(cast("tuple[object, ...]", value), where, depth)
        return {_NAMED_TUPLE: [kind.__qualname__, items]}
    if kind is dict:
        return _tag_dict(cast("dict[object, object]", value), where, depth)
    if kind in _SETS:
        items = _tag_items(cast("set[object]", value), where, depth)
        return {_SETS[kind]: sorted(items, key=encode)}
    if hints.is_record(kind) and not isinstance(value, _PLAIN):
        return {_RECORD: [kind.__qualname__, tag_fields(value, where, depth)]}
    return _checked(cast("Value", value), where)


def tag_fields(record: object, where: str = "", depth: int = 0) -> dict[str, Value]:
    """Return the plain data for the fields of a dataclass, those left out that are not set."""
    names = [field.name for field in dataclasses.fields(cast("hints.Record", record))]
    values = ((name, getattr(record, name, _UNSET)) for name in names)
    return {n: tag(each, f"{where}.{n}", depth + 1) for n, each in values if each is not _UNSET}


def untag(plain: Value, hint: Hint = None) -> object:
    """Return the configuration for plain data, typed as far as `hint` names the classes.

    Raises:
        MalformedError: A tag is not used as the module says.
        Exception: Whatever the reader's own classes raise for fields that do not fit them.
    """
    if type(plain) is list:
        return _untag_items(plain, hint)
    if type(plain) is not dict:
        return plain
    if is_tagged(plain):
        ((name, body),) = plain.items()
        return _untag_tagged(name, body, hint)
    value_hint = hints.of_value(hint) if hint is not None else None
    return {
        key: each if type(each) in _ATOMS else untag(each, value_hint)
        for key, each in plain.items()
    }


def untag_fields(plain: dict[str, Value], kind: type) -> dict[str, object]:
    """Return the fields of a record of class `kind`, not yet made into one."""
    if _ATOMS.issuperset(map(type, plain.values())):
        return cast("dict[str, object]", plain)
    field_hints = hints.of_fields(kind)
    return {
        name: each if type(each) in _ATOMS else untag(each, field_hints.get(name))
        for name, each in plain.items()
    }


def is_tagged(plain: dict[str, Value]) -> bool:
    """Tell whether a map is a tag with its body, rather than a dict."""
    return len(plain) == 1 and next(iter(plain))[:1] == "$"


def record_fields(plain: dict[str, Value]) -> dict[str, Value] | None:
    """Return the fields if the map is a tagged record, else None."""
    if _RECORD not in plain:
        return None
    _, fields = _parts(plain[_RECORD], 2, _RECORD)
    return _fields(fields)


def _tag_items(items: Iterable[object], where: str, depth: int) -> list[Value]:
    return [tag(each, f"{where}[{i}]", depth + 1) for i, each in enumerate(items)]


def _tag_dict(value: dict[object, object], where: str, depth: int) -> Value:
    if all(type(key) is str and key[:1] != "$" for key in value):
        for key in value:
            _checked(cast("str", key), where)
        return {
            cast("str", key): tag(each, f"{where}.{key}", depth + 1) for key, each in value.items()
        }
    pairs: list[list[Value]] = [
        [tag(key, f"{where}[{key!r}]", depth + 1), tag(each, f"{where}[{key!r}]", depth + 1)]
        for key, each in value.items()
    ]
    return {
        _DICT: [cast("Value", pair) for pair in sorted(pairs, key=lambda pair: encode(pair[0]))]
    }


def _tag_enum(member: Enum) -> Value:
    try:
        value = tag(member.value)
    except MalformedError:
        value = None  # it is the name that brings the member back
    return {_ENUM: [type(member).__qualname__, member.name or "", value]}


def _checked(value: Value, where: str) -> Value:
    try:
        encode(value)
    except MalformedError as error:
        raise MalformedError(where or ".", error.reason, error.rule) from None
    return value


def _untag_items(items: list[Value], hint: Hint) -> list[object]:
    return [untag(each, hints.of_item(hint, i)) for i, each in enumerate(items)]


def _untag_tagged(name: str, body: Value, hint: Hint) -> object:
    reader = _READERS.get(name)
    if reader is None:
        raise MalformedError(f".{name}", "a tag that this castore does not know")
    return reader(body, hint)


def _untag_tuple(body: Value, hint: Hint) -> object:
    return tuple(_untag_items(_items(body, _TUPLE), hint))


def _untag_named_tuple(body: Value, hint: Hint) -> object:
    class_name, items = _parts(body, 2, _NAMED_TUPLE)
    kind = hints.class_in(hint, hints.is_named_tuple, class_name)
    untagged = _untag_items(_items(items, _NAMED_TUPLE), kind)
    return tuple(untagged) if kind is None else kind(*untagged)


def _untag_dict(body: Value, hint: Hint) -> object:
    pairs = [_parts(pair, 2, _DICT) for pair in _items(body, _DICT)]
    key_hint, value_hint = hints.of_key(hint), hints.of_value(hint)
    return {untag(key, key_hint): untag(each, value_hint) for key, each in pairs}


def _untag_set(body: Value, hint: Hint) -> object:
    return set(_untag_items(_items(body, _SET), hint))


def _untag_frozenset(body: Value, hint: Hint) -> object:
    return frozenset(_untag_items(_items(body, _FROZENSET), hint))


def _untag_enum(body: Value, hint: Hint) -> object:
    class_name, name, value = _parts(body, 3, _ENUM)
    kind = hints.class_in(hint, hints.is_enum, class_name)
    if kind is None:
        return untag(value)
    member = cast("type[Enum]", kind).__members__.get(str(name))
    return kind(untag(value)) if member is None else member


def _untag_record(body: Value, hint: Hint) -> object:
    class_name, fields = _parts(body, 2, _RECORD)
    kind = hints.class_in(hint, hints.is_record, class_name)
    if kind is None:
        return {
            name: each if type(each) in _ATOMS else untag(each)
            for name, each in _fields(fields).items()
        }
    return hints.build(kind, untag_fields(_fields(fields), kind))


_READERS: dict[str, Callable[[Value, Hint], object]] = {
    _TUPLE: _untag_tuple,
    _NAMED_TUPLE: _untag_named_tuple,
    _DICT: _untag_dict,
    _SET: _untag_set,
    _FROZENSET: _untag_frozenset,
    _ENUM: _untag_enum,
    _RECORD: _untag_record,
}


def _items(body: Value, where: str) -> list[Value]:
    if type(body) is not list:
        raise MalformedError(f".{where}", "expected a list")
    return body


def _parts(body: Value, count: int, where: str) -> list[Value]:
    parts = _items(body, where)
    if len(parts) != count:
        raise MalformedError(f".{where}", f"expected {count} items, got {len(parts)}")
    return parts


def _fields(body: Value) -> dict[str, Value]:
    if type(body) is not dict:
        raise MalformedError(f".{_RECORD}", "expected a map of fields")
    return body
