"""Copies that a caller may change without changing what the next caller gets.

`copy.deepcopy` costs more than all the rest of a warm lookup. What has to be copied
is the same each time, so it is found out once: the result is a function that makes
one copy, and what cannot be changed (numbers, text, tuples of those, frozen
dataclasses of those) is shared.
"""

from __future__ import annotations

import copy
import dataclasses
from argparse import Namespace
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
_K = TypeVar("_K")
_Needed: TypeAlias = "tuple[tuple[_K, Callable[[], object]], ...]"
_SHARED = (bool, int, float, str, bytes, type(None), Enum)


class Fresh(Generic[_T]):
    """Gives equal values that do not share anything that could be changed.

    Args:
        make: Makes such a value. It is called now, for whoever asks first, who is often the only
            one; and once more when somebody asks again, for a value to copy from then on.
    """

    __slots__ = ("_copy", "_first", "_make")

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._first = [make()]
        self._copy: Callable[[], _T] | None = None

    def __call__(self) -> _T:
        """Return a value that nobody else has."""
        if self._copy is not None:
            return self._copy()
        try:
            return self._first.pop()  # one of several threads gets it
        except IndexError:
            self._copy = copied = copier(self._make())
            return copied()


def copier(value: _T) -> Callable[[], _T]:
    """Return a function that returns an equal value, independent of `value`, at each call."""
    return cast("Callable[[], _T] | None", _copier(value)) or (lambda: value)


def _copier(value: object) -> Callable[[], object] | None:
    """Return what copies `value`; None where it may be shared."""
    kind = type(value)
    if isinstance(value, _SHARED):
        return None
    if kind is list:
        return _list_copier(cast("list[object]", value))
    if kind is dict:
        return _dict_copier(cast("dict[object, object]", value))
    if isinstance(value, (tuple, frozenset)) and all(_copier(each) is None for each in value):
        return None
    if kind is Namespace or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return _record_copier(value)
    return lambda: copy.deepcopy(value)


def _list_copier(items: list[object]) -> Callable[[], object]:
    needed = _needed(enumerate(items))

    def copied() -> object:
        new = items.copy()
        for position, copier in needed:
            new[position] = copier()
        return new

    return copied


def _dict_copier(value: dict[_K, object]) -> Callable[[], object]:
    needed = _needed(value.items())

    def copied() -> object:
        new = value.copy()
        for key, copier in needed:
            new[key] = copier()
        return new

    return copied


def _record_copier(value: object) -> Callable[[], object] | None:
    """Return what copies a dataclass or a Namespace, past an `__init__` that has run once."""
    kind = type(value)
    state = getattr(value, "__dict__", None)
    if kind.__new__ is not object.__new__ or (state is not None and _slots(kind)):
        return lambda: copy.deepcopy(value)
    if state is None:
        state = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    needed = _needed(state.items())
    if not needed and _is_frozen(kind):
        return None
    if not hasattr(value, "__dict__"):
        return _slotted_copier(kind, state, needed)

    def copied() -> object:
        new: object = object.__new__(kind)
        fields = new.__dict__
        fields.update(state)
        for name, copier in needed:
            fields[name] = copier()
        return new

    return copied


def _slotted_copier(
    kind: type, state: dict[str, object], needed: _Needed[str]
) -> Callable[[], object]:
    def copied() -> object:
        new: object = object.__new__(kind)
        for name, each in state.items():
            object.__setattr__(new, name, each)
        for name, copier in needed:
            object.__setattr__(new, name, copier())
        return new

    return copied


def _needed(pairs: Iterable[tuple[_K, object]]) -> _Needed[_K]:
    """Return the keys whose values cannot be shared, with what copies each."""
    found = ((key, _copier(value)) for key, value in pairs)
    return tuple((key, copier) for key, copier in found if copier is not None)


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in ("__weakref__", "__dict__")]


def _is_frozen(kind: type) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)
