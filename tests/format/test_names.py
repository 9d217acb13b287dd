"""No name from outside gets in unless it follows the rules: ids, keys, namespaces, kernels."""

from __future__ import annotations

import copy
import pickle
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.format import layout, ref
from castore.format.value import Link, ObjectId, WeakLink, shown

if TYPE_CHECKING:
    from collections.abc import Callable

OID = "0123456789abcdef" * 4
KERNEL = "gemm_f32[m=512,n=512,k=512]"

NOT_AN_ID = [
    "",
    "../../x",
    "/" + OID[1:],
    OID.upper(),
    OID[:-1] + "F",
    OID[:-1],
    OID + "0",
    OID + "\n",
    "\n" + OID,
    OID[:-1] + "\n",
    OID + "\0",
    OID[:-1] + "\0",
    OID[:-1] + "g",
    OID[:-1] + "\u0661",  # a digit, but an Arabic one
    OID[:-1] + "\uff11",
    "0x" + OID[2:],
    " " + OID[1:],
    OID.encode(),
    None,
    12,
    bytes.fromhex(OID),
]

DOORS_OF_AN_ID: dict[str, Callable[[Any], object]] = {
    "ObjectId": ObjectId,
    "Link": Link,
    "WeakLink": WeakLink,
    "topology of a ref": lambda text: ref.for_topology("tuning", text, KERNEL),
    "topology_key": lambda text: ref.topology_key(text, KERNEL),
    "key of a ref": lambda text: ref.for_key("by-key-tuning", text),
}


@pytest.mark.parametrize("text", NOT_AN_ID)
@pytest.mark.parametrize("door", DOORS_OF_AN_ID)
def test_what_is_no_id_is_refused_at_every_door(door: str, text: Any) -> None:
    with pytest.raises(MalformedError):
        DOORS_OF_AN_ID[door](text)


def test_an_id_is_the_text_of_its_digits() -> None:
    oid = ObjectId(OID)
    assert oid == OID
    assert str(oid) == f"{oid}" == OID
    assert ObjectId(oid) is oid
    assert ObjectId.from_bytes(bytes.fromhex(OID)) == oid
    assert {oid: 1}[OID] == 1  # type: ignore[index] # that the plain digits find it is the claim


@pytest.mark.parametrize("size", [0, 31, 33])
def test_an_id_has_32_bytes(size: int) -> None:
    with pytest.raises(MalformedError):
        ObjectId.from_bytes(bytes(size))


@pytest.mark.parametrize("value", [ObjectId(OID), Link(ObjectId(OID)), WeakLink(ObjectId(OID))])
def test_ids_and_links_can_be_copied_and_pickled(value: Any) -> None:
    for again in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301 - our own
        assert again == value
        assert type(again) is type(value)


def test_a_link_and_a_weak_link_to_one_object_differ() -> None:
    links: set[Link | WeakLink] = {Link(ObjectId(OID)), WeakLink(ObjectId(OID))}
    assert len(links) == 2


def test_a_link_takes_the_hex_digits_as_well() -> None:
    assert type(Link(OID).oid) is ObjectId  # type: ignore[arg-type] # callers do so


# --- namespaces and names -------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["a", "tuning", "config", "x-1", "a" * 32, "by-key-tuning"])
def test_a_namespace_by_the_rule_is_taken(namespace: str) -> None:
    assert layout.check_namespace(namespace) == namespace
    assert layout.is_namespace_folder(namespace)


@pytest.mark.parametrize(
    "namespace",
    [
        *("", "..", ".", "../..", "a/b", "/a", "a.b", "A", "aB", "1a", "-a", "a_b", "a b"),
        *("a\n", "\na", "a\0", "ä", "a" * 33, "names", "layers", "base", None, b"a", 1),
    ],
)
def test_a_namespace_against_the_rule_is_refused(namespace: Any) -> None:
    for call in (
        layout.check_namespace,
        lambda text: ref.for_topology(text, OID, KERNEL),
        lambda text: ref.for_key(text, OID),
    ):
        with pytest.raises(MalformedError) as caught:
            call(namespace)
        assert caught.value.rule == "REF-5"
    if isinstance(namespace, str):
        assert not layout.is_namespace_folder(namespace)


def test_each_namespace_takes_its_own_kind_of_name() -> None:
    with pytest.raises(MalformedError, match="takes key="):
        ref.for_topology("by-key-tuning", OID, KERNEL)
    with pytest.raises(MalformedError, match="takes a topology and a kernel"):
        ref.for_key("tuning", OID)


@pytest.mark.parametrize("name", ["a", "0", "nightly", "v1.2", "a-b_c", "a" * 128])
def test_a_name_by_the_rule_is_taken(name: str) -> None:
    assert ref.for_name(name).path == f"refs/names/{name}"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/a", "a\\b", ".a", "-a", "_a", "A", "a b", "a:b"),
        *("a\n", "a\0", "a" * 129, "ä", None, b"a"),
    ],
)
def test_a_name_against_the_rule_is_refused(name: Any) -> None:
    with pytest.raises(MalformedError) as caught:
        ref.for_name(name)
    assert caught.value.rule == "REF-6"


# --- kernels --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL,
        "a",
        "../../x",
        "a|b",
        " ",
        "矩陣",
        "e\u0301",
        "\xa0",
        "a" * 1024,
        "ß" * 512,
        "😀" * 256,
    ],
)
def test_a_kernel_text_by_the_rule_is_taken(kernel: str) -> None:
    assert ref.for_topology("tuning", OID, kernel).kernel == kernel


@pytest.mark.parametrize(
    "kernel",
    [
        *("", "a" * 1025, "ß" * 513, "a" + "😀" * 256, "a\n", "a\tb", "\0", "a\x7f", "a\x85"),
        *("a\x9f", "a\u2028b", "a\u2029b", "\ud800", "a\udfff", None, b"a", 1),
    ],
)
def test_a_kernel_text_against_the_rule_is_refused(kernel: Any) -> None:
    for call in (ref.check_kernel, lambda text: ref.topology_key(OID, text)):
        with pytest.raises(MalformedError) as caught:
            call(kernel)
        assert caught.value.rule == "REF-4"


@given(kernel=st.text())
def test_a_kernel_text_is_taken_or_refused_by_its_bytes_alone(kernel: str) -> None:
    controls = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"}
    right = 1 <= len(kernel.encode()) <= 1024 and not controls & set(kernel)
    try:
        ref.check_kernel(kernel)
    except MalformedError:
        assert not right
    else:
        assert right


def test_the_topology_key_is_the_id_of_topology_zero_byte_kernel() -> None:
    expected = blake3(OID.encode() + b"\0" + KERNEL.encode()).hexdigest()
    assert ref.topology_key(OID, KERNEL) == expected
    assert ref.for_topology("tuning", OID, KERNEL).key == expected


@pytest.mark.tools("b3sum")
def test_another_implementation_gives_the_same_topology_key() -> None:
    data = OID.encode() + b"\0" + KERNEL.encode()
    done = subprocess.run(["b3sum", "--no-names"], input=data, capture_output=True, check=True)
    assert ref.topology_key(OID, KERNEL) == done.stdout.decode().strip()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gemm", "GEMM"),
        ("\xe9", "e\u0301"),
        ("a", "a "),
        ('["a|b","c"]', '["a","b|c"]'),
        ("a/b", "a\\b"),
        ("K", "\u212a"),
    ],
)
def test_kernels_that_look_alike_have_different_keys(one: str, other: str) -> None:
    assert ref.topology_key(OID, one) != ref.topology_key(OID, other)


# --- paths ----------------------------------------------------------------------------------


def test_paths_are_made_of_checked_parts() -> None:
    oid = ObjectId(OID)
    name = ref.for_topology("tuning", OID, "../../x")
    assert layout.object_path(oid) == f"objects/01/{OID[2:]}"
    assert layout.trash_path(oid) == f"local/trash/{OID}"
    assert layout.pin_path(oid) == f"local/pins/{OID}"
    assert name.path == f"refs/tuning/{name.key[:2]}/{name.key[2:]}"
    assert layout.log_path("tuning", name.key) == f"local/logs/tuning/{name.key[:2]}"
    assert layout.ref_lock_path("tuning", name.key) == f"local/locks/refs-{name.key[0]}"
    assert layout.log_path("names", "nightly") == "local/logs/names/names"


@pytest.mark.parametrize(
    "file_name", ["", "..", "x", OID, OID[2:].upper(), OID[2:] + "\n", OID[2:] + ".tmp", OID[3:]]
)
def test_a_foreign_file_in_a_shard_is_no_object(file_name: str) -> None:
    assert layout.oid_in_shard("01", file_name) is None


def test_a_file_in_a_shard_gives_its_id() -> None:
    assert layout.oid_in_shard("01", OID[2:]) == OID


@given(text=st.text() | st.binary())
def test_text_is_shown_short_and_without_controls(text: str | bytes) -> None:
    assert shown(text).isprintable()
    assert shown(text).isascii()
    assert len(shown(text)) <= 80
