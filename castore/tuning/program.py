"""Programs: all that a device needs to run one candidate, as plain data.

A program crosses a process boundary, so it holds no object of the kernel that made
it. It never comes out of a store: nothing that is stored can name code to run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from castore.errors import MalformedError
from castore.format.value import Value
from castore.tuning.checks import check_integer, check_name

if TYPE_CHECKING:
    from castore.tuning.fields import Fields

ITEM_BYTES = {"float32": 4, "int32": 4, "uint32": 4}
"""The element types that arrays may have, WebGPU's storable scalars, with their sizes."""

GUARD_BYTES = 256
"""Bytes bound behind an output; a candidate that touches one of them is rejected."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The name, element type and shape of an array.

    Attributes:
        name: Its name in the kernel.
        dtype: A key of `ITEM_BYTES`.
        shape: Its extents, slowest first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse element types and extents that no device could bind.

        Raises:
            MalformedError: The name, the element type or an extent is not what it should be.
        """
        check_name(".arrays", self.name)
        if self.dtype not in ITEM_BYTES:
            known = ", ".join(ITEM_BYTES)
            raise MalformedError(f".{self.name}.dtype", f"{self.dtype!r} is not one of {known}")
        if type(self.shape) is not tuple:
            raise MalformedError(f".{self.name}.shape", f"expected a tuple, got {self.shape!r}")
        for extent in self.shape:
            check_integer(f".{self.name}.shape", extent, least=1)

    @property
    def size_bytes(self) -> int:
        """The array's size, without any guard."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}

    @classmethod
    def from_fields(cls, fields: Fields) -> ArraySpec:
        """Read the plain form."""
        return cls(fields.text("name"), fields.text("dtype"), fields.integers("shape", least=1))


@dataclass(frozen=True, slots=True)
class Binding:
    """One buffer of a WGSL program; its place in the list is its binding number in group 0.

    Attributes:
        array: The array's name.
        access: `uniform`, `read` or `write`.
        size_bytes: Bytes bound, an output's guard included.
    """

    array: str
    access: str
    size_bytes: int

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {"array": self.array, "access": self.access, "size_bytes": self.size_bytes}

    @classmethod
    def from_fields(cls, fields: Fields) -> Binding:
        """Read the plain form."""
        return cls(fields.text("array"), fields.text("access"), fields.integer("size_bytes"))


Extent: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WgslProgram:
    """A compute shader with everything that fixes one dispatch of it.

    Attributes:
        source: The complete WGSL text.
        entry_point: The function to run.
        constants: Values of the override constants.
        bindings: The buffers, in the order of their binding numbers.
        workgroup: Invocations in a workgroup, by dimension.
        dispatch: Workgroups in a dispatch, by dimension.
        workgroup_bytes: Workgroup memory that the program declares.
    """

    source: str
    entry_point: str
    constants: tuple[tuple[str, int], ...]
    bindings: tuple[Binding, ...]
    workgroup: Extent
    dispatch: Extent
    workgroup_bytes: int

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "language": "wgsl",
            "source": self.source,
            "entry_point": self.entry_point,
            "constants": dict[str, Value](self.constants),
            "bindings": [binding.to_value() for binding in self.bindings],
            "workgroup": list(self.workgroup),
            "dispatch": list(self.dispatch),
            "workgroup_bytes": self.workgroup_bytes,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> WgslProgram:
        """Read the plain form."""
        return cls(
            source=fields.text("source"),
            entry_point=fields.text("entry_point"),
            constants=tuple(fields.integer_map("constants").items()),
            bindings=fields.list_of("bindings", Binding.from_fields),
            workgroup=_extent(fields, "workgroup"),
            dispatch=_extent(fields, "dispatch"),
            workgroup_bytes=fields.integer("workgroup_bytes"),
        )


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A Python function with the sizes and the schedule to call it with.

    Attributes:
        function: `module:name` of `function(inputs, output, sizes, schedule)`, which writes
            into `output`, an array, from `inputs`, a map of arrays by name.
        sizes: The problem's sizes.
        schedule: The candidate.
    """

    function: str
    sizes: tuple[tuple[str, int], ...]
    schedule: tuple[tuple[str, int], ...]

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "language": "python",
            "function": self.function,
            "sizes": dict[str, Value](self.sizes),
            "schedule": dict[str, Value](self.schedule),
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> PythonProgram:
        """Read the plain form."""
        return cls(
            function=fields.text("function"),
            sizes=tuple(fields.integer_map("sizes").items()),
            schedule=tuple(fields.integer_map("schedule").items()),
        )


Program: TypeAlias = WgslProgram | PythonProgram


def program_from(fields: Fields) -> Program:
    """Read a program of either language."""
    if fields.text("language") == "wgsl":
        return WgslProgram.from_fields(fields)
    return PythonProgram.from_fields(fields)


def _extent(fields: Fields, name: str) -> Extent:
    x, y, z = fields.integers(name, least=1)
    return (x, y, z)
