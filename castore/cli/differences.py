"""What differs between a stored result and one measured now, value by value.

`find` names the fields. Here the stored result that it speaks of is looked for, the
one that differs in just these fields, and both values of each are told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.cli.tagged import tagged
from castore.cli.text import short_id
from castore.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import ObjectId, Value
    from castore.store.store import Store
    from castore.tuning.kernel import Kernel

_SHOWN_CHARACTERS_MAX = 60
_ABSENT = "nothing"

_Plain = dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field with both of its values.

    Attributes:
        field: Its path, such as `tolerance.relative`.
        stored: What the stored result says, in words.
        here: What one measured now would say.
    """

    field: str
    stored: str
    here: str

    def __str__(self) -> str:
        return f"{self.field}: stored {self.stored}, here {self.here}"


def differences(
    store: Store, kernel: Kernel, here: _Plain, here_id: ObjectId, fields: tuple[str, ...]
) -> list[Difference]:
    """Return the values of the fields that differ; empty where no stored result fits them.

    Args:
        store: Where the results are.
        kernel: The kernel that was asked for.
        here: This machine's topology.
        here_id: Its id.
        fields: What `find` said differs.
    """
    for stored, now, differing in _pairs(store, kernel, here, here_id):
        if differing == fields:
            return [
                found
                for name in fields
                for found in _leaves(name, _at(stored, name), _at(now, name))
            ]
    return []


def _pairs(
    store: Store, kernel: Kernel, here: _Plain, here_id: ObjectId
) -> Iterator[tuple[_Plain, _Plain, tuple[str, ...]]]:
    """Yield what stored results say, what one from here would, and where they differ."""
    from castore.tuning.manifests import TuningManifest  # noqa: PLC0415 - quick start
    from castore.tuning.records import Applicability  # noqa: PLC0415 - as above
    from castore.tuning.topology_manifest import differing_fields  # noqa: PLC0415 - as above

    known = [ref.object for ref in store.refs("topology") if ref.object != here_id]
    for topology in (here_id, *known):
        value = store.lookup("tuning", topology, kernel.text)
        try:
            stored = TuningManifest.from_value(value).applicability
        except MalformedError:
            continue
        if stored.implementation in kernel.implementations:
            now = Applicability.of(kernel, stored.implementation)
            yield stored.to_value(), now.to_value(), now.differs_in(stored)
        there = store.lookup("topology", topology, "topology")
        if isinstance(there, dict):
            try:
                differing = differing_fields(here, there)
            except MalformedError:
                continue
            yield {"topology": there}, {"topology": here}, differing


def _at(value: Value, path: str) -> Value:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _leaves(path: str, stored: Value, here: Value) -> Iterator[Difference]:
    if isinstance(stored, dict) and isinstance(here, dict):
        for name in (*stored, *(name for name in here if name not in stored)):
            if json.dumps(tagged(stored.get(name))) != json.dumps(tagged(here.get(name))):
                yield from _leaves(f"{path}.{name}", stored.get(name), here.get(name))
    elif isinstance(stored, list) and isinstance(here, list):
        only_stored = [each for each in stored if each not in here]
        only_here = [each for each in here if each not in stored]
        if only_stored or only_here:
            stored, here = only_stored or None, only_here or None
        yield Difference(path, _shown(stored), _shown(here))
    else:
        yield Difference(path, _shown(stored), _shown(here))


def _shown(value: Value) -> str:
    if value is None:
        return _ABSENT
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ", ".join(map(str, value))
    else:
        text = value if isinstance(value, str) else json.dumps(tagged(value))
    if len(text) == 64 and not text.strip("0123456789abcdef"):
        return short_id(text)
    if len(text) > _SHOWN_CHARACTERS_MAX:
        return f"{text[: _SHOWN_CHARACTERS_MAX - 3]}..."
    return text
