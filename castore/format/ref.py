"""Refs: their names, keys and files (REF-1 to REF-7).

A ref's file explains itself: it repeats what its name was computed from, so a
reader notices a file under a wrong name and fsck can recompute every name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from blake3 import blake3

from castore.errors import MalformedError
from castore.format import layout
from castore.format.value import ObjectId, shown

REF_BYTES_MAX = 2048
"""The most bytes a ref's file can have: three lines, the longest a kernel text."""

KERNEL_BYTES_MAX = 1024
NO_OBJECT = "-"

# C0, DEL and C1 controls, and the two separators that some readers take for line ends.
_has_control = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]").search


@dataclass(frozen=True, slots=True)
class RefName:
    """Which ref: a namespace and a key, and what the key was computed from.

    Attributes:
        namespace: The namespace, or `names`.
        key: 64 hex digits; the name itself for a named ref.
        topology: The topology's id; None for a ref under a caller's own key or a name.
        kernel: The kernel text; None likewise.
    """

    namespace: str
    key: str
    topology: ObjectId | None = None
    kernel: str | None = None

    @property
    def path(self) -> str:
        """The ref's file, relative to the store."""
        return layout.ref_path(self.namespace, self.key)

    def __str__(self) -> str:
        if self.kernel is not None and self.topology is not None:
            return f"{self.namespace}/{self.kernel} on topology {self.topology}"
        return f"{self.namespace}/{self.key}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A ref as it stands: its name, and the object that it names.

    Attributes:
        namespace: The namespace, or `names`.
        topology: The topology's id; None for a ref under a caller's own key or a name.
        kernel: The kernel text; None likewise.
        object: The id of the object.
        key: 64 hex digits; the name itself for a named ref.
    """

    namespace: str
    topology: ObjectId | None
    kernel: str | None
    object: ObjectId
    key: str

    @property
    def name(self) -> RefName:
        """The name alone."""
        return RefName(self.namespace, self.key, self.topology, self.kernel)


def topology_key(topology_hex: str, kernel: str) -> str:
    """Return the key of the ref for a kernel on a topology, as 64 hex digits (REF-1).

    It is BLAKE3 of the topology's hex digits, a zero byte and the kernel text.

    Raises:
        MalformedError: The topology is not an id, or the kernel text breaks REF-4.
    """
    topology = ObjectId(topology_hex)
    return blake3(f"{topology}\0{check_kernel(kernel)}".encode()).hexdigest()


def check_kernel(kernel: str) -> str:
    """Return `kernel` if it is a kernel text: 1 to 1024 bytes of UTF-8 without controls (REF-4).

    Raises:
        MalformedError: It is not.
    """
    if not isinstance(kernel, str):
        raise MalformedError("kernel", f"expected text, got {shown(kernel)}", "REF-4")
    if not kernel.isascii() or not kernel.isprintable():
        _check_unusual(kernel)
    if not 1 <= len(kernel) <= KERNEL_BYTES_MAX:
        raise MalformedError("kernel", f"expected 1 to {KERNEL_BYTES_MAX} bytes", "REF-4")
    return kernel


def _check_unusual(kernel: str) -> None:
    if _has_control(kernel):
        raise MalformedError("kernel", f"a control character in {shown(kernel)}", "REF-4")
    try:
        size_bytes = len(kernel.encode())
    except UnicodeEncodeError:
        raise MalformedError("kernel", "a lone surrogate", "REF-4") from None
    if size_bytes > KERNEL_BYTES_MAX:
        raise MalformedError("kernel", f"expected 1 to {KERNEL_BYTES_MAX} bytes", "REF-4")


def for_topology(namespace: str, topology: str, kernel: str) -> RefName:
    """Return the name of the ref for a kernel on a topology."""
    if layout.check_namespace(namespace).startswith(layout.BY_KEY_PREFIX):
        raise MalformedError("namespace", f"{namespace!r} takes key=, not a topology", "REF-5")
    return RefName(namespace, topology_key(topology, kernel), ObjectId(topology), kernel)


def for_key(namespace: str, key: str) -> RefName:
    """Return the name of the ref for a record under a caller's own key."""
    if not layout.check_namespace(namespace).startswith(layout.BY_KEY_PREFIX):
        reason = f"{namespace!r} takes a topology and a kernel; keys go to namespaces by-key-*"
        raise MalformedError("namespace", reason, "REF-5")
    return RefName(namespace, _check_key(key))


def for_name(name: str) -> RefName:
    """Return the name of a named ref."""
    return RefName(layout.NAMES, layout.check_name(name))


def _check_key(key: str) -> str:
    try:
        return str(ObjectId(key))
    except MalformedError as error:
        raise MalformedError("key", error.reason, "REF-5") from None


def encode_ref(name: RefName, target: ObjectId | None) -> bytes:
    """Return the file of a ref that names `target`; None makes a tombstone (REF-3, REF-6)."""
    lines = [f"object {target or NO_OBJECT}"]
    if name.kernel is not None:
        lines += [f"topology {name.topology}", f"kernel {name.kernel}"]
    elif name.namespace != layout.NAMES:
        lines.append(f"key {name.key}")
    return ("\n".join(lines) + "\n").encode()


def read_target(name: RefName, data: bytes) -> ObjectId | None:
    """Return the object that the ref's file names; None for a tombstone.

    Raises:
        MalformedError: The file breaks the format, or belongs to another name.
    """
    first = data[:72]
    target = None
    if first[:9] != b"object -\n":
        target = ObjectId(first[7:71].decode("ascii", "replace"))
    if encode_ref(name, target) != data:
        raise MalformedError("ref", "not the file of this ref", "REF-3")
    return target


def decode_ref(namespace: str, key: str, data: bytes) -> tuple[RefName, ObjectId | None]:
    """Return the name and the object of a ref's file that was found under `key`.

    Raises:
        MalformedError: The file breaks the format, or its lines do not give that key.
    """
    name = _name_in(namespace, key, data)
    if name.key != key:
        raise MalformedError("ref", f"its lines give the key {name.key}", "REF-1")
    return name, read_target(name, data)


def _name_in(namespace: str, key: str, data: bytes) -> RefName:
    if namespace == layout.NAMES:
        return for_name(key)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise MalformedError("ref", "not UTF-8", "REF-3") from None
    if namespace.startswith(layout.BY_KEY_PREFIX):
        if len(lines) != 3 or not lines[1].startswith("key "):
            raise MalformedError("ref", "expected the lines object and key", "REF-5")
        return for_key(namespace, lines[1][4:])
    if (
        len(lines) != 4
        or not lines[1].startswith("topology ")
        or not lines[2].startswith("kernel ")
    ):
        raise MalformedError("ref", "expected the lines object, topology and kernel", "REF-3")
    return for_topology(namespace, lines[1][9:], lines[2][7:])
