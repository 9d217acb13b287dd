"""What a process pays for `import castore`, against importing the three libraries below it.

Limit: 2.0 times the process time (user and system) of `import blake3, msgpack,
zstandard`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import TYPE_CHECKING

from bench.measure import Plan, Result, compare

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOOR = ("-c", "import blake3, msgpack, zstandard")
_IMPORT = ("-c", "import castore")
_EVERYTHING = ("-c", "import castore; castore.Store, castore.open, castore.encode")
_VERSION = ("-m", "castore", "--version")

_NOTES = (
    "a whole process each time, the interpreter's own start included on both sides",
    "castore loads its parts when they are first used; `castore.open` loads the store",
)


def run(plan: Plan) -> Result:
    """Measure whole processes, in turns."""
    sides: dict[str, Sequence[str]] = {
        "import castore": _IMPORT,
        "import castore, castore.open": _EVERYTHING,
    }
    if importlib.util.find_spec("castore.__main__") is not None:
        sides["castore --version"] = _VERSION
    processes = plan.sized(40, 3)
    rows = []
    for name, arguments in sides.items():
        timed = [_in_turns(arguments, first=number % 2) for number in range(processes + 1)][1:]
        limit = 2.0 if name == "import castore" else None
        cpu = [(castore[0], floor[0]) for castore, floor in timed]
        rows.append(compare(f"{name}, process time", cpu, operations=1, limit=limit))
        wall = [(castore[1], floor[1]) for castore, floor in timed]
        rows.append(compare(f"{name}, wall", wall, operations=1))
    return Result(tuple(rows), _NOTES)


def _in_turns(arguments: Sequence[str], *, first: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (process, wall) nanoseconds of a process with `arguments`, and of the floor's."""
    if first == 0:
        castore = _process_ns(arguments)
        return castore, _process_ns(_FLOOR)
    floor = _process_ns(_FLOOR)
    return _process_ns(arguments), floor


def _process_ns(arguments: Sequence[str]) -> tuple[int, int]:
    """Run Python and return its process time (user and system) and wall time, in nanoseconds."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    start_ns = time.perf_counter_ns()
    child = os.posix_spawn(
        sys.executable, [sys.executable, *arguments], os.environ, file_actions=quiet
    )
    _, status, usage = os.wait4(child, 0)
    wall_ns = time.perf_counter_ns() - start_ns
    if status != 0:
        raise RuntimeError(f"python {' '.join(arguments)} ended with status {status}")
    return int((usage.ru_utime + usage.ru_stime) * 1e9), wall_ns
