"""The file `format`: which version of the format a store follows.

The first line is `castore 1`; each further line names an extension that a reader
must know. Whoever does not know them all must not write and must not gc, and
does not read either, as an extension may say where objects lie.
"""

from __future__ import annotations

import re

from castore.errors import MalformedError, StoreVersionError
from castore.format.value import shown

FORMAT_BYTES_MAX = 4096
VERSION_1 = b"castore 1\n"

_is_first_line = re.compile("castore [1-9][0-9]{0,8}").fullmatch


def check_format(data: bytes, *, shown_path: str) -> None:
    """Return if this castore may use a store whose `format` file holds `data`.

    Raises:
        StoreVersionError: It names a version or an extension that is not known here.
        MalformedError: It is not a format file.
    """
    if data == VERSION_1:
        return
    lines = data.decode("utf-8", "replace").split("\n")
    if not _is_first_line(lines[0]) or lines[-1] != "":
        raise MalformedError(shown_path, f"not a castore format file: {shown(lines[0])}")
    if lines[0] != "castore 1":
        raise StoreVersionError(shown_path, f"format version {lines[0].removeprefix('castore ')}")
    extension = next((line for line in lines[1:] if line), "")
    raise StoreVersionError(shown_path, f"the extension {shown(extension)}")
