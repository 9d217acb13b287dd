"""What a kernel is: its problem, its oracle, its tolerance, and how devices may compute it.

A kernel says *what* each value is; an implementation says *how* a device computes
it, with the schedule space of that device. Everything that decides whether a
stored result still applies is reachable from here without numpy and without a
device, so that `find` can ask in a library's import path.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol

from castore.errors import MalformedError
from castore.format.value import Value
from castore.tuning.checks import check_integer, check_mapping, check_name, check_tuple
from castore.tuning.program import ArraySpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from castore.tuning.fields import Fields
    from castore.tuning.program import Program
    from castore.tuning.space import Schedule, ScheduleSpace


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed error of an element: abs(got - want) <= absolute + relative * abs(want).

    Attributes:
        absolute: The part that does not depend on the element.
        relative: The part that grows with it.
    """

    absolute: float
    relative: float

    def __post_init__(self) -> None:
        """Make both floats: a stored 1e-6 must equal the one that a kernel states.

        Raises:
            MalformedError: One is no number, negative, infinite or NaN.
        """
        for name in ("absolute", "relative"):
            given: object = getattr(self, name)
            if type(given) is bool or not isinstance(given, Real):
                raise MalformedError(f".tolerance.{name}", f"expected a number, got {given!r}")
            number = float(given)
            if not 0 <= number < math.inf:
                raise MalformedError(
                    f".tolerance.{name}", f"expected a number of at least 0, got {given!r}"
                )
            object.__setattr__(self, name, number)

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {"absolute": self.absolute, "relative": self.relative}

    @classmethod
    def from_fields(cls, fields: Fields) -> Tolerance:
        """Read the plain form."""
        return cls(fields.number("absolute"), fields.number("relative"))


@dataclass(frozen=True, slots=True)
class Signature:
    """The arrays that a kernel reads and the one that it writes.

    Attributes:
        inputs: The arrays read; a candidate that changes one is rejected.
        output: The array written, every element of it.
    """

    inputs: tuple[ArraySpec, ...]
    output: ArraySpec

    def __post_init__(self) -> None:
        """Refuse what are no arrays.

        Raises:
            MalformedError: A field is not what it should be; names it.
        """
        check_tuple(".signature.inputs", self.inputs, "ArraySpecs")
        where = [(f".signature.inputs[{at}]", spec) for at, spec in enumerate(self.inputs)]
        for field, spec in [*where, (".signature.output", self.output)]:
            given: object = spec
            if not isinstance(given, ArraySpec):
                raise MalformedError(field, f"expected an ArraySpec, got {given!r}")


class Implementation(Protocol):
    """How one kind of device computes a kernel, and which schedules it may use."""

    @property
    def space(self) -> ScheduleSpace:
        """The schedules to choose from."""

    @property
    def names(self) -> frozenset[str]:
        """Names that it gives a meaning to beside the problem's sizes: the knobs, for one."""

    def source_digest(self) -> str:
        """Return the BLAKE3 of everything that is run, whatever file or line it stands in."""

    def program(self, kernel: Kernel, schedule: Schedule) -> Program:
        """Return what a device needs to compute the kernel with this schedule."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function that devices compute, with all that is needed to check and tune it.

    Attributes:
        id: Its name, such as `matmul_f32`.
        semantic_version: Raised when what is computed changes.
        sizes: The problem's sizes by name, such as `{"m": 192, "n": 192, "k": 192}`.
        signature: From the sizes to the arrays.
        make_inputs: From the sizes and a seed to the input arrays by name.
        oracle: From the inputs to the expected output, shape as the signature says, float64.
            Slow and independent of every implementation.
        tolerance: How far an element may be from the oracle's.
        implementations: By kind of device, `wgpu` or `numpy`.
    """

    id: str
    semantic_version: int
    sizes: Mapping[str, int]
    signature: Callable[[Mapping[str, int]], Signature]
    make_inputs: Callable[[Mapping[str, int], int], dict[str, NDArray[Any]]]
    oracle: Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float64]]
    tolerance: Tolerance
    implementations: Mapping[str, Implementation]

    def __post_init__(self) -> None:
        """Refuse what could not stand in a kernel text or come back from a store.

        Raises:
            MalformedError: A field is not what it should be; names it.
        """
        check_name(".id", self.id)
        check_integer(".semantic_version", self.semantic_version, least=0)
        check_mapping(".sizes", self.sizes)
        for name, size in self.sizes.items():
            check_name(".sizes", name)
            check_integer(f".sizes.{name}", size, least=1)
        tolerance: object = self.tolerance
        if not isinstance(tolerance, Tolerance):
            raise MalformedError(".tolerance", f"expected a Tolerance, got {tolerance!r}")
        check_mapping(".implementations", self.implementations)
        for device, implementation in self.implementations.items():
            if not hasattr(implementation, "names"):
                raise MalformedError(
                    f".implementations.{device}",
                    f"expected a PythonImplementation or the like, got {implementation!r}",
                )
            taken = sorted(self.sizes.keys() & implementation.names)
            if taken:
                raise MalformedError(
                    f".implementations.{device}", f"{', '.join(taken)} is the name of a size, too"
                )

    @property
    def text(self) -> str:
        """The kernel text that refs are made under: the id and the problem's sizes."""
        sizes = ",".join(f"{name}={size}" for name, size in sorted(self.sizes.items()))
        return f"{self.id}[{sizes}]"

    @property
    def arrays(self) -> Signature:
        """The signature for the problem's sizes.

        Raises:
            MalformedError: The author's function gives something else.
        """
        given: object = self.signature(self.sizes)
        if not isinstance(given, Signature):
            raise MalformedError(".signature", f"expected a Signature, got {given!r}")
        return given

    @property
    def problem(self) -> dict[str, Value]:
        """The problem as stored: sizes, and the arrays with their shapes and element types."""
        signature = self.arrays
        return {
            "sizes": dict[str, Value](sorted(self.sizes.items())),
            "inputs": [spec.to_value() for spec in signature.inputs],
            "output": signature.output.to_value(),
        }

    def sized(self, **sizes: int) -> Kernel:
        """Return this kernel for another problem; sizes not named stay as they are.

        Raises:
            MalformedError: The kernel has no size of that name.
        """
        for name in sizes:
            if name not in self.sizes:
                raise MalformedError(f".sizes.{name}", f"{self.id} has only {sorted(self.sizes)}")
        return dataclasses.replace(self, sizes={**self.sizes, **sizes})
