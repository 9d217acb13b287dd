"""The values that an object can hold, ids, links, and the limits on all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias, Union

from castore.errors import MalformedError

CONTENT_BYTES_MAX = 64 * 2**20
"""The most canonical bytes that one object may have (CAN-8)."""

VALUES_MAX = 2**20
"""The most values in one object: scalars, links and containers, map keys not counted (CAN-8)."""

DEPTH_MAX = 64
"""How deep containers may nest (CAN-8)."""

ID_BYTES = 32
LINK_TYPE = 1
WEAK_LINK_TYPE = 2

_is_hex_id = re.compile("[0-9a-f]{64}").fullmatch


class ObjectId(str):
    """An object's id: the BLAKE3-256 of its canonical bytes, as 64 lower-case hex digits.

    It is a string, so it prints, sorts, compares and serves as a key like its hex digits.

    Raises:
        MalformedError: The text is not 64 lower-case hex digits (OBJ-1).
    """

    __slots__ = ()

    def __new__(cls, text: str) -> ObjectId:  # noqa: PYI034 - the class is final in effect
        """Check `text` and make it an id; an id is returned as it is."""
        if type(text) is cls:
            return text
        if not isinstance(text, str) or _is_hex_id(text) is None:
            raise MalformedError(
                "id", f"expected 64 lower-case hex digits, got {shown(text)}", "OBJ-1"
            )
        return str.__new__(cls, text)

    @classmethod
    def from_bytes(cls, digest: bytes) -> ObjectId:
        """Return the id with these 32 bytes."""
        if len(digest) != ID_BYTES:
            raise MalformedError("id", f"expected 32 bytes, got {len(digest)}", "OBJ-1")
        return str.__new__(cls, digest.hex())

    @classmethod
    def trusted(cls, hex_digits: str) -> ObjectId:
        """Return the id with these digits, which a digest function has just printed."""
        return str.__new__(cls, hex_digits)


@dataclass(frozen=True, slots=True)
class Link:
    """A reference to another object that the store must hold too (CAN-7, type 1).

    Attributes:
        oid: The id of the other object.
    """

    oid: ObjectId

    def __post_init__(self) -> None:
        """Take the id's hex digits as well."""
        if type(self.oid) is not ObjectId:
            object.__setattr__(self, "oid", ObjectId(self.oid))


@dataclass(frozen=True, slots=True)
class WeakLink:
    """A reference to another object that nobody has to have (CAN-7, type 2).

    gc keeps the target where it exists; fsck does not ask for it.

    Attributes:
        oid: The id of the other object.
    """

    oid: ObjectId

    def __post_init__(self) -> None:
        """Take the id's hex digits as well."""
        if type(self.oid) is not ObjectId:
            object.__setattr__(self, "oid", ObjectId(self.oid))


Scalar: TypeAlias = bool | int | float | str | bytes | Link | WeakLink | None
Value: TypeAlias = Union[Scalar, list["Value"], dict[str, "Value"]]  # noqa: UP007 - recursive, so quoted


def shown(text: object) -> str:
    """Return `text` for an error message, short and without control characters."""
    printed = ascii(text)
    return printed if len(printed) <= 80 else printed[:77] + "..."
