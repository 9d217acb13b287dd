"""Where things lie in a store: every path that castore uses, relative to its root.

Paths are made here and nowhere else, from ids, keys and names that have been
checked, so that no name can lead outside the store.
"""

from __future__ import annotations

import re

from castore.errors import MalformedError
from castore.format.value import ObjectId, shown

FORMAT = "format"
OBJECTS = "objects"
PACKS = "packs"
REFS = "refs"
NAMES = "names"
LOCAL = "local"
TMP = "local/tmp"
TRASH = "local/trash"
LOCKS = "local/locks"
LOGS = "local/logs"
LEASES = "local/leases"
PINS = "local/pins"
QUARANTINE = "local/quarantine"
USES = "local/uses"

LOCAL_FOLDERS = (LOCAL, TMP, TRASH, LOCKS, LOGS, LEASES, PINS, QUARANTINE, USES)
TOP_FOLDERS = (OBJECTS, PACKS, REFS)
SHARDS = tuple(f"{byte:02x}" for byte in range(256))
SHARD_FOLDERS = tuple(f"{OBJECTS}/{shard}" for shard in SHARDS)

RESERVED_NAMESPACES = frozenset({NAMES, "layers", "base"})
BY_KEY_PREFIX = "by-key-"
HEAL_LOCK = f"{LOCKS}/heal"
GC_LOCK = f"{LOCKS}/gc"
CLOCK = f"{LOCKS}/clock"
PROBE = f"{LOCKS}/probe"
GC_DONE = f"{LOCKS}/gc-done"
GC_LINKS = f"{LOCKS}/gc-links"
USES_BEGUN = f"{LOCKS}/uses-begun"

_is_namespace = re.compile("[a-z][a-z0-9-]{0,31}").fullmatch
_is_name = re.compile("[a-z0-9][a-z0-9._-]{0,127}").fullmatch
_is_rest = re.compile("[0-9a-f]{62}").fullmatch


def object_path(oid: ObjectId) -> str:
    """Return the path of a loose object."""
    return f"objects/{oid[:2]}/{oid[2:]}"


def trash_path(oid: ObjectId) -> str:
    """Return where gc keeps an object while it looks at it once more."""
    return f"{TRASH}/{oid}"


def pin_path(oid: ObjectId) -> str:
    """Return the file that protects an object, and what it links to, from gc."""
    return f"{PINS}/{oid}"


def ref_path(namespace: str, key: str) -> str:
    """Return the path of a ref: sharded by its key, or flat for a named one."""
    if namespace == NAMES:
        return f"{REFS}/{NAMES}/{key}"
    return f"{REFS}/{namespace}/{key[:2]}/{key[2:]}"


def log_path(namespace: str, key: str) -> str:
    """Return the log that holds a ref's entries; refs of one shard share it."""
    return f"{LOGS}/{namespace}/{ref_shard(namespace, key)}"


def use_path(namespace: str, key: str) -> str:
    """Return the empty file whose time tells when a ref was last used."""
    return f"{USES}/{namespace}/{key[:2]}/{key[2:]}"


def ref_lock_path(namespace: str, key: str) -> str:
    """Return the lock under which a ref is changed; refs whose keys begin alike share it.

    There are 16, and one for named refs: a batch of many refs holds them all at once.
    """
    return f"{LOCKS}/refs-{NAMES if namespace == NAMES else key[0]}"


def ref_shard(namespace: str, key: str) -> str:
    """Return the shard of a ref: the first byte of its key, or `names`."""
    return NAMES if namespace == NAMES else key[:2]


def oid_in_shard(shard: str, file_name: str) -> ObjectId | None:
    """Return the id or key that a file in a shard directory spells, or None for a foreign file."""
    return ObjectId.trusted(shard + file_name) if _is_rest(file_name) else None


def check_namespace(namespace: str) -> str:
    """Return `namespace` if it may hold keyed refs (REF-5).

    Raises:
        MalformedError: It does not match `[a-z][a-z0-9-]{0,31}`, or is reserved.
    """
    if not isinstance(namespace, str) or not _is_namespace(namespace):
        reason = f"expected [a-z][a-z0-9-]{{0,31}}, got {shown(namespace)}"
        raise MalformedError("namespace", reason, "REF-5")
    if namespace in RESERVED_NAMESPACES:
        raise MalformedError("namespace", f"{namespace!r} is taken by castore", "REF-5")
    return namespace


def check_name(name: str) -> str:
    """Return `name` if it may name a named ref (REF-6).

    Raises:
        MalformedError: It does not match `[a-z0-9][a-z0-9._-]{0,127}`.
    """
    if not isinstance(name, str) or not _is_name(name):
        reason = f"expected [a-z0-9][a-z0-9._-]{{0,127}}, got {shown(name)}"
        raise MalformedError("name", reason, "REF-6")
    return name


def is_namespace_folder(name: str) -> bool:
    """Tell whether a folder of `refs/` is a namespace of keyed refs."""
    return bool(_is_namespace(name)) and name not in RESERVED_NAMESPACES


def is_ref_path(path: str) -> bool:
    """Tell whether a path is where a ref, or a folder of refs, lies."""
    parts = path.split("/")
    if parts[0] != REFS or not 2 <= len(parts) <= 4:
        return False
    if parts[1] == NAMES:
        return len(parts) == 2 or (len(parts) == 3 and _is_name(parts[2]) is not None)
    shard, *rest = parts[2:] or [SHARDS[0]]
    return (
        is_namespace_folder(parts[1])
        and shard in SHARDS
        and all(oid_in_shard(shard, name) is not None for name in rest)
    )
