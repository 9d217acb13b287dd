"""Whether a configuration that went through plain data is the one that went in.

Equal is not enough: `2` equals an `IntEnum`, and a tuple equals a named one. So the types
have to be the same, all the way down. Two things are let pass, as they are promised:
numpy's numbers come back as the numbers that they hold, and dataclasses as dicts of
their fields where no class is known.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from castore.compat.hints import is_model, is_record
from castore.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from castore.compat.hints import Record

_Part: TypeAlias = tuple[str, object, object]
_UNSET = object()


def difference(
    want: object, got: object, where: str = "", *, is_typed: bool
) -> MalformedError | None:
    """Return the error that names the first field which did not come back, or None.

    Args:
        want: What went in.
        got: What came back.
        where: The path that leads here.
        is_typed: Whether dataclasses have to be dataclasses again; else a dict of the fields
            does.
    """
    kind = type(want)
    if is_record(kind) or is_model(kind):
        return _in_record(want, got, where, is_typed=is_typed)
    if kind is not type(got) and kind.__module__ != "numpy":
        return _refused(want, got, where)
    parts = _parts(want, got, where)
    return _refused(want, got, where) if parts is None else _first(parts, is_typed=is_typed)


def _parts(want: object, got: object, where: str) -> Iterable[_Part] | None:
    """Return what is left to compare of two values; None where they differ."""
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        items = ((f"{where}[{i}]", *pair) for i, pair in enumerate(zip(want, got, strict=False)))
        return items if len(want) == len(got) else None
    if isinstance(want, dict) and isinstance(got, dict):
        return _in_dicts(want, got, where) if want.keys() == got.keys() else None
    is_same = want == got or (want != want and got != got)  # noqa: PLR0124 - the test for NaN
    if is_same and isinstance(got, (set, frozenset)):
        kept = {each: each for each in got}
        return ((f"{where}[{each!r}]", each, kept[each]) for each in cast("set[object]", want))
    return () if is_same else None


def _in_dicts(want: dict[object, object], got: dict[object, object], where: str) -> Iterator[_Part]:
    kept = {key: key for key in got}
    for key, each in want.items():
        path = f"{where}.{key}" if type(key) is str else f"{where}[{key!r}]"
        yield path, key, kept[key]
        yield path, each, got[key]


def _in_record(want: object, got: object, where: str, *, is_typed: bool) -> MalformedError | None:
    if is_model(type(want)):
        names = list(cast("Any", want).model_dump())
    else:
        names = [field.name for field in dataclasses.fields(cast("Record", want))]
    if type(got) is type(want):
        found = {name: getattr(got, name, _UNSET) for name in names}
    elif is_typed or type(got) is not dict:
        return _refused(want, got, where)
    else:
        found = got
    pairs = ((f"{where}.{n}", getattr(want, n, _UNSET), found.get(n, _UNSET)) for n in names)
    return _first(pairs, is_typed=is_typed)


def _first(parts: Iterable[_Part], *, is_typed: bool) -> MalformedError | None:
    found = (difference(want, got, where, is_typed=is_typed) for where, want, got in parts)
    return next((each for each in found if each is not None), None)


def _refused(want: object, got: object, where: str) -> MalformedError:
    if type(want) is type(got):
        reason = f"{type(want).__qualname__} would not come back equal: its class changes it"
    elif want is _UNSET or got is _UNSET:
        reason = "it is not set, and would come back set, or the other way round"
    else:
        reason = (
            f"{type(want).__qualname__} would come back as {type(got).__qualname__}: "
            "give the cache a cfg_type whose annotations name its class"
        )
    return MalformedError(where or ".", reason)
