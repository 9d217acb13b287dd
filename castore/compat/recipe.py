"""From a stored configuration to what makes one for each caller.

A recipe is made when a manifest is read and kept; calling it gives a configuration
that nobody else has.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, cast

from castore.compat import hints
from castore.compat.fresh import fresh
from castore.compat.from_json import fit, fit_fields
from castore.compat.tagged import is_tagged, record_fields, untag, untag_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.compat.config_manifest import Encoding
    from castore.format.value import Value


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
        load, raw = loader, fresh(_untyped(plain, encoding))
        return lambda: _shaped(load(raw()), cfg_type)
    if hints.is_record(cfg_type):
        kind = cast("type", cfg_type)
        fields = _fields_for(kind, plain, encoding)
        if fields is not None:
            return fresh(hints.build(kind, fields))
    value = fit(plain, cfg_type) if encoding == "json" else untag(plain, cfg_type)
    if type(value) is not dict or cfg_type is None:
        return fresh(_shaped(value, None))
    copied = fresh(value)
    cfg_type(**copied())
    return lambda: cfg_type(**copied())


def _untyped(plain: Value, encoding: Encoding) -> object:
    return plain if encoding == "json" else untag(plain)


def _fields_for(cfg_type: type, plain: Value, encoding: Encoding) -> dict[str, object] | None:
    """Return the fields of a dataclass, typed by its annotations; None if these are none."""
    if type(plain) is not dict:
        return None
    if encoding == "json":
        return fit_fields(plain, cfg_type)
    fields = record_fields(plain) if is_tagged(plain) else plain
    return None if fields is None else untag_fields(fields, cfg_type)


def _shaped(value: object, cfg_type: Callable[..., object] | None) -> object:
    if type(value) is not dict:
        return value
    if cfg_type is not None:
        return cfg_type(**value)
    made = Namespace()
    vars(made).update(value)  # a field may be called `self`
    return made
