"""The vectors: canonical bytes and ids made by another implementation than this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from castore.errors import MalformedError
from castore.format.canonical import decode, encode, object_id, unpack
from castore.format.scan import first_violation
from castore.format.value import Link, ObjectId, Value, WeakLink

if TYPE_CHECKING:
    from collections.abc import Callable

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "canonical-v1.json").read_text(encoding="utf-8")
)
ACCEPT, REJECT, LIMITS = (
    [pytest.param(vector, id=vector["name"]) for vector in VECTORS[part]]
    for part in ("accept", "reject", "limits")
)


MEANING: dict[str, Callable[[Any], Value]] = {
    "nil": lambda content: content,
    "bool": lambda content: content,
    "str": lambda content: content,
    "int": int,
    "float": float,
    "bin": bytes.fromhex,
    "link": Link,
    "weak": WeakLink,
    "list": lambda content: [untagged(child) for child in content],
    "map": lambda content: {key: untagged(child) for key, child in content},
}


def untagged(tagged: list[Any]) -> Value:
    """Return the value that a vector's tagged form tells of."""
    tag, content = tagged
    return MEANING[tag](content)


def test_there_are_as_many_vectors_as_there_were() -> None:
    assert (len(ACCEPT), len(REJECT), len(LIMITS)) == (84, 33, 2)


@pytest.mark.parametrize("vector", ACCEPT)
def test_the_value_is_encoded_as_the_vector_says(vector: dict[str, Any]) -> None:
    assert encode(untagged(vector["value"])).hex() == vector["canonical"]


@pytest.mark.parametrize("vector", ACCEPT)
def test_the_bytes_are_decoded_to_the_value_of_the_vector(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["canonical"])
    # The repr tells 1 from 1.0 and from True, -0.0 from 0.0, and one NaN from none.
    value, order_of_keys = untagged(vector["value"]), _sorted(untagged(vector["value"]))
    assert repr(decode(data)) == repr(unpack(data)) == repr(order_of_keys)
    assert encode(decode(data)) == encode(value) == data
    assert first_violation(data) is None


def _sorted(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str.encode)}
    return [_sorted(child) for child in value] if isinstance(value, list) else value


@pytest.mark.parametrize("vector", ACCEPT)
def test_the_id_is_the_one_of_the_vector(vector: dict[str, Any]) -> None:
    oid = object_id(bytes.fromhex(vector["canonical"]))
    assert type(oid) is ObjectId
    assert str(oid) == vector["id"]


@pytest.mark.parametrize("vector", REJECT)
def test_the_bytes_are_rejected_by_the_rule_of_the_vector(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["bytes"])
    with pytest.raises(MalformedError) as caught:
        decode(data)
    assert caught.value.rule == vector["rule"]
    violation = first_violation(data)
    assert violation is not None
    assert violation.rule == vector["rule"]


@pytest.mark.parametrize("vector", LIMITS)
def test_the_bytes_at_a_limit_are_accepted(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["bytes"])
    assert encode(decode(data)) == data
    assert first_violation(data) is None
