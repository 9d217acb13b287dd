"""The worker process: runs candidates, and may be killed at any moment.

It is started as `python -m castore.tuning.worker FOLDER` and answers messages on its
standard input with messages on its standard output. Whatever a driver or a
candidate prints goes to standard error. When its input or its parent ends, also in the
middle of a candidate, it removes its folder and kills its process group, so that
neither it nor anything that a candidate started outlives its tuner. A process that
makes a session of its own leaves the group, and is out of reach.

Messages, each a map with `op` and `time_limit_s`:

- `describe` {device}: answers {topology}.
- `load` {device, inputs, output, clock?}: answers {clock, topology}. The inputs are in the
  folder, in files named `input-` and the array's name; `other-` stands before other ones.
- `measure` {program, samples, warmups, dispatches}: answers {samples_ns, inputs, outputs},
  having written the output of each dispatch that is to be judged to a file of the folder;
  `outputs` lists them, as `poison.TOLD` names them.

Whatever goes wrong is answered with {failure, stage}.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import select
import shutil
import signal
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from io import FileIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from castore.errors import CastoreError
from castore.format.canonical import encode
from castore.format.value import Value
from castore.tuning.device import ENTRY_POINT_GROUP, Clock, LocalDevice, Prepared
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.fields import Fields
from castore.tuning.poison import FIRST, LAST, OTHER, TEMPTED, almost, pattern, poison
from castore.tuning.program import GUARD_BYTES, ArraySpec, program_from
from castore.tuning.wire import packed, receive, send

Inputs: TypeAlias = Mapping[str, NDArray[Any]]

_PREPARED_MAX = 64
_REASON_CHARACTERS_MAX = 2000
_GRACE_S = 5.0
_PARENT_S = 1.0
_REMOVALS_MAX = 16


class _StageError(Exception):
    """A failure with the stage in which it occurred; internal to this module."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        self.stage = stage
        self.cause = cause
        super().__init__(stage, cause)


@dataclass(slots=True)
class _Candidate:
    prepared: Prepared
    was_tried: bool = False


class _Job:
    """A device with the arrays of a job, and the candidates that are ready to run."""

    def __init__(
        self,
        device: LocalDevice,
        inputs: Mapping[str, Inputs],
        output: ArraySpec,
        folder: Path,
    ) -> None:
        self._device = device
        self._inputs = inputs
        self._output = output
        self._folder = folder
        self._candidates: OrderedDict[bytes, _Candidate] = OrderedDict()

    def measure(self, message: Fields) -> dict[str, Value]:
        """Run a candidate and write down what is to be judged."""
        candidate = self._prepared(message.fields("program"))
        dispatches = message.integer("dispatches", least=1)
        outputs: list[Value] = [FIRST, LAST]
        samples: list[Value] = []
        try:
            for warmup in range(message.integer("warmups", least=1)):
                self._fill(FIRST)
                candidate.prepared.run(1)
                if warmup == 0:
                    self._keep(FIRST)
            for _ in range(message.integer("samples", least=1)):
                self._fill(LAST)
                samples.append(candidate.prepared.run(dispatches))
            result = self._keep(LAST)
            held = self._device.inputs()
            if not candidate.was_tried:
                self._tempt(candidate.prepared, result)
                self._surprise(candidate.prepared)
                candidate.was_tried = True
                outputs += [*TEMPTED, OTHER]
        except Exception as error:
            raise _StageError("run", error) from error
        digests = {name: blake3(data).hexdigest() for name, data in held.items()}
        return {"samples_ns": samples, "inputs": dict[str, Value](digests), "outputs": outputs}

    def _fill(self, dispatch: str) -> None:
        bits = pattern(self._output.dtype, dispatch)
        self._device.fill(poison(bits, self._output.size_bytes + GUARD_BYTES))

    def _keep(self, dispatch: str) -> bytes:
        result = self._device.output()
        (self._folder / dispatch).write_bytes(result)
        return result

    def _tempt(self, prepared: Prepared, result: bytes) -> None:
        size_bytes = self._output.size_bytes
        for dispatch, start in TEMPTED.items():
            bits = pattern(self._output.dtype, dispatch)
            filled = almost(result[:size_bytes], bits, start)
            self._device.fill(filled + poison(bits, GUARD_BYTES))
            prepared.run(1)
            self._keep(dispatch)

    def _surprise(self, prepared: Prepared) -> None:
        self._device.set_inputs(self._inputs["other"])
        self._fill(OTHER)
        prepared.run(1)
        self._keep(OTHER)
        self._device.set_inputs(self._inputs["input"])

    def _prepared(self, fields: Fields) -> _Candidate:
        key = encode(fields.values)
        if key not in self._candidates:
            try:
                self._candidates[key] = _Candidate(self._device.prepare(program_from(fields)))
            except Exception as error:
                raise _StageError("compile", error) from error
            if len(self._candidates) > _PREPARED_MAX:
                self._candidates.popitem(last=False)
        self._candidates.move_to_end(key)
        return self._candidates[key]


class _Worker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._job: _Job | None = None

    def answer(self, message: Fields) -> dict[str, Value]:
        """Do what a message asks."""
        match message.text("op"):
            case "describe":
                return {"topology": _local_device(message.text("device")).topology()}
            case "load":
                return self._load(message)
            case "measure" if self._job is not None:
                return self._job.measure(message)
            case "measure":
                raise _StageError("worker", RuntimeError("no job is loaded"))
        raise _StageError("worker", ValueError(f"unknown op {message.text('op')}"))

    def _load(self, message: Fields) -> dict[str, Value]:
        specs = message.list_of("inputs", ArraySpec.from_fields)
        inputs = {kind: self._read(kind, specs) for kind in ("input", "other")}
        output = ArraySpec.from_fields(message.fields("output"))
        clock = None
        if message.has("clock"):
            given = message.fields("clock")
            clock = Clock(given.text("source"), given.number("tick_ns"))
        device = _local_device(message.text("device"))
        clock = device.load(inputs["input"], output, clock)
        self._job = _Job(device, inputs, output, self._folder)
        return {
            "clock": {"source": clock.source, "tick_ns": clock.tick_ns},
            "topology": device.topology(),
        }

    def _read(self, kind: str, specs: Sequence[ArraySpec]) -> Inputs:
        arrays = {}
        for spec in specs:
            path = self._folder / f"{kind}-{spec.name}"
            arrays[spec.name] = np.fromfile(path, spec.dtype).reshape(spec.shape)
            path.unlink()  # They may be large, and temporary folders are often in memory.
        return arrays


def main() -> int:
    """Answer messages until the input ends."""
    folder = Path(sys.argv[1])
    commands, replies = _taken_streams()
    _volunteer()
    if hasattr(os, "register_at_fork"):
        # A process that a candidate forks must not look like a worker that is still there.
        os.register_at_fork(after_in_child=lambda: _close(commands, replies))
    messages: queue.SimpleQueue[dict[str, Value]] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(commands, messages, folder), daemon=True)
    reader.start()
    worker = _Worker(folder)
    try:
        while True:
            send(replies, packed(_answered(worker, messages.get())))
    except OSError:
        # The tuner is gone. The reader notices, too, and the process must last until it is done.
        reader.join()
        return 1


def _answered(worker: _Worker, message: dict[str, Value]) -> dict[str, Value]:
    # A worker reports whatever a driver or a candidate throws; its tuner decides.
    try:
        asked = Fields.of(message)
        # The tuner kills a worker that takes too long. Where it is dead itself and C code never
        # lets the reading thread know, this timer needs no Python to run.
        limit_s = min(asked.number("time_limit_s") + _GRACE_S, threading.TIMEOUT_MAX)
        faulthandler.dump_traceback_later(limit_s, exit=True, file=2)
        return worker.answer(asked)
    except _StageError as error:
        return {"failure": _told(error.cause), "stage": error.stage}
    except Exception as error:  # noqa: BLE001 - see above
        return {"failure": _told(error), "stage": "worker"}
    finally:
        faulthandler.cancel_dump_traceback_later()


def _told(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        told = str(error) if isinstance(error, CastoreError) else f"{kind}: {error}{_place(error)}"
    except Exception:  # noqa: BLE001 - a candidate's exception is code of its own
        told = kind
    # A file's name that is no UTF-8 has surrogates, which no message can hold.
    text = " ".join(told.split()).encode("utf-8", "backslashreplace").decode()
    return text[:_REASON_CHARACTERS_MAX]


def _place(error: BaseException) -> str:
    """Tell the innermost line of the author's package, the first one that is not our own."""
    places = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in {"__main__", "castore", "importlib"}:
            places.append((package, f" ({Path(frame.f_code.co_filename).name}:{line})"))
    return next((place for package, place in reversed(places) if package == places[0][0]), "")


def _read(stream: FileIO, messages: queue.SimpleQueue[dict[str, Value]], folder: Path) -> None:
    parent = os.getppid()
    try:
        while _awaited(stream, parent) and (message := receive(stream)) is not None:
            messages.put(message)
    finally:
        # The tuner is gone, and the main thread may be inside a driver for ever.
        _remove(folder)
        if sys.platform != "win32" and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


def _remove(folder: Path) -> None:
    # The main thread may be writing outputs. Each file that it makes meanwhile spoils one try,
    # and without its folder it can make no more.
    for _ in range(_REMOVALS_MAX):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def _awaited(stream: FileIO, parent: int) -> bool:
    """Wait for input; tell whether there is any."""
    if sys.platform == "win32":
        return True
    # Another process that the tuner's program forked may hold the pipe when the tuner is dead.
    while not select.select([stream], [], [], _PARENT_S)[0]:
        if os.getppid() != parent:
            return False
    return True


def _volunteer() -> None:
    # Where memory runs out, Linux shall end the worker and not its tuner.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _taken_streams() -> tuple[FileIO, FileIO]:
    # Drivers and candidates print, and forked children read and close what they take for a
    # terminal: neither may touch the messages.
    commands, replies = FileIO(os.dup(0), "rb"), FileIO(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, replies


def _close(*streams: FileIO) -> None:
    for stream in streams:
        stream.close()


def _local_device(name: str) -> LocalDevice:
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            made: Any = entry.load()()
        except ImportError as error:
            hint = "; try: pip install 'castore[wgpu]'" if name == "wgpu" else ""
            raise DeviceUnavailableError(name, f"{error}{hint}") from error
        return made  # type: ignore[no-any-return]  # entry points carry no types
    known = ", ".join(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}))
    raise DeviceUnavailableError(name, f"there is none of that name; known are {known}")


if __name__ == "__main__":
    sys.exit(main())
