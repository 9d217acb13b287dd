"""Messages between a tuner and its worker: a length, then canonical msgpack.

The streams are unbuffered: a buffer has a lock, which a process that is forked
meanwhile would find taken for ever.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from castore.errors import MalformedError
from castore.format.canonical import decode, encode
from castore.format.value import CONTENT_BYTES_MAX, Value

if TYPE_CHECKING:
    from io import RawIOBase

_LENGTH = struct.Struct(">I")


def packed(message: dict[str, Value]) -> bytes:
    """Return a message as it is sent.

    Raises:
        MalformedError: It holds what no message can hold.
    """
    content = encode(message)
    return _LENGTH.pack(len(content)) + content


def send(stream: RawIOBase, data: bytes) -> None:
    """Write all of a packed message."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) or 0 :]


def receive(stream: RawIOBase) -> dict[str, Value] | None:
    """Read one message; None at the end of the stream, also in the middle of a message.

    Raises:
        MalformedError: The bytes are not a message.
    """
    header = _exactly(stream, _LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (size_bytes,) = _LENGTH.unpack(header)
    if size_bytes > CONTENT_BYTES_MAX:
        raise MalformedError("message", f"{size_bytes} bytes are more than any message has")
    content = _exactly(stream, size_bytes)
    if len(content) < size_bytes:
        return None
    message = decode(content)
    if not isinstance(message, dict):
        raise MalformedError("message", f"expected a map, got {type(message).__name__}")
    return message


def _exactly(stream: RawIOBase, size_bytes: int) -> bytes:
    # An unbuffered stream gives what is there.
    parts = []
    while size_bytes and (part := stream.read(size_bytes)):
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)
