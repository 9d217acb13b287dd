"""Ref files explain themselves, and nothing but their one spelling is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.format import ref
from castore.format.value import ObjectId

OID = ObjectId("0123456789abcdef" * 4)
OTHER = ObjectId("fedcba9876543210" * 4)
KERNEL = "gemm_f32[m=512]"

OIDS = st.binary(min_size=32, max_size=32).map(ObjectId.from_bytes)
KERNELS = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=256
)
NAMES = st.one_of(
    st.builds(ref.for_topology, st.sampled_from(["tuning", "config"]), OIDS, KERNELS),
    st.builds(ref.for_key, st.just("by-key-tuning"), OIDS),
    st.builds(ref.for_name, st.from_regex("[a-z0-9][a-z0-9._-]{0,127}", fullmatch=True)),
)
TARGETS = st.none() | OIDS

BY_TOPOLOGY = ref.for_topology("tuning", OTHER, KERNEL)
BY_KEY = ref.for_key("by-key-tuning", OTHER)
BY_NAME = ref.for_name("nightly")


def rejects(name: ref.RefName, data: bytes) -> bool:
    """Tell whether both readers reject `data` under a name; they must agree."""
    outcomes = []
    for read in (
        lambda: ref.decode_ref(name.namespace, name.key, data),
        lambda: ref.read_target(name, data),
    ):
        try:
            read()
        except MalformedError:
            outcomes.append(True)
        else:
            outcomes.append(False)
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def test_the_files_are_the_lines_that_the_format_says() -> None:
    assert ref.encode_ref(BY_TOPOLOGY, OID) == (
        f"object {OID}\ntopology {OTHER}\nkernel {KERNEL}\n".encode()
    )
    assert ref.encode_ref(BY_KEY, OID) == f"object {OID}\nkey {OTHER}\n".encode()
    assert ref.encode_ref(BY_NAME, OID) == f"object {OID}\n".encode()
    assert ref.encode_ref(BY_NAME, None) == b"object -\n"


@given(name=NAMES, target=TARGETS)
def test_a_ref_comes_back_as_it_was(name: ref.RefName, target: ObjectId | None) -> None:
    data = ref.encode_ref(name, target)
    assert ref.decode_ref(name.namespace, name.key, data) == (name, target)
    assert ref.read_target(name, data) == target
    assert len(data) <= ref.REF_BYTES_MAX


@given(name=NAMES, target=TARGETS, other=NAMES)
def test_a_file_under_another_key_is_rejected(
    name: ref.RefName, target: ObjectId | None, other: ref.RefName
) -> None:
    data = ref.encode_ref(name, target)
    # A file tells neither its namespace nor, in the case of a named ref, its name.
    if name.key != other.key and name.namespace != "names":
        assert rejects(other, data)


@given(name=NAMES, target=TARGETS, data=st.data())
def test_a_damaged_file_is_rejected_or_names_another_object(
    name: ref.RefName, target: ObjectId | None, data: st.DataObject
) -> None:
    damaged = bytearray(ref.encode_ref(name, target))
    at = data.draw(st.integers(0, len(damaged) - 1))
    until = data.draw(st.integers(at, min(at + 3, len(damaged))))
    damaged[at:until] = data.draw(st.binary(max_size=3) | st.sampled_from([b"\n", b"\r\n", b"-"]))
    if not rejects(name, bytes(damaged)):
        found = ref.read_target(name, bytes(damaged))
        assert ref.encode_ref(name, found) == damaged


@pytest.mark.parametrize("name", [BY_TOPOLOGY, BY_KEY, BY_NAME], ids=str)
@pytest.mark.parametrize("target", [OID, None])
def test_a_file_cut_anywhere_is_rejected(name: ref.RefName, target: ObjectId | None) -> None:
    data = ref.encode_ref(name, target)
    assert all(rejects(name, data[:size]) for size in range(len(data)))
    assert all(rejects(name, data[size:]) for size in range(1, len(data)))
    assert not rejects(name, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        bytes(range(256)) * 10,
        f"object {OID}\r\ntopology {OTHER}\r\nkernel {KERNEL}\r\n".encode(),
        f"topology {OTHER}\nobject {OID}\nkernel {KERNEL}\n".encode(),
        f"object {OID}\ntopology {OTHER}\nkernel {KERNEL}\n\n".encode(),
        f"object {OID}\ntopology {OTHER}\nkernel {KERNEL}\nmore 1\n".encode(),
        f"object {OID.upper()}\ntopology {OTHER}\nkernel {KERNEL}\n".encode(),
        f"object  {OID}\ntopology {OTHER}\nkernel {KERNEL}\n".encode(),
        f"object ../../x\ntopology {OTHER}\nkernel {KERNEL}\n".encode(),
        f"object --\ntopology {OTHER}\nkernel {KERNEL}\n".encode(),
        f"object {OID}\ntopology {OTHER}\nkernel {KERNEL} \n".encode(),
        f"object {OID}\ntopology {OTHER}\nkernel \xff\n".encode("latin-1"),
        f"object {OID}\nkey {BY_TOPOLOGY.key}\n".encode(),
        f"object {OID}\n".encode(),
        b"\xef\xbb\xbf" + ref.encode_ref(BY_TOPOLOGY, OID),
    ],
)
def test_another_spelling_is_rejected(data: bytes) -> None:
    assert rejects(BY_TOPOLOGY, data)


def test_a_file_under_the_key_of_another_kernel_names_the_key_it_has() -> None:
    data = ref.encode_ref(BY_TOPOLOGY, OID)
    with pytest.raises(MalformedError, match=BY_TOPOLOGY.key) as caught:
        ref.decode_ref("tuning", ref.topology_key(OTHER, "other"), data)
    assert caught.value.rule == "REF-1"


def test_a_ref_gives_its_name() -> None:
    found = ref.Ref("tuning", OTHER, KERNEL, OID, BY_TOPOLOGY.key)
    assert found.name == BY_TOPOLOGY
    assert str(found.name) == f"tuning/{KERNEL} on topology {OTHER}"
    assert str(BY_NAME) == "names/nightly"
