"""The numpy device: Python functions on the CPU, there wherever castore's tuner is."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from castore.errors import MalformedError
from castore.tuning.device import Clock
from castore.tuning.host import cpu_silicon, operating_system, usable_cores
from castore.tuning.program import GUARD_BYTES, ArraySpec, Program, PythonProgram
from castore.tuning.python_source import resolved
from castore.tuning.statistics import COMPLETION_CLOCK
from castore.tuning.topology_manifest import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from castore.format.value import Value

_THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., None]
    program: PythonProgram
    inputs: Mapping[str, NDArray[Any]]
    output: NDArray[Any]
    refill: Callable[[], None]

    def run(self, dispatches: int) -> int:
        """Call the function so many times and return the nanoseconds.

        Every call gets maps of its own and an output without a result, so that there is nothing
        to be found from the call before.
        """
        elapsed_ns = 0
        for _ in range(dispatches):
            inputs = dict(self.inputs)
            sizes, schedule = dict(self.program.sizes), dict(self.program.schedule)
            self.refill()
            start_ns = time.perf_counter_ns()
            self.function(inputs, self.output, sizes, schedule)
            elapsed_ns += time.perf_counter_ns() - start_ns
        return elapsed_ns


class NumpyDevice:
    """Runs `PythonProgram`s in this process."""

    def __init__(self) -> None:
        self._inputs: dict[str, NDArray[Any]] = {}
        self._memory = bytearray()
        self._filled = b""
        self._output: NDArray[Any] = np.zeros(0, np.float32)

    def topology(self) -> dict[str, Value]:
        """Return the CPU, and numpy with its BLAS and threads."""
        software: dict[str, Value] = {
            "backend": "numpy",
            "numpy": np.__version__,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
        }
        return manifest(cpu_silicon(), {**software, **_blas(), **operating_system()})

    def load(
        self, inputs: Mapping[str, NDArray[Any]], output: ArraySpec, clock: Clock | None
    ) -> Clock:
        """Take copies of the inputs, and memory for the output between two guards."""
        self._inputs = {name: np.array(array) for name, array in inputs.items()}
        self._memory = bytearray(GUARD_BYTES + output.size_bytes + GUARD_BYTES)
        whole = np.frombuffer(self._memory, output.dtype)
        guard = GUARD_BYTES // whole.itemsize
        self._output = whole[guard:-guard].reshape(output.shape)
        return clock or Clock(COMPLETION_CLOCK)

    def prepare(self, program: Program) -> _Call:
        """Import the program's function."""
        if not isinstance(program, PythonProgram):
            raise MalformedError(".language", "the numpy device runs Python programs only")
        function = resolved(program.function)
        return _Call(function, program, self._inputs, self._output, self._refill)

    def fill(self, data: bytes) -> None:
        """Give the output and both guards these bytes, now and before each call."""
        self._filled = data[-GUARD_BYTES:] + data
        self._refill()

    def _refill(self) -> None:
        self._memory[:] = self._filled

    def output(self) -> bytes:
        """Return the output and the guard behind it; damage to the one before shows there too."""
        before, rest = bytes(self._memory[:GUARD_BYTES]), bytes(self._memory[GUARD_BYTES:])
        untouched = before == self._filled[:GUARD_BYTES]
        return rest if untouched else rest[:-GUARD_BYTES] + before

    def set_inputs(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Write other values into the arrays that candidates are given."""
        for name, array in inputs.items():
            self._inputs[name][...] = array

    def inputs(self) -> dict[str, bytes]:
        """Return the bytes that the inputs hold now."""
        return {name: array.tobytes() for name, array in self._inputs.items()}


def _blas() -> dict[str, Value]:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    threads = next((os.environ[name] for name in _THREAD_VARIABLES if name in os.environ), "")
    return {
        "blas": str(blas.get("name", "")),
        "blas_version": str(blas.get("version", "")),
        "blas_threads": threads or str(usable_cores()),
    }
