"""What the annotations of a configuration's classes say about its parts.

Annotations are the only source of classes here. One that cannot be evaluated (its
module imports the name for type checkers alone) counts as absent, and the others of
its class still hold.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Hint: TypeAlias = object
"""An evaluated annotation; None where nothing is known."""

_SEQUENCES = (list, tuple, set, frozenset)


class Record(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


def is_record(kind: object) -> bool:
    """Tell whether this is a dataclass."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def is_model(kind: type) -> bool:
    """Tell whether this is a class of Pydantic's, or works like one."""
    return not is_record(kind) and hasattr(kind, "model_dump")


def is_enum(kind: object) -> bool:
    """Tell whether this is an enum class."""
    return isinstance(kind, type) and issubclass(kind, Enum)


def is_named_tuple(kind: object) -> bool:
    """Tell whether this is a class of tuples with named fields."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_container(kind: object) -> bool:
    """Tell whether this is one of the classes that JSON makes a list of."""
    return kind in _SEQUENCES


def arms(hint: Hint) -> tuple[Hint, ...]:
    """Return the alternatives of an annotation: the members of a union, else itself."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(arm for each in typing.get_args(hint) for arm in arms(each))
    if isinstance(hint, typing.NewType):
        return arms(hint.__supertype__)
    return (hint,)


def class_in(
    hint: Hint, is_wanted: Callable[[object], bool], name: object = None
) -> type[Any] | None:
    """Return the class of the wanted kind among the alternatives of an annotation, or None.

    Of several, it is the one with this qualified name.
    """
    try:
        return _class_in(hint, is_wanted, name)
    except TypeError:  # an annotation that cannot be hashed
        return _class_in.__wrapped__(hint, is_wanted, name)


@lru_cache(maxsize=1024)
def _class_in(hint: Hint, is_wanted: Callable[[object], bool], name: object) -> type[Any] | None:
    found = [
        cast("type", kind) for arm in arms(hint) if is_wanted(kind := typing.get_origin(arm) or arm)
    ]
    for kind in found:
        if kind.__qualname__ == name:
            return kind
    return found[0] if len(found) == 1 else None


def of_item(hint: Hint, position: int) -> Hint:
    """Return the annotation of an item of a list, tuple or set that has annotation `hint`."""
    for arm in arms(hint):
        if is_named_tuple(arm):
            named = list(of_fields(cast("type", arm)).values())
            return named[position] if position < len(named) else None
        args = typing.get_args(arm)
        if typing.get_origin(arm) is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            return args[position] if position < len(args) else None
        if typing.get_origin(arm) in _SEQUENCES or _is_abstract(arm, 1):
            return args[0]
    return None


def of_key(hint: Hint) -> Hint:
    """Return the annotation of the keys of a dict that has annotation `hint`."""
    return _of_pair(hint)[0]


def of_value(hint: Hint) -> Hint:
    """Return the annotation of the values of a dict that has annotation `hint`."""
    return _of_pair(hint)[1]


def _of_pair(hint: Hint) -> tuple[Hint, Hint]:
    for arm in arms(hint):
        if typing.get_origin(arm) is dict or _is_abstract(arm, 2):
            key, value = typing.get_args(arm)
            return key, value
    return None, None


def _is_abstract(arm: Hint, arguments: int) -> bool:
    """Tell whether this is `Sequence[X]`, `Mapping[K, V]` or the like."""
    origin = typing.get_origin(arm)
    is_abc = getattr(origin, "__module__", "") == "collections.abc"
    return is_abc and len(typing.get_args(arm)) == arguments


@lru_cache(maxsize=256)
def of_fields(kind: type) -> Mapping[str, Hint]:
    """Return the annotations of a class by field, in its order; those of its bases too."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return _one_by_one(kind)


def _one_by_one(kind: type) -> dict[str, Hint]:
    found: dict[str, Hint] = {}
    for base in reversed(kind.__mro__):
        module = vars(sys.modules.get(base.__module__, types.ModuleType("")))
        for name, annotation in vars(base).get("__annotations__", {}).items():
            holder = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                found |= typing.get_type_hints(holder, module, dict(vars(base)))
            except (NameError, TypeError, AttributeError, SyntaxError):
                found[name] = None
    return found


def build(kind: type[Any], values: dict[str, object]) -> object:
    """Return an instance of a dataclass with these fields, made by its own `__init__`.

    Raises:
        TypeError: It has no such field, or one without a default is missing.
        Exception: Whatever its `__init__` raises.
    """
    taken, others = _field_names(cast("type", kind))
    if taken.issuperset(values):
        return kind(**values)
    unknown = sorted(values.keys() - taken - others)
    if unknown:
        raise TypeError(f"{kind.__qualname__} has no field {', '.join(unknown)}")
    made = kind(**{name: each for name, each in values.items() if name in taken})
    for name in others & values.keys():
        object.__setattr__(made, name, values[name])
    return made


@lru_cache(maxsize=256)
def _field_names(kind: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the fields that a dataclass's `__init__` takes, and the others."""
    fields = dataclasses.fields(cast("type[Record]", kind))
    taken = frozenset(field.name for field in fields if field.init)
    return taken, frozenset(field.name for field in fields) - taken
