"""A loose object's file: exactly one zstd frame (OBJ-2).

The frame declares the size of its content, uses no dictionary, and nothing comes
after it, so that `zstd -dc FILE | b3sum` prints the object's id. The declared size
is checked before anything is decompressed: thirteen bytes can declare gigabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zstandard

from castore.errors import MalformedError
from castore.format.value import CONTENT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_BYTES_MAX = CONTENT_BYTES_MAX + CONTENT_BYTES_MAX // 128 + 512
"""The most bytes that zstd needs for content of the largest size."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_LEVEL = 3
_WINDOW_BYTES_MAX = 2**27  # what `zstd -d` takes without being asked to

# Making one costs more than using it, and no two threads may use one at once: who
# needs one takes it out of the list (one atomic step) and puts it back.
_compressors: list[Any] = []
_decompressors: list[Any] = []


def compress(content: bytes) -> bytes:
    """Return `content` as one zstd frame.

    What the compressor made is decompressed and compared first: bytes that would
    not come back must never be published.

    Raises:
        MalformedError: There is too much content, or the compressor returned wrong bytes.
    """
    if len(content) > CONTENT_BYTES_MAX:
        raise MalformedError(".", f"more than {CONTENT_BYTES_MAX} bytes of content", "CAN-8")
    compressor = _take(_compressors, _make_compressor)
    frame: bytes = compressor.compress(content)
    _compressors.append(compressor)
    if decompress(frame) != content:
        raise MalformedError(
            "zstd frame", "the compressor's output does not decompress to its input"
        )
    return frame


def decompress(frame: bytes) -> bytes:
    """Return the content of a loose object's file.

    Raises:
        MalformedError: The bytes are not exactly one zstd frame as OBJ-2 wants it.
    """
    if frame[:4] != _MAGIC:
        raise MalformedError("byte 0", "not a zstd frame", "OBJ-2")
    try:
        declared = zstandard.get_frame_parameters(frame)
        _check(declared)
        decompressor = _take(_decompressors, zstandard.ZstdDecompressor)
        content: bytes = decompressor.decompress(frame, allow_extra_data=False)
        _decompressors.append(decompressor)
    except zstandard.ZstdError as error:
        raise MalformedError("zstd frame", str(error), "OBJ-2") from None
    return content


def _check(declared: zstandard.FrameParameters) -> None:
    if declared.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise MalformedError("zstd frame", "declares no content size", "OBJ-2")
    if declared.content_size > CONTENT_BYTES_MAX:
        raise MalformedError("zstd frame", f"declares {declared.content_size} bytes", "CAN-8")
    if declared.content_size == 0:
        # The library then looks at nothing else of the frame, nor at what comes after it.
        raise MalformedError("zstd frame", "declares no content; a value has a byte", "OBJ-2")
    if declared.window_size > _WINDOW_BYTES_MAX:
        raise MalformedError("zstd frame", f"a window of {declared.window_size} bytes", "OBJ-2")
    if declared.dict_id:
        raise MalformedError("zstd frame", "needs a dictionary", "OBJ-2")


def _take(idle: list[Any], make: Callable[[], Any]) -> Any:  # noqa: ANN401 - zstandard's types differ by backend
    try:
        return idle.pop()
    except IndexError:
        return make()


def _make_compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL)
