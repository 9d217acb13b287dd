"""`PersistentCache`: ejKernel's interface over a castore store.

What its users had to live with and what happens here instead: a damaged file stopped
the import (one warning, a miss); processes lost each other's puts and never saw them
(each key is a ref of its own, asked for at every get); one value that JSON cannot
hold failed every later put (it is refused at its own put, before anything is
stored); tuples, integer keys and nested dataclasses came back as something else
(`castore.compat.tagged`); overrides and defaults were stored as if they had been
tuned (the manifest records the origin).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from castore.compat import config_manifest, json_file
from castore.compat.backing import default_folder, shared
from castore.compat.dump import dump
from castore.compat.recipe import MISFITS, recipe
from castore.errors import MalformedError
from castore.store.memo import RefMemo
from castore.store.opening import absolute

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.compat.config_manifest import Origin
    from castore.format.value import Value
    from castore.store.store import Store

Cfg = TypeVar("Cfg")
_Memo: TypeAlias = "RefMemo[Callable[[], Cfg]]"

_ORIGIN_OF_EVENT: dict[str, Origin] = {
    "autotune_start": "tuned",
    "heuristics": "heuristic",
    "override": "override",
}
_EVENTS_MAX = 1024


class PersistentCache(Generic[Cfg]):
    """Keeps the configurations of one operation, by device, operation and call.

    Without `path` they are in the store that `CASTORE_DIR` names, else in castore's
    default store. A file that ejKernel has left for the operation (in
    `EJKERNEL_PERSISTENT_CACHE_DIR`, else in `~/ejkernel-presistent-cache`) is imported
    into it.

    `path` may name a store's folder, or a JSON file of ejKernel's: `fa.json` is imported
    and left as it is, and new configurations go to the store `fa.castore` beside it. A
    file is imported once, and again only when its content has changed; a key that the
    store knows keeps what it has.

    A root that cannot be used costs one warning of the logger `castore`: configurations
    then stay in the memory of this process. So does one that could not be stored, until
    another process stores one for the same call.

    Args:
        opname: The operation.
        path: A store's folder, or a JSON file of ejKernel's.
        loader: Makes a configuration of the plain data; what it returns is treated as the
            plain data would be, if that is a dict.
        dumper: Makes plain data of a configuration.
        cfg_type: The configurations' class. With a dataclass, nested dataclasses, named
            tuples and enums come back typed as its annotations say. Any other callable gets
            the fields by keyword. Without one a configuration with fields comes back as an
            `argparse.Namespace`, and dataclasses nested in it as dicts; enums and named tuples
            are refused then, as they would come back as something else.

    Attributes:
        path: The JSON file, where `path` named one; else the store's folder.
        loader: As given.
        dumper: As given.
        cfg_type: As given.
    """

    def __init__(
        self,
        opname: str,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        loader: Callable[[Any], Cfg] | None = None,
        dumper: Callable[[Cfg], Any] | None = None,
        cfg_type: type[Cfg] | None = None,
    ) -> None:
        root, file = _locate(opname, path)
        self.path = file if file is not None and path is not None else root
        self.loader = loader
        self.dumper = dumper
        self.cfg_type = cfg_type
        self._opname = opname
        self._origins: dict[tuple[str, str, str], Origin] = {}
        self._backing = shared(root)
        store = self._backing.store
        self._memo = None if store is None else RefMemo(store, self._recipe)
        if file is not None:
            json_file.import_file(self._backing, opname, file)

    def get(self, device: str, op_id: str, call_key: str) -> Cfg | None:
        """Return a configuration that is the caller's own to change, or None.

        Puts of other processes are seen. Damage in the store, and a configuration that no longer
        fits `cfg_type`, is a miss with one warning. What `loader` raises passes through.
        """
        key = (device, op_id, call_key)
        remembered = self._backing.recall((device, self._opname, op_id, call_key))
        if remembered is not None:
            made = self._recipe(remembered)
            return None if made is None else made()
        if self._memo is None:
            return None
        found = self._memo.known(key) or self._looked_up(self._memo, key)
        return None if found is None else found()

    def put(
        self,
        device: str,
        op_id: str,
        call_key: str,
        cfg: Cfg,
        *,
        origin: Origin | None = None,
    ) -> None:
        """Store a configuration, in place of the one that the same call had.

        What is there already is not stored again. The log of the ref keeps what was replaced.

        Args:
            device: The device string, of any length and with any characters.
            op_id: The operation with its version.
            call_key: What tells this call from others.
            cfg: The configuration: a dataclass, a Pydantic model, a Namespace or plain data.
                Numpy's numbers come back as the Python numbers that they hold.
            origin: `tuned`, `heuristic`, `override` or `unstated`, for the manifest. Without it,
                what `on_event` heard of this call, else `unstated`.

        Raises:
            MalformedError: Something would not come back equal and with its type (`where` names the
                field), or a part of the key cannot be stored; nothing was stored.
        """
        name = config_manifest.ref_name(device, self._opname, op_id, call_key)
        plain = dump(cfg, self.dumper, self.loader, self.cfg_type)
        heard = self._origins.pop((device, op_id, call_key), "unstated")
        manifest = config_manifest.manifest(plain, encoding="tagged", origin=origin or heard)
        call = (device, self._opname, op_id, call_key)
        before = self._backing.named(call)

        def record(store: Store) -> None:
            now = store.lookup(name.namespace, name.topology, name.kernel)
            if not config_manifest.says_the_same(now, manifest):
                topology = config_manifest.topology(device)
                store.record(name.namespace, topology, name.kernel, manifest, on_conflict="replace")

        if self._backing.write(record):
            self._backing.forget(call)
        else:
            self._backing.remember(call, manifest, instead_of=before)

    def on_event(self, event: str, **data: object) -> None:
        """Note how the configuration that is put next came about.

        It has the form of an ejKernel selector's `on_event`: setting both `persistent` and
        `on_event` of a selector tells tuned configurations from defaults and overrides.
        """
        origin = _ORIGIN_OF_EVENT.get(event)
        if origin is not None:
            if len(self._origins) >= _EVENTS_MAX:
                self._origins.clear()
            key = (str(data.get("device")), str(data.get("op_id")), str(data.get("call_key")))
            self._origins[key] = origin

    def _looked_up(self, memo: _Memo[Cfg], key: tuple[str, str, str]) -> Callable[[], Cfg] | None:
        device, op_id, call_key = key
        try:
            name = config_manifest.ref_name(device, self._opname, op_id, call_key)
        except MalformedError:
            return None  # no such key can have been stored
        return self._backing.read(lambda _: memo.lookup(key, name), default=None)

    def _recipe(self, manifest: Value) -> Callable[[], Cfg] | None:
        """Return what makes configurations of a manifest; None, with a warning, if it cannot."""
        try:
            plain, encoding = config_manifest.config_in(manifest)
            made = recipe(plain, encoding, self.loader, self.cfg_type)
        except MISFITS as error:
            about = getattr(self.cfg_type, "__qualname__", "a Namespace")
            message = f"a configuration of {self._opname} does not fit {about}: {error}"
            self._backing.warn_once(f"fit {self._opname}", message)
            return None
        return cast("Callable[[], Cfg]", made)


def _locate(
    opname: str, path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None
) -> tuple[str, str | None]:
    """Return the store's folder, and the JSON file of ejKernel's to import, if any."""
    if path is None:
        return default_folder(), json_file.default_path(opname)
    expanded = os.path.expanduser(os.fsdecode(path))
    if not expanded or expanded.startswith("~"):
        return "", None  # nobody knows the home, or it is a variable that was not set
    try:
        given = absolute(expanded)
    except (OSError, MalformedError):
        return expanded, None  # the working folder is gone, or no file can be called so
    if os.path.isdir(given):
        return given, None
    stem, extension = os.path.splitext(given)
    if extension == ".json" or os.path.isfile(given):
        return f"{stem}.castore", given
    return given, None
