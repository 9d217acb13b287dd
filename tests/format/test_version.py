"""A store of a version or with an extension that is not known is left alone."""

from __future__ import annotations

import pytest

from castore.errors import MalformedError, StoreVersionError
from castore.format.version import VERSION_1, check_format


def test_version_1_is_known() -> None:
    check_format(VERSION_1, shown_path="STORE")
    assert VERSION_1 == b"castore 1\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"castore 2\n", "format version 2"),
        (b"castore 10\n", "format version 10"),
        (b"castore 2\npack-v2\n", "format version 2"),
        (b"castore 1\npack-v2\n", "the extension 'pack-v2'"),
        (b"castore 1\n\npack-v2\n", "the extension 'pack-v2'"),
        (b"castore 1\n\x1b[2J\n", "the extension '\\x1b[2J'"),
    ],
)
def test_an_unknown_version_or_extension_is_named(data: bytes, found: str) -> None:
    with pytest.raises(StoreVersionError) as caught:
        check_format(data, shown_path="STORE")
    assert (caught.value.path, caught.value.found) == ("STORE", found)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"castore",
        b"castore 1",
        b"castore 2",
        b"castore 1\r\n",
        b"castore 01\n",
        b"castore 0\n",
        b"castore -1\n",
        b"castore one\n",
        b"castore  1\n",
        b" castore 1\n",
        b"Castore 1\n",
        b"castore 1\nextension",
        b"\xff\xfe",
        "castore \u0661\n".encode(),
    ],
)
def test_what_is_no_format_file_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        check_format(data, shown_path="STORE")
