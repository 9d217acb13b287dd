"""Copies that a caller may change without changing what the next caller gets.

`copy.deepcopy` costs more than all the rest of a warm lookup. What has to be copied
is the same each time, so it is found out once: the result is a function that makes
one copy, and what cannot be changed (numbers, text, tuples of those, slotted frozen
dataclasses of those) is shared.

A copy of a dataclass is made past its `__init__`, so only a dataclass that is nothing but
its fields is copied. Whatever holds more, such as what a `__post_init__` derived from the
instance, is made anew by its own class each time.
"""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from castore.compat.hints import Record

_T = TypeVar("_T")
_K = TypeVar("_K")
_Copier: TypeAlias = "Callable[[], object] | None"
_Needed: TypeAlias = "tuple[tuple[_K, Callable[[], object]], ...]"
_SHARED = frozenset({bool, int, float, str, bytes, type(None)})


class Fresh(Generic[_T]):
    """Gives equal values that do not share anything that could be changed.

    Args:
        make: Makes such a value. It is called now, for whoever asks first, who is often the only
            one; once more when somebody asks again, for a value to copy from then on; and each
            time where that cannot be copied.
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
            self._copy = copied = _copier_of(self._make)
            return copied()


class _NotCopyableError(Exception):
    """Something in a value can be made by its own class only."""


def _copier_of(make: Callable[[], _T]) -> Callable[[], _T]:
    value = make()
    try:
        copier = cast("Callable[[], _T] | None", _copier(value))
    except _NotCopyableError:
        return make
    return copier or (lambda: value)


def _copier(value: object) -> _Copier:
    """Return what copies `value`; None where it may be shared."""
    kind = type(value)
    if kind in _SHARED or isinstance(value, Enum):
        return None
    if kind is list:
        return _list_copier(cast("list[object]", value))
    if kind is dict:
        return _dict_copier(cast("dict[object, object]", value))
    if isinstance(value, tuple) and not hasattr(value, "__dict__"):
        return _tuple_copier(value)
    if kind is frozenset or kind is set:
        return _set_copier(cast("set[object]", value))
    if kind is Namespace or dataclasses.is_dataclass(kind):
        return _record_copier(value)
    raise _NotCopyableError


def _list_copier(items: list[object]) -> _Copier:
    needed = _needed(enumerate(items))

    def copied() -> object:
        new = items.copy()
        for position, copier in needed:
            new[position] = copier()
        return new

    return copied


def _dict_copier(value: dict[_K, object]) -> _Copier:
    needed = _needed(value.items())
    _check_shared(value)

    def copied() -> object:
        new = value.copy()
        for key, copier in needed:
            new[key] = copier()
        return new

    return copied


def _tuple_copier(items: tuple[object, ...]) -> _Copier:
    needed, kind = _needed(enumerate(items)), type(items)

    def copied() -> object:
        new = list(items)
        for position, copier in needed:
            new[position] = copier()
        return tuple.__new__(kind, new)

    return copied if needed else None


def _set_copier(items: set[object]) -> _Copier:
    _check_shared(items)
    return items.copy if type(items) is set else None


def _check_shared(items: Iterable[object]) -> None:
    """Refuse what holds hashable items, or keys, that cannot be shared."""
    if any(_copier(each) is not None for each in items):
        raise _NotCopyableError


def _record_copier(value: object) -> _Copier:
    """Return what copies a dataclass or a Namespace, past an `__init__` that has run once."""
    kind = type(value)
    state = getattr(value, "__dict__", None)
    slots = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    if not _is_all_fields(value, {**slots, **(state or {})}):
        raise _NotCopyableError
    if state is None:
        return _slotted_copier(kind, slots, _needed(slots.items()))
    if slots:
        raise _NotCopyableError
    needed = _needed(state.items())

    def copied() -> object:
        new: object = object.__new__(kind)
        fields = new.__dict__
        fields.update(state)
        for name, copier in needed:
            fields[name] = copier()
        return new

    return copied


def _slotted_copier(kind: type, state: dict[str, object], needed: _Needed[str]) -> _Copier:
    if not needed and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # every dataclass has them
        return None

    def copied() -> object:
        new: object = object.__new__(kind)
        for name, each in state.items():
            object.__setattr__(new, name, each)
        for name, copier in needed:
            object.__setattr__(new, name, copier())
        return new

    return copied


def _is_all_fields(value: object, state: dict[str, object]) -> bool:
    """Tell whether an instance is nothing but its fields, so that those make another."""
    if type(value).__new__ is not object.__new__:
        return False
    if type(value) is Namespace:
        return True
    names = {field.name for field in dataclasses.fields(cast("Record", value))}
    return names == state.keys()


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
