"""Durations as people write them: `0s`, `90s`, `12h`, `14d`, also `1d12h`.

A bare number is refused, except 0: `gc --grace 14` could mean days to the one who
typed it and seconds to the machine, and the difference is their data.
"""

from __future__ import annotations

import re

from castore.errors import MalformedError
from castore.format.value import shown

DURATION_S_MAX = 1000 * 365 * 86400
"""The longest duration that is taken: a thousand years."""

_UNITS_S = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_PART = "([0-9]{1,12})([smhdw])"
_is_duration = re.compile(f"(?:{_PART})+").fullmatch
_find_parts = re.compile(_PART).findall


def parse_duration(text: str) -> int:
    """Return the seconds that a text such as `12h` or `1d12h` spells.

    Raises:
        MalformedError: It is not a duration, has no unit, repeats one, or is beyond
            `DURATION_S_MAX`.
    """
    if text == "0":
        return 0
    if not _is_duration(text):
        reason = f"expected a number with a unit, such as 90s, 12h or 14d, got {shown(text)}"
        raise MalformedError("duration", reason)
    parts = _find_parts(text)
    units = [unit for _, unit in parts]
    if len(set(units)) < len(units):
        raise MalformedError("duration", f"a unit stands twice in {shown(text)}")
    total_s = sum(int(number) * _UNITS_S[unit] for number, unit in parts)
    if total_s > DURATION_S_MAX:
        raise MalformedError("duration", f"{shown(text)} is longer than 1,000 years")
    return total_s


def duration_text(duration_s: int) -> str:
    """Return a text that `parse_duration` takes for whole seconds, days being the largest unit."""
    parts = []
    for unit in "dhms":
        unit_s = _UNITS_S[unit]
        number, duration_s = divmod(duration_s, unit_s)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
