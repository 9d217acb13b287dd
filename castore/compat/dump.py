"""From a configuration to plain data that is known to come back as that configuration.

The counterpart of `recipe`: everything is made again from the plain data, as a reader
would, and compared with what was given, before anything is stored.
"""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from typing import TYPE_CHECKING, Any, cast

from castore.compat import hints
from castore.compat.difference import difference
from castore.compat.recipe import MISFITS, fields_given, recipe
from castore.compat.tagged import tag, untag
from castore.errors import MalformedError
from castore.format.canonical import encode, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.format.value import Value


def dump(
    cfg: object,
    dumper: Callable[[Any], object] | None,
    loader: Callable[[Any], object] | None,
    cfg_type: Callable[..., object] | None,
) -> Value:
    """Return what is stored of a configuration: its fields, or itself, as plain data.

    A dataclass comes back as its fields where no class is known, and a dict, a Namespace and
    what a dumper made as whatever the class makes of exactly these fields.

    Raises:
        MalformedError: Something in it would not come back, or not with its type; names the field.
    """
    is_model = dumper is None and hints.is_model(type(cfg))
    if dumper is not None:
        source = dumper(cfg)
    elif is_model:
        source = cast("Any", cfg).model_dump()
    else:
        source = dict(vars(cfg)) if type(cfg) is Namespace else cfg
    # Encoded and read again: numpy's numbers are plain ones from here on.
    plain = unpack(encode(tag(source)))
    try:
        refusal = _refusal(cfg, source, plain, loader, cfg_type, is_model=is_model)
    except MISFITS as error:
        reason = f"it cannot be made again from its fields: {error}"
        raise MalformedError(_misfit(source, cfg_type) or ".", reason) from error
    if refusal is not None:
        raise refusal
    return plain


def _refusal(
    cfg: object,
    source: object,
    plain: Value,
    loader: Callable[[Any], object] | None,
    cfg_type: Callable[..., object] | None,
    *,
    is_model: bool,
) -> MalformedError | None:
    if loader is not None or cfg_type is None:
        got = untag(plain)
        if loader is None and type(got) is dict and not all(type(key) is str for key in got):
            return MalformedError(".", "the fields of a configuration have text for names")
        return difference(source, got, is_typed=False)
    made = recipe(plain, "tagged", None, cfg_type)()
    if is_model:
        source = cfg
    elif type(source) is dict:
        made = fields_given(plain, cfg_type)
    return difference(source, made, is_typed=True)


def _misfit(source: object, kind: object) -> str:
    """Return the path of the first field that cannot be made again by itself; empty if none."""
    if hints.is_record(type(source)):
        names = [field.name for field in dataclasses.fields(cast("hints.Record", source))]
        parts = {name: getattr(source, name, None) for name in names}
    elif type(source) is dict:
        parts = source
    else:
        return ""
    field_hints = hints.of_fields(kind) if isinstance(kind, type) else {}
    for name, part in parts.items():
        try:
            untag(unpack(encode(tag(part))), field_hints.get(name))
        except MISFITS:
            return f".{name}{_misfit(part, type(part))}"
    return ""
