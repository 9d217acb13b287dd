"""A bench's result as a table, or as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Result, Row

_HEADER = ("operation", "castore us/op", "floor us/op", "ratio", "quartiles", "limit", "holds")
_NOTHING = "-"


def as_table(name: str, result: Result, machine: dict[str, str]) -> str:
    """Return the result for people."""
    cells = [_HEADER, *(_cells(row) for row in result.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines += [f"  * {note}" for note in result.notes]
    shown = ", ".join(f"{key} {value}" for key, value in machine.items())
    return "\n".join([f"{name}: {shown}", *lines])


def as_json(name: str, result: Result, machine: dict[str, str]) -> str:
    """Return the result for programs, as one line."""
    rows = [{**dataclasses.asdict(row), "holds": row.holds} for row in result.rows]
    return json.dumps({"bench": name, "machine": machine, "rows": rows, "notes": result.notes})


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *figures = cells
    right = [figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *right])


def _cells(row: Row) -> tuple[str, ...]:
    if row.limit is not None:
        limit = f"{row.limit:g}"
    else:
        limit = _NOTHING if row.limit_us is None else f"{row.limit_us:g} us"
    has_spread = row.ratio_low is not None and row.ratio_high is not None
    return (
        row.operation,
        f"{row.castore_us:.1f}",
        _NOTHING if row.floor_us is None else f"{row.floor_us:.1f}",
        _NOTHING if row.ratio is None else f"{row.ratio:.2f}",
        f"{row.ratio_low:.2f}..{row.ratio_high:.2f}" if has_spread else _NOTHING,
        limit,
        {True: "yes", False: "NO", None: _NOTHING}[row.holds],
    )
