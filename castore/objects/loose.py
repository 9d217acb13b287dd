"""Loose objects: one zstd frame in a file of its own, `objects/ab/62hex`.

An object is published by a rename of a whole, synced temp file that replaces nothing,
so no reader meets half of one. What lies under the name already is read and compared
first: a good copy is kept, made durable (its writer may not have asked for that) and
freshened; a damaged one is moved to quarantine and written anew.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from castore.errors import (
    CorruptObjectError,
    FileTooLargeError,
    MalformedError,
    NotRegularFileError,
)
from castore.format import frame, layout
from castore.format.canonical import object_id, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.format.value import ObjectId
    from castore.fs.protocol import FileSystem

# A gc, or another writer who heals, may come in between; neither can go on doing so.
_ATTEMPTS_MAX = 100
_HEAL_WAIT_S = 30.0


class LooseObjects:
    """The loose objects of one store: a `Source`, and the way to add to it.

    Args:
        fs: The store's file system.
        durable: Whether `add` returns only when the object survives power loss.
    """

    def __init__(self, fs: FileSystem, *, durable: bool) -> None:
        self._fs = fs
        self._durable = durable

    @property
    def label(self) -> str:
        """What people call it."""
        return self._fs.root

    def find(self, oid: ObjectId) -> bytes | None:
        """See `Source`."""
        return read_frame(self._fs, layout.object_path(oid), oid)

    def has(self, oid: ObjectId) -> bool:
        """See `Source`."""
        try:
            return self._fs.stat(layout.object_path(oid)).kind == "file"
        except (FileNotFoundError, NotRegularFileError):
            return False

    def ids_in_shard(self, shard: str) -> Iterator[ObjectId]:
        """See `Source`."""
        try:
            entries = self._fs.list_folder(f"{layout.OBJECTS}/{shard}")
        except FileNotFoundError:
            return
        for entry in entries:
            oid = layout.oid_in_shard(shard, entry.name)
            if oid is not None and entry.kind == "file":
                yield oid

    def add(self, oid: ObjectId, content: bytes) -> None:
        """Return when a good, fresh and (if asked for) durable copy of the object is there.

        Raises:
            MalformedError: The compressor returned wrong bytes; nothing was published.
            CorruptObjectError: Another object has this id, or copies keep coming and going.
        """
        compressed = b""
        for _ in range(_ATTEMPTS_MAX):
            if self.adopt(oid, content):
                return
            compressed = compressed or frame.compress(content)
            staged = self.stage(compressed, durable=self._durable)
            if self.publish(staged, oid):
                if self._durable:
                    self._fs.sync_folder(folder_of(oid))
                return
            self._fs.remove(staged)
        raise CorruptObjectError(oid, layout.object_path(oid), "copies keep coming and going")

    def adopt(self, oid: ObjectId, content: bytes) -> bool:
        """Keep, freshen and make durable the good copy that is there; False where there is none.

        A damaged copy is moved to quarantine on the way.
        """
        if not self.is_good(oid, content):
            return False
        if self._durable:
            try:
                self._fs.sync_file(layout.object_path(oid))
                self._fs.sync_folder(folder_of(oid))
            except FileNotFoundError:
                return False  # gc has it; should it put it back, it would not have been synced
        return self.freshen(oid)

    def is_good(self, oid: ObjectId, content: bytes) -> bool:
        """Tell whether exactly this content is there; what is damaged goes to quarantine."""
        try:
            existing = self.find(oid)
        except CorruptObjectError:
            self.quarantine(oid)
            return False
        if existing is None or existing == content:
            return existing is not None
        if object_id(existing) == oid:
            reason = "another object has the same id, a BLAKE3 collision; nothing was written"
            raise CorruptObjectError(oid, layout.object_path(oid), reason)
        self.quarantine(oid)
        return False

    def freshen(self, oid: ObjectId) -> bool:
        """Make gc count the object as written now; False where it is gone.

        This goes by name and comes last: after it a gc that has begun spares the object.
        """
        try:
            self._fs.touch(layout.object_path(oid))
        except FileNotFoundError:
            return False
        except PermissionError:
            return self._replace_with_own(oid)
        return True

    def _replace_with_own(self, oid: ObjectId) -> bool:
        """Put a copy of our own in the place of another user's, which we may not touch.

        It is synced whatever was asked for: the copy that it replaces may have been.
        """
        try:
            content = self.find(oid)
            if content is None:
                return False
            staged = self.stage(frame.compress(content), durable=True)
            try:
                self._fs.rename(staged, layout.object_path(oid))
            except BaseException:
                self._remove_staged(staged)
                raise
            self._fs.touch(layout.object_path(oid))
        except (CorruptObjectError, FileNotFoundError):
            return False
        return True

    def stage(self, compressed: bytes, *, durable: bool) -> str:
        """Write a frame to a temp file and return its path."""
        path = temp_path()
        self._fs.write_new(path, compressed, read_only=True, durable=durable)
        return path

    def publish(self, staged: str, oid: ObjectId) -> bool:
        """Give a staged file the object's name, atomically; False where the name is taken.

        What is there is never replaced: it may be durable, or fresh, where the staged file is
        not. The temp file is then left to the caller; on an error it is gone.
        """
        try:
            try:
                self._fs.rename_new(staged, layout.object_path(oid))
            except FileNotFoundError:
                # Copies made by object storages and git lack empty folders.
                self._fs.make_folder(layout.OBJECTS)
                self._fs.make_folder(folder_of(oid))
                self._fs.sync_folder(layout.OBJECTS)
                self._fs.sync_folder("")
                self._fs.rename_new(staged, layout.object_path(oid))
        except FileExistsError:
            return False
        except BaseException:
            self._remove_staged(staged)
            raise
        return True

    def _remove_staged(self, staged: str) -> None:
        with contextlib.suppress(OSError):
            self._fs.remove(staged)

    def quarantine(self, oid: ObjectId) -> bool:
        """Move what lies under the object's name out of the way if it is damaged, keeping it.

        One at a time, and looked at once more: what one writer has seen damaged, another may
        have healed since, and told his caller so.
        """
        target = f"{layout.QUARANTINE}/{oid}-{os.urandom(4).hex()}"
        with self._fs.lock(layout.HEAL_LOCK, wait_s=_HEAL_WAIT_S):
            if not self._is_damaged(oid):
                return False
            try:
                self._fs.rename(layout.object_path(oid), target)
            except FileNotFoundError:
                return False
        return True

    def _is_damaged(self, oid: ObjectId) -> bool:
        try:
            content = self.find(oid)
            if content is not None:
                unpack(content)
        except (CorruptObjectError, MalformedError):
            return True
        return content is not None and object_id(content) != oid


def folder_of(oid: ObjectId) -> str:
    """Return the shard directory of an object."""
    return f"{layout.OBJECTS}/{oid[:2]}"


def temp_path() -> str:
    """Return a new name in `local/tmp`, unique across processes, containers and hosts."""
    return f"{layout.TMP}/{os.urandom(12).hex()}"


def read_frame(fs: FileSystem, path: str, oid: ObjectId) -> bytes | None:
    """Return the content of the frame in a file, or None where there is no file.

    Raises:
        CorruptObjectError: It is not a plain file with exactly one frame in it.
    """
    try:
        return frame.decompress(fs.read(path, limit_bytes_max=frame.FRAME_BYTES_MAX))
    except FileNotFoundError:
        return None
    except (MalformedError, NotRegularFileError, FileTooLargeError) as error:
        raise CorruptObjectError(oid, path, str(error)) from None
