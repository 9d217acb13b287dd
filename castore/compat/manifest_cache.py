"""`ManifestCache`: wgsl_forge's interface over a castore store.

What its users had to live with and what happens here instead: the later of two
different writers won in silence (exactly one wins, the other gets a
`RefConflictError`); retuning was impossible (`on_conflict="replace"`, and the log
keeps what was replaced); a permission error read as a miss (it is raised); upper-case
hex gave one key two names (it is refused); nothing was synced (all is).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from castore.errors import MalformedError
from castore.format import layout, ref
from castore.store.opening import open_store

if TYPE_CHECKING:
    import os

    from castore.format.value import ObjectId, Value
    from castore.refs.transaction import OnConflict

TUNING = "tuning"
_BY_KEY_TUNING = "by-key-tuning"
_BY_KEY_CERTIFICATION = "by-key-certification"
_FOREIGN = "foreign-"
_SCHEMA = 1


class Record(Protocol):
    """A typed record of castore's, such as `castore.tuning.TuningManifest`."""

    def to_value(self) -> dict[str, Value]:
        """Return the manifest as stored."""


class ManifestCache:
    """Keeps tuning and certification manifests, by a cache key or by topology and kernel.

    A manifest is a mapping, or one of castore's own records. What is loaded is a dict: equal
    to the mapping that was stored, or to the record's `to_value()`, which the record's class
    reads with `from_value`. A mapping without `kind` and `schema` is wrapped in the store as
    `{"kind": "foreign-tuning", "schema": 1, "record": {...}}` (or `foreign-certification`).

    A cache key is 64 lower-case hex digits: the manifest's own `cache_key`, or `key=` for a
    manifest that has none, as castore's records.

    Args:
        root: The store's folder; made where it is missing or empty.
    """

    def __init__(self, root: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> None:
        self._store = open_store(root)

    @property
    def root(self) -> Path:
        """The store's folder."""
        return self._store.root

    def store_certification(
        self,
        manifest: Mapping[str, Value] | Record,
        *,
        key: str | None = None,
        on_conflict: OnConflict = "error",
    ) -> Path:
        """Store a certification under its cache key; otherwise as `store_tuning`."""
        value = _wrapped(manifest, "certification")
        return self._record_by_key(_BY_KEY_CERTIFICATION, manifest, value, key, on_conflict)

    def store_tuning(
        self,
        manifest: Mapping[str, Value] | Record,
        *,
        key: str | None = None,
        on_conflict: OnConflict = "error",
    ) -> Path:
        """Store a tuning manifest under its cache key.

        Args:
            manifest: The manifest.
            key: The cache key, in place of the manifest's own.
            on_conflict: What to do when the key has another manifest: `error`, `keep` that one,
                or `replace` it.

        Returns:
            The file of the object that the key names now. Packing moves objects, so it holds for
            this moment.

        Raises:
            MalformedError: There is no cache key, it is not 64 lower-case hex digits, or the
                manifest cannot be stored.
            RefConflictError: The key has another manifest; nothing was changed.
        """
        value = _wrapped(manifest, "tuning")
        return self._record_by_key(_BY_KEY_TUNING, manifest, value, key, on_conflict)

    def load_tuning(self, key: str) -> dict[str, Value] | None:
        """Return the tuning manifest under a cache key, or None.

        Damage is a miss with one warning; that a file may not be read is an error.

        Raises:
            MalformedError: The key is not 64 lower-case hex digits.
        """
        return _unwrapped(self._store.lookup(_BY_KEY_TUNING, key=key))

    @staticmethod
    def topology_key(topology_hash: str, kernel_id: str) -> str:
        """Return BLAKE3 of the topology's hex digits, a zero byte and the kernel id, in hex."""
        return ref.topology_key(topology_hash, kernel_id)

    def load_tuning_for_topology(
        self, topology_hash: str, kernel_id: str
    ) -> dict[str, Value] | None:
        """Return the tuning manifest of a kernel on a topology, or None; as `load_tuning`.

        It says nothing of whether the kernel is still the one that was tuned:
        `castore.tuning.find` compares that.
        """
        return _unwrapped(self._store.lookup(TUNING, topology_hash, kernel_id))

    def store_tuning_for_topology(
        self,
        topology_hash: str,
        kernel_id: str,
        manifest: Mapping[str, Value] | Record,
        *,
        on_conflict: OnConflict = "error",
    ) -> Path:
        """Store a tuning manifest for a kernel on a topology; otherwise as `store_tuning`."""
        value = _wrapped(manifest, "tuning")
        oid = self._store.record(TUNING, topology_hash, kernel_id, value, on_conflict=on_conflict)
        return self._path(oid)

    def _record_by_key(
        self,
        namespace: str,
        manifest: Mapping[str, Value] | Record,
        value: dict[str, Value],
        key: str | None,
        on_conflict: OnConflict,
    ) -> Path:
        if key is None:
            key = _cache_key(manifest)
        oid = self._store.record(namespace, value=value, key=key, on_conflict=on_conflict)
        return self._path(oid)

    def _path(self, oid: ObjectId) -> Path:
        """Return the object's file: here, or in the alternate that has it."""
        roots = (self._store.root, *map(Path, self._store.alternates))
        files = [root / layout.object_path(oid) for root in roots]
        return next((file for file in files if file.exists()), files[0])


def _plain(manifest: Mapping[str, Value] | Record) -> dict[str, Value]:
    return dict(manifest) if isinstance(manifest, Mapping) else manifest.to_value()


def _wrapped(manifest: Mapping[str, Value] | Record, kind: str) -> dict[str, Value]:
    """Return the manifest as stored; what lacks `kind` or `schema` gets a map around it."""
    value = _plain(manifest)
    named, schema = value.get("kind"), value.get("schema")
    is_manifest = type(named) is str and type(schema) is int
    if is_manifest and not cast("str", named).startswith(_FOREIGN):
        return value
    return {"kind": f"{_FOREIGN}{kind}", "schema": _SCHEMA, "record": cast("Value", value)}


def _unwrapped(value: Value) -> dict[str, Value] | None:
    if type(value) is not dict:
        return None
    record = value.get("record")
    if str(value.get("kind")).startswith(_FOREIGN) and type(record) is dict:
        return record
    return value


def _cache_key(manifest: Mapping[str, Value] | Record) -> str:
    key = _plain(manifest).get("cache_key")
    if type(key) is not str:
        reason = "a manifest is stored under its cache_key, 64 hex digits; or give key="
        raise MalformedError(".cache_key", reason, "REF-5")
    return key
