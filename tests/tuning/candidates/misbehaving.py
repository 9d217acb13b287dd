"""y = 2 x, computed rightly and in many wrong ways; the knob `mode` says which."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sizes = dict[str, int]
Inputs = dict[str, NDArray[Any]]

RIGHT, KILLED, EXITS, HANGS, RAISES, WRONG, NAN, WRITES_INPUT = range(8)
TAIL_UNWRITTEN, EVEN_ONLY, ACCUMULATES, WRONG_LATER, PAST_END, BEFORE_START, PRINTS = range(8, 15)
HALF_THE_PROBLEM, OUT_OF_MEMORY, LAZY, PEEKS, STASHES, WRECKS_FOLDER = range(15, 21)
FORKS, FORKS_AND_EXITS, FORKS_AND_HANGS, STARTS_A_DAEMON, FLOODS, HOLDS_THE_GIL = range(21, 27)
REMEMBERS, RAISES_A_SURROGATE, RAISES_THE_UNSPEAKABLE, COUNT = 27, 28, 29, 30

_calls: Counter[int] = Counter()
_remembered: dict[int, NDArray[Any]] = {}


def double(inputs: Inputs, output: NDArray[Any], sizes: Sizes, schedule: Sizes) -> None:
    x, n, mode = inputs["x"], sizes["n"], schedule["mode"]
    _calls[mode] += 1
    if mode in _INSTEAD:
        _INSTEAD[mode]()
    if mode == WRITES_INPUT:
        x[0] += 1
    if mode == LAZY and _calls[mode] > 1:
        return
    if mode == PEEKS and output[0] == 2 * x[0]:
        return
    if mode == STASHES and "stash" in inputs:
        output[:] = 7
        return
    if mode == REMEMBERS:
        output[:] = _remembered.setdefault(id(x), 2 * x)
        return
    if mode == ACCUMULATES:
        output += 2 * x
        return
    before = output.copy()
    output[:] = 2 * x
    inputs["stash"] = output
    _spoil(output, before, n, mode)


def constant(inputs: Inputs, output: NDArray[Any], sizes: Sizes, schedule: Sizes) -> None:
    """Write one number everywhere; with a `mode` of 1 nothing at all."""
    if schedule["mode"] == 0:
        output.view(np.uint32)[:] = sizes["bits"]


def tell(text: str) -> None:
    """Connect to the test, which sees the connection's end when nobody has it any more."""
    if "TELL_PORT" in os.environ:
        line = socket.create_connection(("127.0.0.1", int(os.environ["TELL_PORT"])))
        line.send(text.encode())
        line.detach()


def _hang() -> None:
    tell("here")
    while True:
        time.sleep(1)


def _give_up() -> None:
    raise RuntimeError("the candidate gave up")


def _raise_a_surrogate() -> None:
    raise RuntimeError(os.fsdecode(b"no file \xff"))


class UnspeakableError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text either")


def _raise_the_unspeakable() -> None:
    raise UnspeakableError


def _exhaust_memory() -> None:
    raise MemoryError


def _fork() -> None:
    # Once: the parent goes on, and leaves its child behind.
    if _calls[FORKS] < 2 and os.fork() == 0:
        _hang()


def _fork_and_exit() -> None:
    if os.fork() == 0:
        _hang()
    os._exit(3)


def _fork_and_hang() -> None:
    os.fork()
    _hang()


def _start_a_daemon() -> None:
    # It has the worker's standard error, and a session of its own.
    if _calls[STARTS_A_DAEMON] < 2:
        daemon = subprocess.Popen(["sleep", "60"], start_new_session=True)
        tell(str(daemon.pid))


def _flood() -> None:
    for _ in range(64):
        os.write(2, b"flood\n" * 100_000)


def _hold_the_gil() -> None:
    tell("here")
    ctypes.PyDLL(None).sleep(600)


_INSTEAD: dict[int, Callable[[], object]] = {
    KILLED: lambda: os.kill(os.getpid(), signal.SIGKILL),
    EXITS: lambda: os._exit(3),
    HANGS: _hang,
    RAISES: _give_up,
    RAISES_A_SURROGATE: _raise_a_surrogate,
    RAISES_THE_UNSPEAKABLE: _raise_the_unspeakable,
    OUT_OF_MEMORY: _exhaust_memory,
    PRINTS: lambda: os.write(1, b"noise between the messages\n"),
    WRECKS_FOLDER: lambda: shutil.rmtree(sys.argv[1]),
    FORKS: _fork,
    FORKS_AND_EXITS: _fork_and_exit,
    FORKS_AND_HANGS: _fork_and_hang,
    STARTS_A_DAEMON: _start_a_daemon,
    FLOODS: _flood,
    HOLDS_THE_GIL: _hold_the_gil,
}


def _spoil(output: NDArray[Any], before: NDArray[Any], n: int, mode: int) -> None:
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
        left = unwritten[mode]
        output[left] = before[left]
    beside = {PAST_END: output.nbytes, BEFORE_START: -4}
    if mode in beside:
        ctypes.memset(output.ctypes.data + beside[mode], 0, 4)


def make_inputs(sizes: Sizes, seed: int) -> Inputs:
    return {"x": np.arange(sizes["n"], dtype=np.float32) + np.float32(seed)}


def oracle(inputs: Inputs) -> NDArray[np.float64]:
    expected: NDArray[np.float64] = 2 * inputs["x"].astype(np.float64)
    return expected


def constant_oracle(inputs: Inputs) -> NDArray[np.float64]:
    bits = inputs["x"].view(np.uint32)
    expected: NDArray[np.float64] = bits.view(np.int32).astype(np.float64)
    return expected
