"""The log of ref changes: one line for each (REF-8).

An entry is written and durable before the ref changes, so a log may tell of one
change more than happened, never of one less. Each line ends with a check of its
own: a line torn by a crash, or damaged since, is passed over and reported, and
takes no other line with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blake3 import blake3

from castore.errors import MalformedError
from castore.format import layout, ref
from castore.format.value import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG_BYTES_MAX = 2**30
"""The most bytes of one log that are read."""

_CHECK_DIGITS = 16
_ABSENT = "-"
_TEXT_CHARACTERS_MAX = 256
_LINE_BYTES_MAX = 4096  # the longest key, kernel, writer and reason take less
_find_lines = re.compile(b"[^\n]+").finditer
_control = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One change of one ref.

    Attributes:
        namespace: The ref's namespace, or `names`.
        key: The ref's key, or its name.
        old: What the ref named before; None where it named nothing.
        new: What it names since; None where it was deleted.
        time_ns: When, in nanoseconds since the epoch, by the writer's clock.
        topology: The ref's topology; None for a ref under a key or a name.
        kernel: The ref's kernel text; None likewise.
        writer: Who changed it: process, host and user.
        reason: Why, in the caller's words; may be empty.
    """

    namespace: str
    key: str
    old: ObjectId | None
    new: ObjectId | None
    time_ns: int
    topology: ObjectId | None
    kernel: str | None
    writer: str
    reason: str

    @property
    def name(self) -> ref.RefName:
        """The ref that changed."""
        return ref.RefName(self.namespace, self.key, self.topology, self.kernel)


def encode_entry(entry: LogEntry) -> bytes:
    """Return the entry's line; control characters in its texts become spaces."""
    body = "\t".join(
        (
            entry.key,
            entry.old or _ABSENT,
            entry.new or _ABSENT,
            str(entry.time_ns),
            entry.topology or _ABSENT,
            entry.kernel or _ABSENT,
            _plain(entry.writer),
            _plain(entry.reason),
        )
    )
    return f"{body}\t{_check(body)}\n".encode()


def decode_entries(namespace: str, data: bytes) -> Iterator[LogEntry | MalformedError]:
    """Yield the entries of a log, oldest first, and an error in place of each damaged line."""
    for number, line in enumerate(lines(data), start=1):
        try:
            yield decode_entry(namespace, line)
        except MalformedError as error:
            yield MalformedError(f"line {number}", error.reason, "REF-8")


def lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a log that are not empty, without their ends, one at a time.

    All at once they would take many times the log's memory, were it nothing but line ends.
    """
    return (found[0] for found in _find_lines(data))


def decode_entry(namespace: str, line: bytes) -> LogEntry:
    """Return the entry that a line, without its end, spells.

    Raises:
        MalformedError: The line is not whole, or not an entry of this namespace.
    """
    if len(line) > _LINE_BYTES_MAX:
        raise MalformedError("line", "longer than any entry", "REF-8")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise MalformedError("line", "not UTF-8", "REF-8") from None
    body, _, check = text.rpartition("\t")
    fields = body.split("\t")
    if len(fields) != 8 or check != _check(body):
        raise MalformedError("line", "torn or damaged", "REF-8")
    key, old, new, time_ns, topology, kernel, writer, reason = fields
    if not (time_ns.isascii() and time_ns.removeprefix("-").isdigit() and len(time_ns) < 21):
        raise MalformedError("line", "the time is not a number", "REF-8")
    name = _name(namespace, key, topology, kernel)
    return LogEntry(
        name.namespace,
        name.key,
        _oid(old),
        _oid(new),
        int(time_ns),
        name.topology,
        name.kernel,
        writer,
        reason,
    )


def _name(namespace: str, key: str, topology: str, kernel: str) -> ref.RefName:
    if namespace == layout.NAMES:
        return ref.for_name(key)
    if namespace.startswith(layout.BY_KEY_PREFIX):
        return ref.for_key(namespace, key)
    name = ref.for_topology(namespace, topology, kernel)
    if name.key != key:
        raise MalformedError("line", "topology and kernel do not give the key", "REF-8")
    return name


def _oid(field: str) -> ObjectId | None:
    return None if field == _ABSENT else ObjectId(field)


def _plain(text: str) -> str:
    cleaned = _control.sub(" ", text).encode("utf-8", "replace").decode()
    return cleaned[:_TEXT_CHARACTERS_MAX]


def _check(body: str) -> str:
    return blake3(body.encode()).hexdigest()[:_CHECK_DIGITS]
