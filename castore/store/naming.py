"""From what a caller gives to the name of a ref."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from castore.errors import MalformedError
from castore.format import ref
from castore.format.canonical import encode, object_id

if TYPE_CHECKING:
    from castore.format.ref import RefName
    from castore.format.value import ObjectId, Value


class Named(NamedTuple):
    """A ref's name, with the topology manifest if that was given in full.

    Attributes:
        name: The name.
        topology: The manifest's id and content, which have to be put before the ref is made.
    """

    name: RefName
    topology: tuple[ObjectId, bytes] | None = None


def named(
    namespace: str,
    topology: str | dict[str, Value] | None,
    kernel: str | None,
    key: str | None,
) -> Named:
    """Return the name of the ref for a topology and a kernel, or for a caller's own key.

    Raises:
        MalformedError: The arguments do not make a name; see REF-1 to REF-5.
    """
    if key is not None:
        if topology is not None or kernel is not None:
            raise MalformedError("key", "give key, or topology and kernel, not both", "REF-5")
        return Named(ref.for_key(namespace, key))
    if topology is None or kernel is None:
        raise MalformedError("topology", "a ref needs a topology and a kernel", "REF-1")
    if not isinstance(topology, dict):
        return Named(ref.for_topology(namespace, topology, kernel))
    content = encode(cast("Value", topology))
    topology_id = object_id(content)
    return Named(ref.for_topology(namespace, topology_id, kernel), (topology_id, content))
