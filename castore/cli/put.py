"""`castore put`: store a value that is given as JSON or msgpack."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any, cast

from castore.cli import stores
from castore.cli.parser import Help
from castore.cli.status import ExitStatus
from castore.cli.tagged import from_json
from castore.errors import MalformedError
from castore.format.canonical import encode, unpack
from castore.format.value import CONTENT_BYTES_MAX, shown
from castore.store.closure import split_links

if TYPE_CHECKING:
    import argparse

    from castore.cli.output import Output
    from castore.format.value import Value

INPUT_BYTES_MAX = 4 * CONTENT_BYTES_MAX
"""The most bytes of input that are read: JSON takes more room than the content it spells."""

HELP = Help(
    description="""\
Store the value in FILE, or on stdin, and print its id. Safe at any time: the same
value gets the same id, however often it is put. The object stays until gc finds
it unreachable and older than its grace period; castore pin keeps it longer.

A link to an object that the store lacks is stored all the same, with a warning.

JSON says what castore cat prints: {"$link": ID} is a link, {"$weak": ID} a weak
link, {"$bytes": BASE64} bytes, {"$float": "nan"} NaN. 1 is an integer, 1.0 a
float. Input that repeats a key is refused. msgpack need not be canonical.""",
    examples=("""echo '{"kind": "note", "schema": 1}' | castore put""", "castore put result.json"),
    statuses=(ExitStatus.DAMAGE, ExitStatus.UNUSABLE),
    meanings={
        ExitStatus.USAGE: "the input is malformed; the message names the place",
        ExitStatus.NOT_FOUND: "there is no such file",
    },
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="- means stdin")
    parser.add_argument(
        "--format", choices=("json", "msgpack"), default="json", help="the input (default: json)"
    )


def run(args: argparse.Namespace, output: Output) -> int:
    """Store the value."""
    try:
        data = _input(args.file)
    except FileNotFoundError:
        output.note(f"castore: there is no file {args.file}")
        return ExitStatus.NOT_FOUND
    value = _from_msgpack(data) if args.format == "msgpack" else from_json(_text(data))
    encode(value)  # what is refused is refused before a store is made
    with stores.to_fill(args) as store:
        oid = store.put(value)
        missing = [each for each in split_links(value)[0] if not store.has(each)]
    for each in missing:
        output.note(f"castore: the value links to {each}, which is not in the store")
    if output.as_json:
        output.data({"object": oid})
    else:
        output.line(oid)
    return ExitStatus.DONE


def _input(file: str) -> bytes:
    if file == "-":
        # There is no stdin where the shell has closed it.
        stdin = getattr(sys.stdin, "buffer", io.BytesIO())
        data = bytes(stdin.read(INPUT_BYTES_MAX + 1))
    else:
        with open(file, "rb") as stream:
            data = stream.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise MalformedError("input", f"longer than {INPUT_BYTES_MAX} bytes", "CAN-8")
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(f"byte {error.start}", "JSON is UTF-8, and this is not") from None


def _from_msgpack(data: bytes) -> Value:
    import msgpack  # noqa: PLC0415 - only this format needs it

    value = unpack(data)  # knows the types and the limits, and takes the last of equal keys
    msgpack.unpackb(data, ext_hook=lambda *_: None, object_pairs_hook=_refuse_equal_keys)
    return value


def _refuse_equal_keys(pairs: list[tuple[Any, Value]]) -> None:
    seen: set[object] = set()
    for key, _ in pairs:
        if cast("object", key) in seen:
            reason = f"the key {shown(key)} stands twice in one map"
            raise MalformedError("msgpack", reason, "CAN-5")
        seen.add(key)
