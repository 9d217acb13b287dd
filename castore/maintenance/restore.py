"""Bring back what a ref named before, from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from castore.errors import RefNotFoundError
from castore.format import layout
from castore.refs import log

if TYPE_CHECKING:
    from castore.format.ref import Ref, RefName
    from castore.format.value import ObjectId
    from castore.store.store import Store


def restore(store: Store, name: RefName, *, to: ObjectId | None = None) -> Ref:
    """Make a ref name again what its newest log entry replaced or removed.

    Args:
        store: The store.
        name: The ref.
        to: An object that its log names, in place of that.

    Raises:
        RefNotFoundError: The log tells of no such object.
        ObjectNotFoundError: gc has removed it since.
    """
    entries = log.entries(store.fs, name)
    logged = [oid for entry in entries for oid in (entry.old, entry.new) if oid is not None]
    wanted = to if to is not None else next((e.old for e in entries[:1]), None)
    if wanted is None or wanted not in logged:
        raise RefNotFoundError(f"{name} with an earlier object in its log")
    reason = "restore"
    if name.namespace == layout.NAMES:
        return store.set_name(name.key, wanted, on_conflict="replace", reason=reason)
    return store.set_ref(
        name.namespace,
        name.topology,
        name.kernel,
        wanted,
        key=name.key if name.topology is None else None,
        on_conflict="replace",
        reason=reason,
    )
