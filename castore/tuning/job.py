"""A job: the problem, its inputs and the expected output, fixed before any candidate.

Candidates are judged against these arrays and nothing else; their digests go into
the certification, so that a schedule which computes a smaller or another problem
cannot look fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from castore.errors import MalformedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from castore.tuning.kernel import Kernel, Signature, Tolerance
    from castore.tuning.program import ArraySpec


@dataclass(frozen=True, slots=True)
class Job:
    """What every candidate of one run must compute.

    Attributes:
        kernel: The kernel text.
        signature: The arrays.
        inputs: The input arrays by name, read-only.
        expected: The oracle's output, read-only float64.
        other_inputs: The same from another seed, for a result that was only remembered.
        other_expected: The oracle's output for them.
        tolerance: The allowed error.
        seed: What the inputs were made from.
        input_digests: BLAKE3 of each input's bytes.
        expected_digest: BLAKE3 of `expected` as little-endian float64.
    """

    kernel: str
    signature: Signature
    inputs: Mapping[str, NDArray[Any]]
    expected: NDArray[np.float64]
    other_inputs: Mapping[str, NDArray[Any]]
    other_expected: NDArray[np.float64]
    tolerance: Tolerance
    seed: int
    input_digests: dict[str, str]
    expected_digest: str

    @classmethod
    def of(cls, kernel: Kernel, *, seed: int) -> Job:
        """Make the inputs from the seed, and the expected output from the inputs.

        Raises:
            MalformedError: The signature is none, or an array is not as it says.
        """
        signature = kernel.arrays
        inputs, expected = _made(kernel, signature, seed)
        other_inputs, other_expected = _made(kernel, signature, seed ^ 1)
        return cls(
            kernel=kernel.text,
            signature=signature,
            inputs=inputs,
            expected=expected,
            other_inputs=other_inputs,
            other_expected=other_expected,
            tolerance=kernel.tolerance,
            seed=seed,
            input_digests={name: digest(array.tobytes()) for name, array in inputs.items()},
            expected_digest=digest(expected.tobytes()),
        )


def digest(data: bytes) -> str:
    """Return the BLAKE3 of some bytes, in hex."""
    return blake3(data).hexdigest()


def _made(
    kernel: Kernel, signature: Signature, seed: int
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64]]:
    made: object = kernel.make_inputs(kernel.sizes, seed)
    if not isinstance(made, Mapping):
        reason = f"expected a mapping of arrays by name, got {type(made).__name__}"
        raise MalformedError(".make_inputs", reason)
    inputs = {spec.name: _checked(made.get(spec.name), spec) for spec in signature.inputs}
    given = kernel.oracle(inputs)
    try:
        answer = np.asarray(given)
    except ValueError as error:  # rows of several lengths
        raise MalformedError(".oracle", f"expected an array: {error}") from None
    if answer.dtype != np.float64:
        # Candidates would be judged by its rounding, and better ones fail.
        raise MalformedError(".oracle", f"expected float64, got {answer.dtype}")
    expected = np.ascontiguousarray(answer, dtype="<f8")
    if expected.shape != signature.output.shape:
        wanted = signature.output.shape
        raise MalformedError(".oracle", f"expected shape {wanted}, got {expected.shape}")
    expected.setflags(write=False)
    return inputs, expected


def _checked(array: object, spec: ArraySpec) -> NDArray[Any]:
    got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    wanted = f"{np.dtype(spec.dtype)} {spec.shape}"
    if got != wanted:
        raise MalformedError(f".make_inputs.{spec.name}", f"expected {wanted}, got {got}")
    fixed = np.ascontiguousarray(array)
    fixed.setflags(write=False)
    return fixed
