"""The floors: the calls that the work needs, and nothing else.

No name is checked, no error is told apart, nothing is looked at twice. A floor is
not a store: it is what a store on these formats and these file systems cannot do
without. Where castore makes calls that a floor leaves out (the look whether the
object is there already, the decompression of what is about to be published, the
mode, the id's check during a lookup), their cost counts against castore.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import msgpack
import zstandard
from blake3 import blake3

from castore import Link, WeakLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from castore import Value

_LEVEL = 3

_syncfs = ctypes.CDLL(None, use_errno=True).syncfs


class Floor:
    """Bare puts and gets in the folders of a store.

    Args:
        root: The store's folder.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self._decompress = zstandard.ZstdDecompressor().decompress

    def put_durable(self, value: Value) -> str:
        """Store one object so that it survives power loss."""
        content: bytes = msgpack.packb(value, default=_extension)
        oid = blake3(content).hexdigest()
        staged = self._write(self._compress(content), durable=True)
        folder = f"{self.root}/objects/{oid[:2]}"
        os.replace(staged, f"{folder}/{oid[2:]}")
        _sync(folder)
        return oid

    def put(self, value: Value) -> str:
        """Store one object, leaving it to the system when to write it."""
        content: bytes = msgpack.packb(value, default=_extension)
        oid = blake3(content).hexdigest()
        staged = self._write(self._compress(content), durable=False)
        os.replace(staged, f"{self.root}/objects/{oid[:2]}/{oid[2:]}")
        return oid

    def put_batch(self, values: Sequence[Value]) -> list[str]:
        """Store many objects with two syncs of the file system."""
        staged: dict[str, str] = {}
        for value in values:
            content: bytes = msgpack.packb(value, default=_extension)
            oid = blake3(content).hexdigest()
            staged[oid] = self._write(self._compress(content), durable=False)
        self._sync_file_system()
        for oid, path in staged.items():
            os.replace(path, f"{self.root}/objects/{oid[:2]}/{oid[2:]}")
        self._sync_file_system()
        return list(staged)

    def put_again(self, value: Value) -> str:
        """Find an object in place, compare it, make it durable and freshen it."""
        content: bytes = msgpack.packb(value, default=_extension)
        oid = blake3(content).hexdigest()
        folder = f"{self.root}/objects/{oid[:2]}"
        path = f"{folder}/{oid[2:]}"
        if self._decompress(_read(path)) != content:
            raise ValueError(oid)
        _sync(path)
        _sync(folder)
        os.utime(path)
        return oid

    def get(self, oid: str) -> object:
        """Read, decompress, hash, compare and decode one object."""
        content = self._decompress(_read(f"{self.root}/objects/{oid[:2]}/{oid[2:]}"))
        if blake3(content).hexdigest() != oid:
            raise ValueError(oid)
        return msgpack.unpackb(content)

    def lookup(self, ref_path: str) -> object:
        """Read a ref and the object that it names, and decode that: two opens, one decode."""
        oid = _read(f"{self.root}/{ref_path}")[7:71].decode()
        return msgpack.unpackb(self._decompress(_read(f"{self.root}/objects/{oid[:2]}/{oid[2:]}")))

    def _write(self, data: bytes, *, durable: bool) -> str:
        path = f"{self.root}/local/tmp/{os.urandom(12).hex()}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        os.write(fd, data)
        if durable:
            os.fsync(fd)
        os.close(fd)
        return path

    def _sync_file_system(self) -> None:
        fd = os.open(self.root, os.O_RDONLY)
        if _syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
        os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, os.fstat(fd).st_size + 1)
    os.close(fd)
    return data


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _extension(value: object) -> msgpack.ExtType:
    if isinstance(value, Link | WeakLink):
        return msgpack.ExtType(1 if isinstance(value, Link) else 2, bytes.fromhex(value.oid))
    raise TypeError(type(value))
