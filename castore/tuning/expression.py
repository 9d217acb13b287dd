"""Integer expressions over sizes and knobs, such as `ceil_div(n, workgroup_size * items)`.

Launch sizes and constraints are part of what a kernel is: changing one changes
what runs. Written as text they are data, so they can be hashed, stored and
compared like the kernel's source, which a Python function could not.
"""

from __future__ import annotations

import ast
import operator
from functools import lru_cache
from typing import TYPE_CHECKING

from castore.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


_FUNCTIONS: dict[str, Callable[..., int]] = {"ceil_div": _ceil_div, "min": min, "max": max}


def evaluate(expression: str, names: Mapping[str, int]) -> int:
    """Return the value of an expression; a comparison gives 0 or 1.

    Understood are integers, names, `+ - * // %`, comparisons, `and`, `or`, and the functions
    `ceil_div`, `min` and `max`.

    Args:
        expression: The text, in Python's syntax.
        names: What each name stands for.

    Raises:
        MalformedError: The text uses anything else, a name that is not given, or divides by
            zero.
    """
    if type(expression) is not str:
        raise MalformedError(".expression", f"expected text, got {expression!r}")
    try:
        return _value(_parsed(expression), names)
    except (_RefusedError, SyntaxError, ZeroDivisionError, TypeError) as error:
        raise MalformedError(
            expression, f"not an expression over {sorted(names)}: {error}"
        ) from None


class _RefusedError(Exception):
    """A part of the expression is outside the language; internal to this module."""


@lru_cache(maxsize=256)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression.strip(), mode="eval").body


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=number) if type(number) is int:
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.Compare():
            return int(_holds(node, names))
        case ast.BoolOp(op=op, values=parts):
            truths = [bool(_value(part, names)) for part in parts]
            return int(all(truths) if isinstance(op, ast.And) else any(truths))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(arg, names) for arg in args))
        case ast.Name(id=name):
            raise _RefusedError(f"{name!r} is not known")
    raise _RefusedError(f"{ast.unparse(node)!r} is not allowed")


def _holds(node: ast.Compare, names: Mapping[str, int]) -> bool:
    left = _value(node.left, names)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        if type(op) not in _COMPARE:
            raise _RefusedError(f"{ast.unparse(node)!r} is not allowed")
        right = _value(right_node, names)
        if not _COMPARE[type(op)](left, right):
            return False
        left = right
    return True
