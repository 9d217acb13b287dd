"""Config manifests: what a tuned configuration of a library's operation is stored as.

    {"kind": "config", "schema": 1,
     "encoding": "tagged" | "json",      how `config` spells what plain data lacks
     "config": ...,
     "provenance": {"origin": ..., "time_ns": ..., "host": ..., "writer": ...}}

`tagged` is what `castore.compat.tagged` says; `json` is what a JSON file had, which
lost tuples and integer keys. The ref lives in the namespace `config`. Its kernel text
is the ASCII JSON array `["opname","op_id","call_key"]`, so no part can pass for two.
Its topology is a manifest that holds the caller's device string:

    {"kind": "topology", "schema": 1, "silicon": {"device": STRING}, "software": {}}

The string names hardware and software in one, and castore does not take it apart. It
stands under `silicon` so that no two different strings are ever the same silicon.
"""

from __future__ import annotations

import socket
import time
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import TYPE_CHECKING, Literal, TypeAlias

from castore import __version__
from castore.errors import MalformedError
from castore.format import ref
from castore.format.canonical import encode, object_id
from castore.format.ref import RefName
from castore.format.value import shown

if TYPE_CHECKING:
    from castore.format.value import ObjectId, Value

NAMESPACE = "config"
KIND = "config"
SCHEMA = 1

Encoding: TypeAlias = Literal["tagged", "json"]
Origin: TypeAlias = Literal["tuned", "heuristic", "override", "imported", "unstated"]
"""How a configuration came about: measured, the library's default, the user's word."""

ORIGINS = frozenset({"tuned", "heuristic", "override", "imported", "unstated"})


def manifest(config: Value, *, encoding: Encoding, origin: Origin) -> dict[str, Value]:
    """Return the manifest of a configuration that is stored now.

    Raises:
        MalformedError: The origin is none of `ORIGINS`.
    """
    if origin not in ORIGINS:
        reason = f"expected one of {', '.join(sorted(ORIGINS))}, got {shown(origin)}"
        raise MalformedError("origin", reason)
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "encoding": encoding,
        "config": config,
        "provenance": {
            "origin": origin,
            "time_ns": time.time_ns(),
            "host": socket.gethostname(),
            "writer": f"castore {__version__}",
        },
    }


def config_in(value: Value) -> tuple[Value, Encoding]:
    """Return the configuration in a manifest, as plain data, and how that is encoded.

    Raises:
        MalformedError: It is not a config manifest of this schema.
    """
    if type(value) is not dict or value.get("kind") != KIND or value.get("schema") != SCHEMA:
        raise MalformedError(".kind", f"expected a {KIND} manifest of schema {SCHEMA}")
    encoding = value.get("encoding")
    if encoding not in ("tagged", "json") or "config" not in value:
        raise MalformedError(".encoding", "expected tagged or json, and a config")
    return value["config"], "json" if encoding == "json" else "tagged"


def says_the_same(one: Value, other: Value) -> bool:
    """Tell whether two config manifests differ in nothing but when and where they were made."""
    return _without_circumstances(one) == _without_circumstances(other)


def topology(device: str) -> dict[str, Value]:
    """Return the topology manifest for a device string."""
    return {"kind": "topology", "schema": 1, "silicon": {"device": device}, "software": {}}


def kernel_text(opname: str, op_id: str, call_key: str) -> str:
    """Return the kernel text for a call of an operation.

    Raises:
        MalformedError: A part is not text that can be stored.
    """
    for where, part in (("opname", opname), ("op_id", op_id), ("call_key", call_key)):
        _check_text(where, part)
    # What `json.dumps` writes, without making an encoder for each key.
    return f"[{_quoted(opname)},{_quoted(op_id)},{_quoted(call_key)}]"


def ref_name(device: str, opname: str, op_id: str, call_key: str) -> RefName:
    """Return the ref of a configuration.

    Raises:
        MalformedError: A part is not text that can be stored, or they are too long (REF-4).
    """
    text = kernel_text(opname, op_id, call_key)
    topology_id = _topology_id(_check_text("device", device))
    return RefName(NAMESPACE, ref.topology_key(topology_id, text), topology_id, text)


@lru_cache(maxsize=64)
def _topology_id(device: str) -> ObjectId:
    return object_id(encode(topology(device)))


def _check_text(where: str, text: str) -> str:
    # JSON would spell two lone surrogates as it spells the character that they make up.
    if type(text) is not str:
        raise MalformedError(where, f"expected text, got {shown(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise MalformedError(where, "text with a lone surrogate", "CAN-4") from None
    return text


def _without_circumstances(value: Value) -> bytes:
    if type(value) is not dict:
        return b""
    provenance = value.get("provenance")
    origin = provenance.get("origin") if type(provenance) is dict else None
    return encode({**value, "provenance": origin})
