"""The floors: the system calls and codec calls that the work needs, written out bare.

No name is checked, no error is told apart, no map is sorted. What castore promises
is kept: a put looks whether the object is there and decompresses what it is about
to publish, a get checks the id. `checks=False` leaves that out of the puts: it is
what a writer would do that trusts everything.
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
        checks: Whether a put looks and compares.
    """

    def __init__(self, root: str, *, checks: bool = True) -> None:
        self.root = root
        self._checks = checks
        self._compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self._decompress = zstandard.ZstdDecompressor().decompress

    def put_durable(self, value: Value) -> str:
        """Store one object so that it survives power loss."""
        oid, staged = self._stage(value, durable=True)
        folder = f"{self.root}/objects/{oid[:2]}"
        os.replace(staged, f"{folder}/{oid[2:]}")
        _sync(folder)
        return oid

    def put_batch(self, values: Sequence[Value]) -> list[str]:
        """Store many objects with two syncs of the file system."""
        staged = [self._stage(value, durable=False) for value in values]
        self._sync_file_system()
        for oid, path in staged:
            os.replace(path, f"{self.root}/objects/{oid[:2]}/{oid[2:]}")
        self._sync_file_system()
        return [oid for oid, _ in staged]

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

    def load(self, oid: str) -> object:
        """Read, decompress and decode one object: one open, nothing hashed."""
        return msgpack.unpackb(self._decompress(_read(f"{self.root}/objects/{oid[:2]}/{oid[2:]}")))

    def _stage(self, value: Value, *, durable: bool) -> tuple[str, str]:
        content: bytes = msgpack.packb(value, default=_extension)
        oid = blake3(content).hexdigest()
        if self._checks and _is_there(f"{self.root}/objects/{oid[:2]}/{oid[2:]}"):
            raise FileExistsError(oid)
        frame = self._compress(content)
        if self._checks and self._decompress(frame) != content:
            raise ValueError(oid)
        return oid, self._write(frame, durable=durable)

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


def _is_there(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    os.close(fd)
    return True


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _extension(value: object) -> msgpack.ExtType:
    if isinstance(value, Link | WeakLink):
        return msgpack.ExtType(1 if isinstance(value, Link) else 2, bytes.fromhex(value.oid))
    raise TypeError(type(value))
