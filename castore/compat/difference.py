"""Whether a configuration that went through plain data is the one that went in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from castore.compat.hints import is_record
from castore.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from castore.compat.hints import Record


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
    if is_record(type(want)):
        return _in_record(want, got, where, is_typed=is_typed)
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        items = ((f"{where}[{i}]", *pair) for i, pair in enumerate(zip(want, got, strict=False)))
        is_like = isinstance(want, list) is isinstance(got, list) and len(want) == len(got)
        return _first(items, is_typed=is_typed) if is_like else _refused(want, got, where)
    if type(want) is dict and type(got) is dict and want.keys() == got.keys():
        values = ((f"{where}.{key}", each, got[key]) for key, each in want.items())
        return _first(values, is_typed=is_typed)
    if want == got or (want != want and got != got):  # noqa: PLR0124 - the test for NaN
        return None
    return _refused(want, got, where)


def _in_record(want: object, got: object, where: str, *, is_typed: bool) -> MalformedError | None:
    names = [field.name for field in dataclasses.fields(cast("Record", want))]
    if type(got) is type(want):
        pairs = ((f"{where}.{n}", getattr(want, n), getattr(got, n)) for n in names)
        return _first(pairs, is_typed=is_typed)
    if is_typed or type(got) is not dict:
        return _refused(want, got, where)
    fields = cast("dict[str, object]", got)
    return _first(((f"{where}.{n}", getattr(want, n), fields[n]) for n in names), is_typed=False)


def _first(parts: Iterable[tuple[str, object, object]], *, is_typed: bool) -> MalformedError | None:
    found = (difference(want, got, where, is_typed=is_typed) for where, want, got in parts)
    return next((each for each in found if each is not None), None)


def _refused(want: object, got: object, where: str) -> MalformedError:
    kinds = f"{type(want).__qualname__} would come back as {type(got).__qualname__}"
    if type(want) is type(got):
        kinds = f"{type(want).__qualname__} would not come back equal"
    advice = "give the cache a cfg_type whose annotations name its class"
    return MalformedError(where or ".", f"{kinds}: {advice}")
