"""Configurations that went through JSON, typed again as far as annotations allow.

JSON kept neither tuples nor integer keys, so here, and only here, an annotation decides
what a list or a key's text was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.compat import hints

if TYPE_CHECKING:
    from castore.compat.hints import Hint
    from castore.format.value import Value


def fit(plain: Value, hint: Hint) -> object:
    """Return the value that `plain` was before JSON, by its annotation; else as it is.

    Raises:
        Exception: Whatever the annotated classes raise for fields that do not fit them.
    """
    if type(plain) is list:
        return _fit_list(plain, hint)
    if type(plain) is dict:
        return _fit_dict(plain, hint)
    arms = hints.arms(hint)
    kind = hints.class_in(hint, hints.is_enum)
    if kind is None or plain is None or type(plain) in arms:
        return plain
    return kind(plain)


def fit_fields(plain: dict[str, Value], kind: type) -> dict[str, object]:
    """Return the fields of a record of class `kind`, not yet made into one."""
    field_hints = hints.of_fields(kind)
    return {name: fit(each, field_hints.get(name)) for name, each in plain.items()}


def _fit_list(plain: list[Value], hint: Hint) -> object:
    items = [fit(each, hints.of_item(hint, i)) for i, each in enumerate(plain)]
    kind = hints.class_in(hint, hints.is_named_tuple)
    if kind is not None:
        return kind(*items)
    container = hints.class_in(hint, hints.is_container)
    return items if container is None else container(items)


def _fit_dict(plain: dict[str, Value], hint: Hint) -> object:
    kind = hints.class_in(hint, hints.is_record)
    if kind is not None:
        return hints.build(kind, fit_fields(plain, kind))
    key_hint, value_hint = hints.of_key(hint), hints.of_value(hint)
    return {_fit_key(key, key_hint): fit(each, value_hint) for key, each in plain.items()}


def _fit_key(key: str, hint: Hint) -> object:
    if hint is int or hint is float:
        return hint(key)
    return fit(key, hint)
