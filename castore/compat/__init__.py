"""The interfaces of the two systems that castore replaces, over a castore store."""

from __future__ import annotations

from castore.compat.manifest_cache import ManifestCache
from castore.compat.persistent_cache import PersistentCache

__all__ = ["ManifestCache", "PersistentCache"]
