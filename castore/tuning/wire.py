"""Messages between a tuner and its worker: a length, then canonical msgpack."""

from __future__ import annotations

import struct
from typing import BinaryIO

from castore.errors import MalformedError
from castore.format.canonical import decode, encode
from castore.format.value import CONTENT_BYTES_MAX, Value

_LENGTH = struct.Struct(">I")


def send(stream: BinaryIO, message: dict[str, Value]) -> None:
    """Write one message and flush it."""
    content = encode(message)
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: BinaryIO) -> dict[str, Value] | None:
    """Read one message; None at the end of the stream, also in the middle of a message.

    Raises:
        MalformedError: The bytes are not a message.
    """
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (size_bytes,) = _LENGTH.unpack(header)
    if size_bytes > CONTENT_BYTES_MAX:
        raise MalformedError("message", f"{size_bytes} bytes are more than any message has")
    content = stream.read(size_bytes)
    if len(content) < size_bytes:
        return None
    message = decode(content)
    if not isinstance(message, dict):
        raise MalformedError("message", f"expected a map, got {type(message).__name__}")
    return message
