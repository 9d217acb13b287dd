"""Finding, making and opening a store.

A store is made in an empty or missing folder only, and its `format` file is written
last: a folder that has one is a whole store, whenever the power went. What is in it
gets the owner, the group and the mode of its root: a new root has what the umask
gives, but is never open to all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import stat
from typing import TYPE_CHECKING, Literal

from castore.errors import (
    MaintenanceRefusedError,
    MalformedError,
    NotRegularFileError,
    StoreNotFoundError,
    UnsafeStoreError,
)
from castore.format import layout, version
from castore.format.value import shown
from castore.fs.posix import PosixFileSystem, is_mount_or_link, make_root
from castore.store.store import Store
from castore.store.trust import check_trust, is_shared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from castore.fs.protocol import FileSystem

_log = logging.getLogger("castore")

Durability = Literal["full", "none"]
Shared = Literal["umask", "group"]
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# What an interrupted creation leaves behind, and what a new file system holds.
_SKELETON = frozenset({*layout.TOP_FOLDERS, layout.LOCAL, "lost+found"})


def open_store(
    path: AnyPath | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "full",
    alternates: Iterable[AnyPath] = (),
) -> Store:
    """Open a store, making it where `path` is missing or an empty folder.

    Args:
        path: The store's folder. Without one: `CASTORE_DIR`, else the user's cache folder.
        create: Make a store where there is none.
        read_only: Refuse to write; never makes a store.
        durability: `full`: a write returns when it survives power loss. `none`: the system
            writes when it likes, and a crash may lose or damage what was written last.
        alternates: Stores to read below this one, before those that `CASTORE_ALTERNATES` lists
            (separated like `PATH`).

    Raises:
        MalformedError: The path is empty, or no file can be called so.
        StoreNotFoundError: There is no store, and none may be made.
        StoreVersionError: The store needs a newer castore.
        UnsafeStoreError: `local/` is a link, or on another file system than the store. Or the
            store, or one that is read below it, is a stranger's or may be written by every user,
            and `CASTORE_TRUST` does not list it.
    """
    if durability not in ("full", "none"):
        raise MalformedError("durability", f"expected full or none, got {durability!r}")
    root = absolute(default_root() if path is None else path)
    if not has_format(root):
        if read_only or not create:
            raise StoreNotFoundError(root, "there is no format file; make one with: castore init")
        create_store(root)
    fs = _open_root(root)
    why_read_only = _why_read_only(fs, read_only=read_only)
    if not why_read_only:
        _prepare_local(fs)
    return Store(
        fs,
        read_only=why_read_only,
        durable=durability == "full",
        alternates=tuple(_alternates(alternates)),
    )


def default_root() -> str:
    """Return the store that is used when none is named.

    Raises:
        StoreNotFoundError: `CASTORE_DIR` is not set, and there is no home folder.
    """
    named = os.environ.get("CASTORE_DIR")
    if named:
        return os.path.expanduser(named)  # a shell leaves the ~ of a quoted value alone
    from platformdirs import user_cache_path  # noqa: PLC0415 - only needed here, and not light

    try:
        root = str(user_cache_path("castore", appauthor=False) / "store")
    except RuntimeError:
        root = "~"
    # Older versions of platformdirs give the path as it is: a folder called `~` is no home.
    if root.startswith("~"):
        raise StoreNotFoundError("~", "there is no home folder; name a store in CASTORE_DIR")
    return root


def create_store(root: str, *, shared: Shared = "umask") -> None:
    """Make a store in a missing or empty folder, durably; an existing store is left as it is.

    Args:
        root: The folder.
        shared: `umask`: a new folder gets the mode that the umask gives, and everything in the
            store follows it. `group`: all users of the folder's group may read and write.

    Raises:
        StoreNotFoundError: The folder holds something else.
        MaintenanceRefusedError: It is a store already, and no group shares it.
        UnsafeStoreError: The folder is a stranger's, or every user may write it; or its group
            cannot be given it.
    """
    _refuse_file(root)
    _make_trusted(root)
    if has_store(root):
        if shared == "group" and not is_shared(root):
            raise MaintenanceRefusedError("sharing", _how_to_share(root))
        return
    if shared == "group":
        _share(root)
    lay_out(PosixFileSystem(root))  # it takes the modes from the root


def has_store(root: str) -> bool:
    """Tell whether a store is here; where none is, one can be made here.

    Raises:
        StoreNotFoundError: Something else is here.
    """
    _refuse_file(root)
    if not os.path.lexists(root):
        return False
    fs = PosixFileSystem(root)
    # Asked first: where another process makes and fills the store meanwhile, `format` shows it.
    has_objects = _has_objects(fs)
    names = {entry.name for entry in fs.list_folder("")}
    if layout.FORMAT in names:
        return True
    strange = sorted(names - _SKELETON)
    if strange or has_objects:
        found = strange[0] if strange else "objects without a format file"
        raise StoreNotFoundError(
            root, f"the folder is not empty ({found!r}); name an empty or missing one"
        )
    return False


def _refuse_file(root: str) -> None:
    if os.path.lexists(root) and not os.path.isdir(root):
        raise StoreNotFoundError(root, "it is not a folder; name an empty or missing one")


def _make_trusted(root: str) -> None:
    """Make a folder, unless what is made there is open to all, as on exFAT without a umask."""
    is_new = not os.path.lexists(root)
    make_root(root)
    try:
        check_trust(root)
    except UnsafeStoreError:
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(root)
        raise


def _share(root: str) -> None:
    """Give a folder to its group: what is made in it belongs to that group as well."""
    os.chmod(root, (stat.S_IMODE(os.stat(root).st_mode) | 0o2070) & ~stat.S_IWOTH)
    if not is_shared(root):
        reason = "it cannot be shared: its group is none of yours, or groups are unknown here"
        raise UnsafeStoreError(root, reason)


def _how_to_share(root: str) -> str:
    here = shlex.quote(root)
    return (
        f"{root} is a store that no group shares; to share it, run as its owner: "
        f"chmod -R g+rwX {here} && find {here} -type d -exec chmod g+s {{}} +"
    )


def lay_out(fs: FileSystem) -> None:
    """Make the folders of a store, then its `format` file, durably."""
    for folder in (*layout.TOP_FOLDERS, *layout.LOCAL_FOLDERS, *layout.SHARD_FOLDERS):
        fs.make_folder(folder)
    for folder in (layout.OBJECTS, layout.LOCAL, ""):
        fs.sync_folder(folder)
    _make_gc_files(fs)
    _begin_uses(fs)
    staged = f"{layout.TMP}/{os.urandom(12).hex()}"
    fs.write_new(staged, version.VERSION_1, durable=True)
    fs.rename(staged, layout.FORMAT)
    fs.sync_folder("")


def _make_gc_files(fs: FileSystem) -> None:
    """Make the files that gc needs: on a disk that is full it could not make them."""
    for path in (layout.GC_LOCK, layout.CLOCK, layout.PROBE):
        fs.append(path, b"\n")


def _begin_uses(fs: FileSystem) -> None:
    """Write down that from now on it is known when a ref was used."""
    fs.append(layout.USES_BEGUN, b"\n")


def _has_objects(fs: FileSystem) -> bool:
    try:
        shards = fs.list_folder(layout.OBJECTS)
    except FileNotFoundError:
        return False
    return any(
        shard.kind != "folder" or fs.list_folder(f"{layout.OBJECTS}/{shard.name}")
        for shard in shards
    )


def has_format(root: str) -> bool:
    """Tell whether a folder is a store, or was meant to be one.

    Raises:
        PermissionError: This user may not look into it.
    """
    try:
        os.lstat(os.path.join(root, layout.FORMAT))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def absolute(path: AnyPath) -> str:
    """Return an absolute path as text.

    Raises:
        MalformedError: It is empty, or no file can be called so.
    """
    text = os.fsdecode(path)
    if not text:
        # An unset variable, most likely; it must not turn the current folder into a store.
        raise MalformedError("path", "an empty path names no store")
    try:
        is_sound = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_sound = False
    if not is_sound:
        raise MalformedError("path", f"no file can be called {shown(text)}")
    return os.path.abspath(text)


def _open_root(root: str) -> PosixFileSystem:
    check_trust(root)
    fs = PosixFileSystem(root)
    try:
        data = fs.read(layout.FORMAT, limit_bytes_max=version.FORMAT_BYTES_MAX)
    except NotRegularFileError as error:
        raise StoreNotFoundError(root, str(error)) from None
    version.check_format(data, shown_path=root)
    return fs


def _why_read_only(fs: PosixFileSystem, *, read_only: bool) -> str:
    if read_only:
        return "it was opened so"
    return "" if fs.is_writable() else "no permission to write there, or a read-only file system"


def _prepare_local(fs: PosixFileSystem) -> None:
    """Make what is missing of `local/`, which copies of a store do not have."""
    try:
        present = {f"{layout.LOCAL}/{entry.name}" for entry in fs.list_folder(layout.LOCAL)}
    except FileNotFoundError:
        present = set()
        fs.make_folder(layout.LOCAL)
        fs.sync_folder("")
    except NotRegularFileError as error:
        raise UnsafeStoreError(f"{fs.root}/{error.path}", f"it is no folder: {error}") from None
    missing = [folder for folder in layout.LOCAL_FOLDERS[1:] if folder not in present]
    for folder in missing:
        fs.make_folder(folder)
    if missing:
        fs.sync_folder(layout.LOCAL)
    if layout.LOCKS in missing:
        _make_gc_files(fs)
    if layout.USES in missing:
        _begin_uses(fs)
    for folder in layout.LOCAL_FOLDERS:
        if is_mount_or_link(fs.root, folder):
            reason = "a link or a mount: its files could not be renamed into the store atomically"
            raise UnsafeStoreError(f"{fs.root}/{folder}", reason)


def _alternates(alternates: Iterable[AnyPath]) -> Iterable[FileSystem]:
    listed = os.environ.get("CASTORE_ALTERNATES", "")
    named = map(os.path.expanduser, filter(None, listed.split(os.pathsep)))
    for path in (*alternates, *named):
        root = absolute(path)
        try:
            is_store = has_format(root)
        except PermissionError:
            _log.warning("alternate %s may not be read by this user; left out", root)
            continue
        if is_store:
            yield _open_root(root)
        else:
            _log.warning("alternate %s is not a store; left out", root)
