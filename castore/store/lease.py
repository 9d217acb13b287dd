"""Leases: how a writer tells gc that it is at work.

A batch, a record or a ref update holds an exclusive lock on a file of its own in
`local/leases`, from before its first write until after its last. gc takes the file
system's now, then asks which of these files are held, and spares all that was
written since the earliest of them began. A bare put takes none, and no lease
outlives the operation: a server that keeps a store open must not stop gc.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from castore.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from castore.fs.protocol import FileSystem


@contextlib.contextmanager
def lease(fs: FileSystem) -> Iterator[None]:
    """Hold a lease while the body runs."""
    held = None
    try:
        held = fs.lock(f"{layout.LEASES}/{os.urandom(12).hex()}", wait_s=1.0)
        yield
    finally:
        if held is not None:
            held.release(remove=True)
