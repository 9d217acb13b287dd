"""y = 2 x, computed rightly and in many wrong ways; the knob `mode` says which."""

import ctypes
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sizes = dict[str, int]
Inputs = dict[str, NDArray[Any]]

RIGHT, KILLED, EXITS, HANGS, RAISES, WRONG, NAN, WRITES_INPUT = range(8)
TAIL_UNWRITTEN, EVEN_ONLY, ACCUMULATES, WRONG_LATER, PAST_END, BEFORE_START, PRINTS = range(8, 15)
HALF_THE_PROBLEM, OUT_OF_MEMORY, LAZY = 15, 16, 17

_POISON = 0x7FFFA5A5

_calls: Counter[int] = Counter()


def double(inputs: Inputs, output: NDArray[Any], sizes: Sizes, schedule: Sizes) -> None:
    x, n, mode = inputs["x"], sizes["n"], schedule["mode"]
    _calls[mode] += 1
    if mode in _INSTEAD:
        _INSTEAD[mode]()
    if mode == WRITES_INPUT:
        x[0] += 1
    if mode == LAZY and _calls[mode] > 1:
        return
    if mode == ACCUMULATES:
        output += 2 * x
        return
    output[:] = 2 * x
    _spoil(output, n, mode)


def _hang() -> None:
    if "HANGING" in os.environ:
        Path(os.environ["HANGING"]).touch()
    while True:
        time.sleep(1)


def _give_up() -> None:
    raise RuntimeError("the candidate gave up")


def _exhaust_memory() -> None:
    raise MemoryError


_INSTEAD: dict[int, Callable[[], object]] = {
    KILLED: lambda: os.kill(os.getpid(), signal.SIGKILL),
    EXITS: lambda: os._exit(3),
    HANGS: _hang,
    RAISES: _give_up,
    OUT_OF_MEMORY: _exhaust_memory,
    PRINTS: lambda: os.write(1, b"noise between the messages\n"),
}


def _spoil(output: NDArray[Any], n: int, mode: int) -> None:
    wrong = {WRONG: (n // 2, n + 3.0), NAN: (3, np.nan)}
    if _calls[WRONG_LATER] > 1:
        wrong[WRONG_LATER] = (0, 7.0)
    if mode in wrong:
        at, value = wrong[mode]
        output[at] = value
    unwritten = {
        TAIL_UNWRITTEN: slice(n - 1, None),
        EVEN_ONLY: slice(1, None, 2),
        HALF_THE_PROBLEM: slice(n // 2, None),
    }
    if mode in unwritten:
        output.view(np.uint32)[unwritten[mode]] = _POISON
    beside = {PAST_END: output.nbytes, BEFORE_START: -4}
    if mode in beside:
        ctypes.memset(output.ctypes.data + beside[mode], 0, 4)


def make_inputs(sizes: Sizes, seed: int) -> Inputs:
    return {"x": np.arange(sizes["n"], dtype=np.float32) + np.float32(seed)}


def oracle(inputs: Inputs) -> NDArray[np.float64]:
    expected: NDArray[np.float64] = 2 * inputs["x"].astype(np.float64)
    return expected
