"""What an object reaches through links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.format.value import Link, ObjectId, Value, WeakLink

if TYPE_CHECKING:
    from collections.abc import Iterator


def links(value: Value) -> Iterator[Link | WeakLink]:
    """Yield every link in a value, wherever it stands."""
    waiting: list[Value] = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Link | WeakLink):
            yield found
        elif isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)


def split_links(value: Value) -> tuple[list[ObjectId], list[ObjectId]]:
    """Return the ids that a value links to strongly, and those that it links to weakly."""
    strong: list[ObjectId] = []
    weak: list[ObjectId] = []
    for link in links(value):
        (strong if isinstance(link, Link) else weak).append(link.oid)
    return strong, weak
