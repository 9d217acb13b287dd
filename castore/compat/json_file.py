"""Files of ejKernel's PersistentCache: `{"DEVICE|OP_ID|CALL_KEY": CONFIG, ...}`.

A file is imported once for each content it has, and left as it is. What the store
has already under a key stays. A device string may hold the separator, so the key is
taken apart from its end.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, NamedTuple, cast

from blake3 import blake3

from castore.compat import config_manifest
from castore.errors import MalformedError
from castore.format.canonical import encode

if TYPE_CHECKING:
    from castore.compat.backing import Backing, CallKey
    from castore.format.value import Value
    from castore.store.store import Store

IMPORTS = "by-key-import"
"""The namespace of the refs that say which files have been imported."""

FILE_BYTES_MAX = 64 * 2**20


class _Entries(NamedTuple):
    manifests: dict[CallKey, dict[str, Value]]
    left_out: int


def default_path(opname: str) -> str | None:
    """Return where ejKernel keeps an operation's file when nothing else is said."""
    if type(opname) is not str or os.path.basename(opname) != opname:
        return None  # an operation's name is no way to another folder
    named = os.environ.get("EJKERNEL_PERSISTENT_CACHE_DIR") or "~/ejkernel-presistent-cache"
    folder = os.path.expanduser(named)
    return None if folder.startswith("~") else os.path.join(folder, f"{opname}.json")


def import_file(backing: Backing, opname: str, path: str) -> None:
    """Bring a file's configurations into the store, if there is such a file; never raises for it.

    A file that cannot be read, and entries in it that cannot be stored, are left out with one
    warning.
    """
    try:
        data = _read(path)
    except (OSError, MalformedError) as error:
        backing.warn_once(path, f"{path} was not imported: {error}")
        return
    key = blake3(opname.encode("utf-8", "replace") + b"\0" + (data or b"")).hexdigest()
    if data is None or _is_imported(backing, key):
        return
    try:
        entries = _entries(opname, data)
    except (ValueError, RecursionError) as error:
        backing.warn_once(path, f"{path} was not imported: {error or 'it nests too deep'}")
        return
    if entries.left_out:
        message = f"{entries.left_out} entries of {path} were not imported: they cannot be stored"
        backing.warn_once(path, message)
    if not backing.write(lambda store: _store(store, entries, key, path)):
        for call, manifest in entries.manifests.items():
            if backing.recall(call) is None:
                backing.remember(call, manifest, instead_of=None)  # what the store has comes first


def _read(path: str) -> bytes | None:
    try:
        # Looked at first: opening a FIFO would wait for its writer.
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise MalformedError("path", str(error)) from None
    if not stat.S_ISREG(found.st_mode):
        raise MalformedError("path", "it is no plain file")
    if found.st_size > FILE_BYTES_MAX:
        raise MalformedError("path", f"{found.st_size} bytes, the limit is {FILE_BYTES_MAX}")
    with open(path, "rb") as file:
        return file.read(FILE_BYTES_MAX)


def _is_imported(backing: Backing, key: str) -> bool:
    return backing.read(lambda store: store.get_ref(IMPORTS, key=key) is not None, default=False)


def _entries(opname: str, data: bytes) -> _Entries:
    """Return the config manifests for a file.

    Raises:
        ValueError: It is not UTF-8, not JSON, or not a map.
        RecursionError: It nests too deep for the JSON parser.
    """
    parsed = json.loads(data.decode())
    if type(parsed) is not dict:
        raise MalformedError(".", f"expected a map, got {type(parsed).__name__}")
    manifests: dict[CallKey, dict[str, Value]] = {}
    left_out = 0
    for joined, config in parsed.items():
        try:
            manifests[_call(opname, joined)] = _manifest(config)
        except (MalformedError, RecursionError):
            left_out += 1
    return _Entries(manifests, left_out)


def _call(opname: str, joined: str) -> CallKey:
    parts = joined.rsplit("|", 2)
    if len(parts) != 3:
        raise MalformedError("key", "expected device|op_id|call_key")
    device, op_id, call_key = parts
    config_manifest.ref_name(device, opname, op_id, call_key)
    return device, opname, op_id, call_key


def _manifest(config: object) -> dict[str, Value]:
    if config is None:
        raise MalformedError(".", "null is no configuration")
    plain = cast("Value", config)
    encode(plain)
    return config_manifest.manifest(plain, encoding="json", origin="imported")


def _store(store: Store, entries: _Entries, key: str, path: str) -> None:
    reason = f"imported from {os.path.basename(path)}"
    with store.batch():
        for (device, opname, op_id, call_key), manifest in entries.manifests.items():
            topology = config_manifest.topology(device)
            text = config_manifest.kernel_text(opname, op_id, call_key)
            store.record(
                config_manifest.NAMESPACE,
                topology,
                text,
                manifest,
                on_conflict="keep",
                reason=reason,
            )
        done: dict[str, Value] = {
            "kind": "import",
            "schema": 1,
            "source": os.path.basename(path),
            "entries": len(entries.manifests),
            "left_out": entries.left_out,
        }
        store.record(IMPORTS, value=done, key=key, on_conflict="keep", reason=reason)
