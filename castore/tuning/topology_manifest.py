"""Topology manifests: the hardware and the software that a result was measured on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blake3 import blake3

from castore.errors import MalformedError
from castore.format.canonical import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from castore.format.value import Value

SCHEMA = 1


def manifest(silicon: dict[str, Value], software: dict[str, Value]) -> dict[str, Value]:
    """Return a topology manifest; fields that hold an empty string or None are left out."""
    return {
        "kind": "topology",
        "schema": SCHEMA,
        "silicon": _stated(silicon),
        "software": _stated(software),
    }


def silicon_id(topology: Mapping[str, Value]) -> str:
    """Return the id of the hardware alone, which stays when drivers and libraries change.

    Raises:
        MalformedError: The manifest has no map `silicon`.
    """
    return blake3(encode(_part(topology, "silicon"))).hexdigest()


def is_topology(value: object) -> bool:
    """Tell whether a value has the two maps of a topology manifest; foreign ones may not."""
    return isinstance(value, dict) and all(
        isinstance(value.get(part), dict) for part in ("silicon", "software")
    )


def runs_on_numpy(topology: Mapping[str, Value]) -> bool:
    """Tell whether this is a CPU with numpy, and not an adapter, be it of the same silicon."""
    return _part(topology, "software").get("backend") == "numpy"


def replayed(topology: Mapping[str, Value]) -> dict[str, Value]:
    """Return the topology of measurements that are given again, so that none passes for taken."""
    return {**topology, "software": {**_part(topology, "software"), "replayed": True}}


def is_replayed(topology: Mapping[str, Value]) -> bool:
    """Tell whether results for this topology come from a replay device."""
    return _part(topology, "software").get("replayed") is True


def differing_fields(one: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the fields in which two topologies differ, such as `topology.software.backend`."""
    names: list[str] = []
    for part in ("silicon", "software"):
        mine, theirs = _part(one, part), _part(other, part)
        names += (
            f"topology.{part}.{name}"
            for name in sorted(mine.keys() | theirs.keys())
            if encode(mine.get(name)) != encode(theirs.get(name))
        )
    return tuple(names)


def _part(topology: Mapping[str, Value], name: str) -> dict[str, Value]:
    part = topology.get(name)
    if not isinstance(part, dict):
        raise MalformedError(f".{name}", "a topology manifest has a map here")
    return part


def _stated(facts: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in facts.items() if value not in ("", None)}
