"""A file system of which one call fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from castore.fs.protocol import FileSystem


class FaultyFileSystem:
    """`inner`, except that its call number `fail_at` raises `error` and does nothing.

    Attributes:
        inner: The file system behind it.
        calls: The names of the calls so far, the failed one included.
    """

    def __init__(self, inner: FileSystem, *, fail_at: int, error: OSError) -> None:
        """Let call number `fail_at` fail, counted from 0; a scope's syncs count as well."""
        self.inner = inner
        self.calls: list[str] = []
        self._fail_at = fail_at
        self._error = error

    @property
    def root(self) -> str:
        return self.inner.root

    def __getattr__(self, name: str) -> Any:
        return _Faulty(self, self.inner).wrap(name)

    def count(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) - 1 == self._fail_at:
            raise self._error


class _Faulty:
    """A file system or a scope whose calls are counted."""

    def __init__(self, faults: FaultyFileSystem, inner: Any) -> None:
        self._faults = faults
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return self.wrap(name)

    def wrap(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name == "close":  # what frees a scope must not be lost
            return call

        def counted(*arguments: Any, **options: Any) -> Any:
            self._faults.count(name)
            result = call(*arguments, **options)
            return _Faulty(self._faults, result) if name == "open_sync_scope" else result

        return counted
