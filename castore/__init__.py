"""castore: a content-addressed store on disk for the results of kernel tuning.

Names are loaded when they are first used, so that `import castore` costs next to
nothing in a program that may never need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from castore import compat, tuning
    from castore.errors import (
        CastoreError,
        CorruptObjectError,
        CorruptRefError,
        LockTimeoutError,
        MaintenanceRefusedError,
        MalformedError,
        ObjectNotFoundError,
        ReadOnlyStoreError,
        RefConflictError,
        RefNotFoundError,
        StoreNotFoundError,
        StoreVersionError,
        UnsafeStoreError,
    )
    from castore.format.canonical import decode, encode, object_id
    from castore.format.ref import Ref, topology_key
    from castore.format.reflog import LogEntry
    from castore.format.value import Link, ObjectId, Value, WeakLink
    from castore.refs.transaction import PreviousValue
    from castore.store.opening import open_store as open  # noqa: A004 - the public name
    from castore.store.store import Store

__version__ = "0.1.0"

_ERRORS = (
    "CastoreError",
    "CorruptObjectError",
    "CorruptRefError",
    "LockTimeoutError",
    "MaintenanceRefusedError",
    "MalformedError",
    "ObjectNotFoundError",
    "ReadOnlyStoreError",
    "RefConflictError",
    "RefNotFoundError",
    "StoreNotFoundError",
    "StoreVersionError",
    "UnsafeStoreError",
)

_HOMES = {
    **dict.fromkeys(_ERRORS, "castore.errors"),
    "decode": "castore.format.canonical",
    "encode": "castore.format.canonical",
    "object_id": "castore.format.canonical",
    "Ref": "castore.format.ref",
    "topology_key": "castore.format.ref",
    "LogEntry": "castore.format.reflog",
    "Link": "castore.format.value",
    "ObjectId": "castore.format.value",
    "Value": "castore.format.value",
    "WeakLink": "castore.format.value",
    "PreviousValue": "castore.refs.transaction",
    "open": "castore.store.opening",
    "Store": "castore.store.store",
}
_RENAMED = {"open": "open_store"}
_PACKAGES = frozenset({"compat", "tuning"})

__all__ = [
    "CastoreError",
    "CorruptObjectError",
    "CorruptRefError",
    "Link",
    "LockTimeoutError",
    "LogEntry",
    "MaintenanceRefusedError",
    "MalformedError",
    "ObjectId",
    "ObjectNotFoundError",
    "PreviousValue",
    "ReadOnlyStoreError",
    "Ref",
    "RefConflictError",
    "RefNotFoundError",
    "Store",
    "StoreNotFoundError",
    "StoreVersionError",
    "UnsafeStoreError",
    "Value",
    "WeakLink",
    "compat",
    "decode",
    "encode",
    "object_id",
    "open",
    "topology_key",
    "tuning",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for."""
    if name in _PACKAGES:
        return import_module(f"castore.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'castore' has no attribute {name!r}")
    found = getattr(import_module(home), _RENAMED.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
