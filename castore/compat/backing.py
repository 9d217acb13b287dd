"""The store behind a library's configurations, or the memory that stands in for it.

All who name one root share one open store. What cannot be written there is kept in
memory, with one warning for each root: a library that cannot keep its configurations
still runs, and tunes again next time. Memory stands in for a ref only as long as that
names what it named when the write failed: what another process puts later counts.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from castore.compat import config_manifest
from castore.errors import CastoreError, MalformedError, StoreNotFoundError
from castore.format import layout
from castore.store.opening import default_root, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.format.value import ObjectId, Value
    from castore.store.store import Store

_T = TypeVar("_T")

_log = logging.getLogger("castore")

CallKey: TypeAlias = tuple[str, str, str, str]
"""Device, opname, op_id and call_key."""


class _Remembered(NamedTuple):
    manifest: Value
    instead_of: ObjectId | None


class Backing:
    """One root: its store where that can be opened, and what had to stay in memory.

    It holds no lock, so it may be used by several threads and after a fork.

    Attributes:
        root: The store's folder.
        store: The store; None where it cannot be opened.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._memory: dict[CallKey, _Remembered] = {}
        self._warned: set[str] = set()
        self.store: Store | None = None
        try:
            self.store = _open(root)
        except (OSError, CastoreError) as error:
            self.warn_memory(error)

    def write(self, act: Callable[[Store], object]) -> bool:
        """Do something with the store; False, with one warning, where it cannot be written.

        Raises:
            MalformedError: What was to be stored is not storable: no fault of the root.
        """
        if self.store is None:
            return False
        try:
            act(self.store)
        except MalformedError:
            raise
        except (OSError, CastoreError) as error:
            self.warn_memory(error)
            return False
        return True

    def read(self, act: Callable[[Store], _T], default: _T) -> _T:
        """Return what `act` finds in the store; the default, with one warning, where it cannot."""
        if self.store is None:
            return default
        try:
            return act(self.store)
        except (OSError, CastoreError) as error:
            self.warn_once("read", f"configurations cannot be read: {error}")
            return default

    def named(self, call: CallKey, default: ObjectId | None = None) -> ObjectId | None:
        """Return the object that a call's ref names; the default where it cannot be read."""
        name = config_manifest.ref_name(*call)

        def target(store: Store) -> ObjectId | None:
            ref = store.get_ref(name.namespace, name.topology, name.kernel)
            return None if ref is None else ref.object

        return self.read(target, default)

    def remember(self, call: CallKey, manifest: Value, *, instead_of: ObjectId | None) -> None:
        """Keep a manifest that could not be stored.

        Args:
            call: The call.
            manifest: The manifest.
            instead_of: What the call's ref named before the attempt. Once it names something
                else, that counts.
        """
        self._memory[call] = _Remembered(manifest, instead_of)

    def forget(self, call: CallKey) -> None:
        """Drop what is kept for a call, which has been stored."""
        self._memory.pop(call, None)

    def recall(self, call: CallKey) -> Value | None:
        """Return the manifest that is kept for a call, if it counts."""
        found = self._memory.get(call) if self._memory else None
        if found is None:
            return None
        if self.named(call, default=found.instead_of) != found.instead_of:
            self.forget(call)
            return None
        return found.manifest

    def warn_memory(self, error: Exception) -> None:
        """Say, once, that configurations stay in memory."""
        self.warn_once("memory", f"configurations are kept in memory: {error}")

    def warn_once(self, about: str, message: str) -> None:
        """Log a warning, once for each thing it is about."""
        if about not in self._warned:
            self._warned.add(about)
            line = f"{self.root or 'no home folder'}: {message}"
            # A name that is no text would fail the handler that writes the line.
            _log.warning("%s", line if line.isprintable() else ascii(line)[1:-1])


_shared: dict[str, Backing] = {}


def shared(root: str) -> Backing:
    """Return the backing of a root, the same for all who ask in this process."""
    try:
        key = os.path.realpath(root) if root else root
    except (OSError, ValueError):
        key = root  # it cannot be opened either, and whoever tries says why
    found = _shared.get(key)
    # Two threads may both open it: a store holds nothing open, and one of the two is kept.
    return found if found is not None else _shared.setdefault(key, Backing(key))


def default_folder() -> str:
    """Return the folder of the default store; empty where there is no home to put it."""
    try:
        return default_root()
    except StoreNotFoundError:
        return ""


def _open(root: str) -> Store:
    if not root:
        raise StoreNotFoundError("~", "there is no home folder; name a store in CASTORE_DIR")
    try:
        return open_store(root)
    except StoreNotFoundError:
        # Another process may have made it, and put something into it, while we looked.
        if not os.path.lexists(os.path.join(root, layout.FORMAT)):
            raise
        return open_store(root)
