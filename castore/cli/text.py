"""Text for people: what comes from a store is made harmless, numbers get their units.

A store may come from anywhere. A kernel text or a log's reason that holds an escape
sequence could rewrite the terminal, one with a line end could forge a line of
output; so everything that is printed passes through `printable`.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ID_DIGITS_SHOWN = 12

_TIME_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3))
_SIZE_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def printable(text: str) -> str:
    r"""Return `text` with every character that is not printable written as an escape.

    That covers controls, line ends, invisible and direction-changing characters, and lone
    surrogates; `\x1b` and `\u202e` are what comes out for two of them.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def short_id(oid: str | None) -> str:
    """Return an id's first digits, which the command takes as well; `-` for none."""
    return "-" if oid is None else oid[:ID_DIGITS_SHOWN]


def schedule_text(schedule: Mapping[str, int]) -> str:
    """Return a schedule in one line, such as `block=64 unroll=2`."""
    return " ".join(f"{name}={value}" for name, value in schedule.items()) or "(no parameters)"


def time_text(time_ns: int) -> str:
    """Return a span of time with three digits and a fitting unit, such as `1.23 ms`."""
    for unit, size_ns in _TIME_UNITS:
        if time_ns >= size_ns:
            return f"{_three_digits(time_ns / size_ns)} {unit}"
    return f"{time_ns} ns"


def size_text(size_bytes: int) -> str:
    """Return a size with three digits and a fitting unit, such as `4.20 KiB`."""
    for unit, unit_bytes in _SIZE_UNITS:
        if size_bytes >= unit_bytes:
            return f"{_three_digits(size_bytes / unit_bytes)} {unit}"
    return counted(size_bytes, "byte")


def ratio_text(ratio: float | None) -> str:
    """Return a speed ratio, such as `1.95x`; `-` where there is none."""
    return "-" if ratio is None else f"{_three_digits(ratio)}x"


def moment_text(moment_ns: int) -> str:
    """Return a moment since 1970 in UTC, such as `2026-01-31 09:30:00Z`."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    try:
        moment = epoch + dt.timedelta(microseconds=moment_ns // 1000)
    except OverflowError:
        return f"{moment_ns} ns"  # a writer's clock may say anything
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 object` or `12,000 objects`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, harmless to print; nothing for a table without rows."""
    if not rows:
        return
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _three_digits(number: float) -> str:
    decimals = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:,.{decimals}f}"


def _width(text: str) -> int:
    """Return how many cells a terminal takes for a text."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
