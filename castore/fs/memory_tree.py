"""What a `MemoryFileSystem` holds, and what a power loss leaves of it.

Files only ever grow, so what is durable of one is a length. Each folder has its
names twice, as seen now and as durable, and knows which changed since its last
sync: syncing costs what changed, whatever the size of the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from castore.fs.memory import MemoryLock

Content: TypeAlias = Literal["kept", "dropped", "torn"]
"""What is left of content that was not synced: all, nothing, or half."""

Names: TypeAlias = Literal["kept", "dropped"]
"""Whether changes of names since the last sync of their folder are left or undone."""


class File:
    """A file's content, whatever its names are."""

    __slots__ = ("content", "holder", "inode", "mtime_ns", "synced_bytes")

    def __init__(self, inode: int, mtime_ns: int) -> None:
        self.inode = inode
        self.mtime_ns = mtime_ns
        self.content = bytearray()
        self.synced_bytes = 0
        self.holder: MemoryLock | None = None


class Folder:
    """A folder's names: those seen now, and those that a power loss would leave."""

    __slots__ = ("changed", "durable", "inode", "mtime_ns", "names")

    def __init__(self, inode: int, mtime_ns: int) -> None:
        self.inode = inode
        self.mtime_ns = mtime_ns
        self.names: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}
        self.changed: set[str] = set()

    def set(self, name: str, node: File | Folder) -> None:
        """Give a file or folder a name here, taking it from what had it."""
        self.names[name] = node
        self.changed.add(name)

    def drop(self, name: str) -> None:
        """Remove a name."""
        del self.names[name]
        self.changed.add(name)

    def sync(self) -> None:
        """Make the names durable as they are now."""
        for name in self.changed:
            if name in self.names:
                self.durable[name] = self.names[name]
            else:
                self.durable.pop(name, None)
        self.changed.clear()


def folder_after_power_loss(
    folder: Folder, unsynced: Content, unsynced_names: Names, survivors: dict[int, File]
) -> Folder:
    """Return a copy of `folder` as a reboot finds it; `survivors` holds the files by inode."""
    copy = Folder(folder.inode, folder.mtime_ns)
    names = folder.names if unsynced_names == "kept" else folder.durable
    for name, node in names.items():
        if isinstance(node, Folder):
            copy.names[name] = folder_after_power_loss(node, unsynced, unsynced_names, survivors)
        else:
            if node.inode not in survivors:
                survivors[node.inode] = _file_after_power_loss(node, unsynced)
            copy.names[name] = survivors[node.inode]
    copy.durable = dict(copy.names)
    return copy


def _file_after_power_loss(file: File, unsynced: Content) -> File:
    size_bytes = {
        "kept": len(file.content),
        "dropped": file.synced_bytes,
        "torn": (file.synced_bytes + len(file.content)) // 2,
    }[unsynced]
    copy = File(file.inode, file.mtime_ns)
    copy.content[:] = file.content[:size_bytes]
    copy.synced_bytes = size_bytes
    return copy
