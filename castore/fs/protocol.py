"""What castore asks of a file system.

Paths are relative to the store's root, with `/` between parts, and come from
`castore.format.layout` only. Two promises are kept apart: *atomic* (never seen half
done) and *durable* (survives power loss). No call is durable unless it says so.
An `OSError` passes through as it is.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a file without opening it; a symbolic link is not followed.

    Attributes:
        kind: `file`, `folder`, or what else it is, in words.
        size_bytes: Its size.
        mtime_ns: When it was last written or touched, by the file system's clock.
        inode: Which file it is, unique within the file system.
    """

    kind: str
    size_bytes: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder.

    Attributes:
        name: The name.
        kind: As in `Status`.
    """

    name: str
    kind: str


class Lock(Protocol):
    """A lock that is held until it is released; a context manager."""

    def release(self, *, remove: bool = False) -> None:
        """Let go; with `remove`, delete the lock file first, while it is still held."""

    def __enter__(self) -> Self:
        """Return the lock."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go."""


class SyncScope(Protocol):
    """Makes many writes durable at once; opened before the first of them.

    Only what is written after the scope was opened is sure to have its errors
    reported by it.
    """

    def sync_files(self, paths: Sequence[str]) -> None:
        """Return when the content of these files survives power loss."""

    def sync_folders(self, paths: Sequence[str]) -> None:
        """Return when the names in these folders survive power loss."""

    def close(self) -> None:
        """Free what the scope holds."""


class FileSystem(Protocol):
    """The calls that castore makes, over one root."""

    @property
    def root(self) -> str:
        """The root, as shown to people."""

    def read(self, path: str, *, limit_bytes_max: int) -> bytes:
        """Return the whole content of a plain file.

        Raises:
            NotRegularFileError: Something else than a plain file lies there, or a folder on
                the way is a symbolic link. It is not opened for long enough to block.
            FileTooLargeError: It has more bytes than the limit.
        """

    def stat(self, path: str) -> Status:
        """Return what is known of a name, not following a symbolic link."""

    def list_folder(self, path: str) -> list[Entry]:
        """Return the names in a folder, in no order; a link to a folder is refused."""

    def write_new(
        self, path: str, data: bytes, *, read_only: bool = False, durable: bool = False
    ) -> None:
        """Make a file that holds `data`; not atomic, but gone on any error.

        With `durable` its content, not its name, survives power loss. With `read_only` nobody gets
        the right to write it, except the group in a store that a group shares (who must be able
        to touch it).

        Raises:
            FileExistsError: The name is taken.
        """

    def append(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Add whole lines at the end of a file, which is made where missing.

        With `durable` they survive power loss, though the name of a new file may not.

        Where the file does not end with a line end, as after a crash, one is put in between.
        """

    def sync_file(self, path: str) -> None:
        """Return when the content of a file survives power loss."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder survive power loss, where the system can do that."""

    def open_sync_scope(self) -> SyncScope:
        """Open a scope for making many writes durable at once."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what has it: atomic."""

    def rename_new(self, source: str, target: str) -> None:
        """Give a file a name that must be free: atomic where the file system can do that.

        Raises:
            FileExistsError: The name is taken; nothing was changed.
        """

    def remove(self, path: str) -> None:
        """Remove a file's name."""

    def make_folder(self, path: str) -> None:
        """Make a folder; it may be there already. Not durable until its parent is synced."""

    def touch(self, path: str) -> None:
        """Set a file's mtime to now, by the file system's clock.

        Raises:
            PermissionError: The file is somebody else's and may not be written.
        """

    def clock_ns(self, path: str) -> int:
        """Return the file system's own now, in nanoseconds: writes a byte to `path` and looks.

        The computer's clock may be days away from a file server's, and some clients send their
        own time with `touch`.
        """

    def lock(self, path: str, *, wait_s: float) -> Lock:
        """Hold a lock file exclusively; writes who holds it, which also touches it.

        Where locks do nothing (some network file systems), this succeeds for everybody.

        Raises:
            LockTimeoutError: Another one held it for `wait_s` seconds; names the holder.
        """

    def do_locks_work(self, path: str) -> bool:
        """Tell whether locks exclude each other here: locks one file twice to find out."""


def kind_of(mode: int) -> str:
    """Return what a file with this `st_mode` is, in the words of `Status`."""
    for test, kind in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return kind
    return "a device"
