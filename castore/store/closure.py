"""What an object reaches through links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.format.value import Link, ObjectId, Value, WeakLink

if TYPE_CHECKING:
    from collections.abc import Iterator

# Nine in ten values are none of these; a value has the exact types only.
_WORTH_A_LOOK = frozenset({dict, list, Link, WeakLink})


def links(value: Value) -> Iterator[Link | WeakLink]:
    """Yield every link in a value, wherever it stands."""
    waiting: list[Value] = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            waiting += [child for child in found.values() if type(child) in _WORTH_A_LOOK]
        elif isinstance(found, list):
            waiting += [child for child in found if type(child) in _WORTH_A_LOOK]
        elif isinstance(found, (Link, WeakLink)):
            yield found


def split_links(value: Value) -> tuple[list[ObjectId], list[ObjectId]]:
    """Return the ids that a value links to strongly, and those that it links to weakly."""
    strong: list[ObjectId] = []
    weak: list[ObjectId] = []
    for link in links(value):
        (strong if isinstance(link, Link) else weak).append(link.oid)
    return strong, weak
