"""From a stored configuration to what makes one for each caller.

A recipe is made when a manifest is read and kept; calling it gives a configuration
that nobody else has.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, cast

from castore.compat import hints
from castore.compat.fresh import Fresh
from castore.compat.from_json import fit, fit_fields
from castore.compat.tagged import is_tagged, record_fields, untag, untag_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.compat.config_manifest import Encoding
    from castore.format.value import Value

MISFITS = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
)
"""What a class may raise when it is given fields that are not its own."""


def recipe(
    plain: Value,
    encoding: Encoding,
    loader: Callable[[object], object] | None,
    cfg_type: Callable[..., object] | None,
) -> Callable[[], object]:
    """Return a function that makes a configuration of plain data.

    A loader comes first and is called each time, for its own copy. What is a dict then becomes a
    `cfg_type`, or a Namespace where there is none; anything else stays as it is.

    Raises:
        Exception: Whatever `cfg_type` raises for fields that do not fit; never the loader's.
    """
    if loader is not None:
        load, raw = loader, Fresh(lambda: _untyped(plain, encoding))
        return lambda: _shaped(load(raw()), cfg_type)
    if cfg_type is None:
        return Fresh(lambda: _shaped(_untyped(plain, encoding), None))
    if hints.is_record(cfg_type) and type(plain) is dict:
        kind, fields = cast("type", cfg_type), plain
        return Fresh(lambda: _record(kind, fields, encoding))
    value = Fresh(lambda: fit(plain, cfg_type) if encoding == "json" else untag(plain, cfg_type))
    if type(value()) is not dict:
        return value
    _shaped(value(), cfg_type)
    return lambda: _shaped(value(), cfg_type)


def _record(kind: type, plain: dict[str, Value], encoding: Encoding) -> object:
    """Return a dataclass, typed by its annotations; what is no map of fields stays as it is."""
    if encoding == "json":
        return hints.build(kind, fit_fields(plain, kind))
    fields = record_fields(plain) if is_tagged(plain) else plain
    if fields is None:
        return _shaped(untag(plain, kind), kind)
    return hints.build(kind, untag_fields(fields, kind))


def fields_given(plain: Value, cfg_type: Callable[..., object]) -> object:
    """Return what `cfg_type` gets to make a configuration of, of a dict that was stored."""
    if hints.is_record(cfg_type) and type(plain) is dict and not is_tagged(plain):
        return untag_fields(plain, cast("type", cfg_type))
    return untag(plain, cfg_type)


def _untyped(plain: Value, encoding: Encoding) -> object:
    return fit(plain, None) if encoding == "json" else untag(plain)


def _shaped(value: object, cfg_type: Callable[..., object] | None) -> object:
    if type(value) is not dict:
        return value
    if cfg_type is not None:
        return cfg_type(**value)
    made = Namespace()
    vars(made).update(value)  # a field may be called `self`
    return made
