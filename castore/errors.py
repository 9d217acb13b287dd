"""Every error that castore raises on purpose.

One class for each thing a caller may want to do about it. `exit_status` is what
the command returns for it. An `OSError` is never wrapped: a full disk stays
`OSError` with `ENOSPC`. Attributes carry the facts, `__str__` makes the sentence,
and `args` equal the constructor's arguments, so that errors survive pickling.
"""

from __future__ import annotations


class CastoreError(Exception):
    """Anything that castore itself reports."""

    exit_status = 1


class MalformedError(CastoreError, ValueError):
    """A value, a name or bytes break a rule of the format; the caller's input is at fault.

    Contrast `CorruptObjectError`: there the store's own bytes are at fault.

    Attributes:
        where: The path of the field, such as `.samples[3]`, or the offset in the bytes.
        reason: What is wrong and what would be right.
        rule: The rule of SPEC.md that is broken, such as `CAN-5`; empty where no rule applies.
    """

    exit_status = 2

    def __init__(self, where: str, reason: str, rule: str = "") -> None:
        self.where = where
        self.reason = reason
        self.rule = rule
        super().__init__(where, reason, rule)

    def __str__(self) -> str:
        rule = f" ({self.rule})" if self.rule else ""
        return f"{self.where}: {self.reason}{rule}"


class ObjectNotFoundError(CastoreError, KeyError):
    """No source of the store holds this object.

    Attributes:
        oid: The id that was looked up.
        searched: The sources asked, in order, as shown to people.
    """

    exit_status = 3

    def __init__(self, oid: str, searched: tuple[str, ...] = ()) -> None:
        self.oid = oid
        self.searched = searched
        super().__init__(oid, searched)

    def __str__(self) -> str:
        where = ", ".join(self.searched) or "an empty store"
        return f"object {self.oid} not found (searched {where})"


class RefNotFoundError(CastoreError, KeyError):
    """The ref that an operation needs does not exist.

    Attributes:
        name: The ref, as shown to people.
    """

    exit_status = 3

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)

    def __str__(self) -> str:
        return f"there is no ref {self.name}"


class StoreNotFoundError(CastoreError, FileNotFoundError):
    """There is no store at this path, and none may be made there.

    Attributes:
        path: The folder that was asked for.
        reason: Why it is not a store, or why none is made.
    """

    exit_status = 3

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"no castore store at {self.path}: {self.reason}"


class CorruptObjectError(CastoreError):
    """A stored object's bytes are not the object that its name promises.

    Attributes:
        oid: The id under which the bytes were found.
        path: The file, as shown to people.
        reason: What is wrong with it.
    """

    exit_status = 4

    def __init__(self, oid: str, path: str, reason: str) -> None:
        self.oid = oid
        self.path = path
        self.reason = reason
        super().__init__(oid, path, reason)

    def __str__(self) -> str:
        return f"object {self.oid} is damaged: {self.reason} ({self.path}); run: castore repair"


class CorruptRefError(CastoreError):
    """A ref's file does not follow the format, or does not belong under its name.

    Attributes:
        path: The file, as shown to people.
        reason: What is wrong with it.
    """

    exit_status = 4

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"ref {self.path} is damaged: {self.reason}; run: castore repair"


class NotRegularFileError(CastoreError):
    """A symbolic link, a FIFO, a device or a folder stands where a plain file belongs.

    Attributes:
        path: The path, relative to the store.
        found: What stands there.
    """

    exit_status = 4

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(path, found)

    def __str__(self) -> str:
        if self.found == "file":
            return f"{self.path} is a file, not a folder; it was not read"
        found = "a folder" if self.found == "folder" else self.found
        return f"{self.path} is {found}, not a plain file; it was not read"


class FileTooLargeError(CastoreError):
    """A file is larger than anything castore writes under that name.

    Attributes:
        path: The path, relative to the store.
        size_bytes: Its size.
        limit_bytes_max: The most that a file of this kind may hold.
    """

    exit_status = 4

    def __init__(self, path: str, size_bytes: int, limit_bytes_max: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.limit_bytes_max = limit_bytes_max
        super().__init__(path, size_bytes, limit_bytes_max)

    def __str__(self) -> str:
        return f"{self.path} has {self.size_bytes} bytes, the limit is {self.limit_bytes_max}"


class LockTimeoutError(CastoreError, TimeoutError):
    """Another process held a lock for longer than this one was willing to wait.

    Attributes:
        path: The lock file, relative to the store.
        waited_s: How long this process waited, in seconds.
        holder: What the holder wrote about itself; empty when it is unknown.
    """

    exit_status = 5

    def __init__(self, path: str, waited_s: float, holder: str) -> None:
        self.path = path
        self.waited_s = waited_s
        self.holder = holder
        super().__init__(path, waited_s, holder)

    def __str__(self) -> str:
        holder = self.holder or "an unknown process"
        return f"{self.path} is held by {holder}; gave up after {self.waited_s:g} s"


class RefConflictError(CastoreError):
    """The ref names another object than the caller allows; nothing was changed.

    Attributes:
        name: The ref, as shown to people.
        existing: The id that the ref names now; `-` when it names none.
        wanted: The id that the caller wanted it to name.
    """

    exit_status = 6

    def __init__(self, name: str, existing: str, wanted: str) -> None:
        self.name = name
        self.existing = existing
        self.wanted = wanted
        super().__init__(name, existing, wanted)

    def __str__(self) -> str:
        if self.existing == "-":
            return f"{self.name} names nothing, wanted {self.wanted}"
        there = f"{self.name} names {self.existing} already, wanted {self.wanted}"
        return f'{there}; on_conflict="replace" replaces it'


class StoreVersionError(CastoreError):
    """The store was written by a castore that this one does not understand.

    Attributes:
        path: The store.
        found: The version or extension that is not known here.
    """

    exit_status = 7

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(path, found)

    def __str__(self) -> str:
        return f"store {self.path} needs {self.found}, which this castore does not know; upgrade it"


class ReadOnlyStoreError(CastoreError):
    """A write was asked of a store that is open for reading only.

    Attributes:
        path: The store.
        reason: Why it cannot be written.
    """

    exit_status = 7

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"store {self.path} is read-only: {self.reason}"


class UnsafeStoreError(CastoreError):
    """The store's layout would break a promise, so castore refuses to use it.

    Attributes:
        path: The offending path.
        reason: What is wrong, and what to change.
    """

    exit_status = 7

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class MaintenanceRefusedError(CastoreError):
    """gc, forget or repair found the store in a state in which it might lose something.

    Attributes:
        operation: The operation that was refused.
        reason: Why, and what to do.
    """

    exit_status = 7

    def __init__(self, operation: str, reason: str) -> None:
        self.operation = operation
        self.reason = reason
        super().__init__(operation, reason)

    def __str__(self) -> str:
        return f"{self.operation} refused: {self.reason}"
