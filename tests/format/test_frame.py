"""A loose object's file is one zstd frame, and nothing else is one."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zstandard

from castore.errors import MalformedError
from castore.format import frame
from castore.format.value import CONTENT_BYTES_MAX

CONTENT = b"some content, some content, some content"


def rule_of_rejection(data: bytes) -> str:
    with pytest.raises(MalformedError) as caught:
        frame.decompress(data)
    return caught.value.rule


def test_a_frame_declares_its_size_and_uses_no_dictionary() -> None:
    declared = zstandard.get_frame_parameters(frame.compress(CONTENT))
    assert (declared.content_size, declared.dict_id) == (len(CONTENT), 0)


@pytest.mark.parametrize("after", [b"", b"more", b"\x28\xb5\x2f\xfd"])
def test_a_frame_that_declares_nothing_is_rejected(after: bytes) -> None:
    """The library takes such a frame for empty content, whatever is in it or after it."""
    assert rule_of_rejection(zstandard.ZstdCompressor().compress(b"") + after) == "OBJ-2"


def test_content_of_the_largest_size_fits_a_file_and_no_more_is_taken() -> None:
    content = bytes(CONTENT_BYTES_MAX)
    data = frame.compress(content)
    assert len(data) <= frame.FRAME_BYTES_MAX
    assert frame.decompress(data) == content
    with pytest.raises(MalformedError) as caught:
        frame.compress(content + b"\0")
    assert caught.value.rule == "CAN-8"


@pytest.mark.tools("zstd")
def test_the_zstd_command_reads_a_frame() -> None:
    done = subprocess.run(
        ["zstd", "-dc"], input=frame.compress(CONTENT), capture_output=True, check=True
    )
    assert done.stdout == CONTENT


def test_bytes_that_would_not_come_back_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressor on broken memory has returned wrong bytes, and nothing noticed."""

    class Broken:
        def compress(self, content: bytes) -> bytes:
            return zstandard.ZstdCompressor().compress(content[:-1] + b"?")

    monkeypatch.setattr(frame, "_compressors", [Broken()])
    with pytest.raises(MalformedError) as caught:
        frame.compress(CONTENT)
    assert "does not decompress to its input" in caught.value.reason


def test_a_frame_cut_anywhere_is_rejected() -> None:
    data = frame.compress(CONTENT)
    assert {rule_of_rejection(data[:size]) for size in range(len(data))} == {"OBJ-2"}


def without_size() -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(CONTENT)


def with_dictionary() -> bytes:
    samples: list[Any] = [b"%d some content %d" % (n, n * n) for n in range(1000)]
    dictionary = zstandard.train_dictionary(1024, samples)
    return zstandard.ZstdCompressor(dict_data=dictionary).compress(CONTENT)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a zstd frame"),
        (CONTENT, "not a zstd frame"),
        (b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + frame.compress(CONTENT), "not a zstd frame"),
        (without_size(), "declares no content size"),
        (with_dictionary(), "needs a dictionary"),
    ],
    ids=["empty", "no frame", "skippable frame first", "no size", "dictionary"],
)
def test_what_is_no_frame_of_ours_is_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedError) as caught:
        frame.decompress(data)
    assert (caught.value.reason, caught.value.rule) == (reason, "OBJ-2")


@pytest.mark.parametrize(
    "after",
    [
        b"\0",
        b"\n",
        frame.compress(CONTENT),
        frame.compress(b"a"),
        b"\x50\x2a\x4d\x18\x00\x00\x00\x00",
    ],
    ids=["zero", "line end", "frame", "small frame", "skippable frame"],
)
def test_nothing_may_come_after_a_frame(after: bytes) -> None:
    assert rule_of_rejection(frame.compress(CONTENT) + after) == "OBJ-2"


@pytest.mark.parametrize("declared", [0, 10, len(CONTENT) - 1, len(CONTENT) + 1, 200])
def test_a_frame_that_lies_about_its_size_is_rejected(declared: int) -> None:
    data = bytearray(frame.compress(CONTENT))
    assert data[5] == len(CONTENT)  # one byte of size, in a single segment
    data[5] = declared
    assert rule_of_rejection(bytes(data)) == "OBJ-2"


def test_many_threads_compress_at_once() -> None:
    contents = [bytes([n]) * 5000 for n in range(100)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda c: frame.decompress(frame.compress(c)), contents)) == contents
