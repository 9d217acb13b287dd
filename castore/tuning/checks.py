"""What an author of a kernel may say, checked where it is said.

A record that comes back from a store holds exact types: integers that are no booleans,
none of them negative. A kernel that said `1.0`, `True` or -1 would be measured, stored,
and never be found again, so it is refused when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from castore.errors import MalformedError

INTEGER_MAX = 2**63 - 1

_is_name = re.compile("[a-z][a-z0-9_]{0,63}").fullmatch


def check_name(where: str, name: object) -> None:
    """Return if `name` can stand in kernel texts, expressions and WGSL.

    Raises:
        MalformedError: It cannot; the message begins with `where`.
    """
    if type(name) is not str or _is_name(name) is None:
        reason = "expected a name of 1 to 64 lower-case letters, digits and underscores"
        raise MalformedError(where, f"{reason} that begins with a letter, got {name!r}")


def check_tuple(where: str, given: object, of_what: str) -> None:
    """Return if `given` is a tuple or a list; a tuple of one is easily written without its comma.

    Raises:
        MalformedError: It is not; the message begins with `where`.
    """
    if not isinstance(given, tuple | list):
        raise MalformedError(where, f"expected a tuple of {of_what}, got {given!r}")


def check_mapping(where: str, given: object) -> None:
    """Return if `given` maps names to something.

    Raises:
        MalformedError: It does not; the message begins with `where`.
    """
    if not isinstance(given, Mapping):
        raise MalformedError(where, f"expected a mapping by name, got {given!r}")


def check_integer(where: str, number: object, *, least: int) -> None:
    """Return if `number` is an integer that a record can hold.

    Raises:
        MalformedError: It is not; the message begins with `where`.
    """
    if type(number) is not int or not least <= number <= INTEGER_MAX:
        kind = f" ({type(number).__name__})"
        reason = f"expected an int of at least {least}, got {number!r}"
        raise MalformedError(where, reason + (kind if type(number) is not int else ""))
