"""The worker process: runs candidates, and may be killed at any moment.

It is started as `python -m castore.tuning.worker` and answers messages on its
standard input with messages on its standard output. Whatever a driver or a
candidate prints goes to standard error. It ends when its input ends, also in the
middle of a candidate, so that none outlives its tuner.

Messages, each a map with `op`:

- `describe` {device}: answers {topology}.
- `load` {device, folder, inputs, output, clock?}: answers {clock}.
- `measure` {program, samples, warmups, dispatches}: answers {samples_ns, inputs}, having
  written the outputs of the first and the last dispatch to `first` and `last` in the folder.

Whatever goes wrong is answered with {failure, stage}.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import OrderedDict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from blake3 import blake3

from castore.errors import CastoreError
from castore.format.canonical import encode
from castore.format.value import Value
from castore.tuning.device import ENTRY_POINT_GROUP, Clock, LocalDevice, Prepared
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.fields import Fields
from castore.tuning.program import ArraySpec, program_from
from castore.tuning.wire import receive, send

_PREPARED_MAX = 64
_REASON_CHARACTERS_MAX = 2000


class _StageError(Exception):
    """A failure with the stage in which it occurred; internal to this module."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        self.stage = stage
        self.cause = cause
        super().__init__(stage, cause)


class _Worker:
    def __init__(self) -> None:
        self._device: LocalDevice | None = None
        self._folder = Path()
        self._prepared: OrderedDict[bytes, Prepared] = OrderedDict()

    def answer(self, message: Fields) -> dict[str, Value]:
        """Do what a message asks."""
        match message.text("op"):
            case "describe":
                return {"topology": _local_device(message.text("device")).topology()}
            case "load":
                return self._load(message)
            case "measure":
                return self._measure(message)
        raise _StageError("worker", ValueError(f"unknown op {message.text('op')}"))

    def _load(self, message: Fields) -> dict[str, Value]:
        self._folder = Path(message.text("folder"))
        inputs = {
            spec.name: np.fromfile(self._folder / f"input-{spec.name}", spec.dtype).reshape(
                spec.shape
            )
            for spec in message.list_of("inputs", ArraySpec.from_fields)
        }
        output = ArraySpec.from_fields(message.fields("output"))
        clock = None
        if message.has("clock"):
            given = message.fields("clock")
            clock = Clock(given.text("source"), given.number("tick_ns"))
        self._device = _local_device(message.text("device"))
        clock = self._device.load(inputs, output, clock)
        return {"clock": {"source": clock.source, "tick_ns": clock.tick_ns}}

    def _measure(self, message: Fields) -> dict[str, Value]:
        device = self._device
        if device is None:
            raise _StageError("worker", RuntimeError("no job is loaded"))
        dispatches = message.integer("dispatches", least=1)
        prepared = self._prepare(device, message.fields("program"))
        samples: list[Value] = []
        try:
            for warmup in range(message.integer("warmups", least=1)):
                device.poison()
                prepared.run(1)
                if warmup == 0:
                    (self._folder / "first").write_bytes(device.output())
            for _ in range(message.integer("samples", least=1)):
                device.poison()
                samples.append(prepared.run(dispatches))
            (self._folder / "last").write_bytes(device.output())
            now = {name: blake3(data).hexdigest() for name, data in device.inputs().items()}
        except Exception as error:
            raise _StageError("run", error) from error
        return {"samples_ns": samples, "inputs": dict[str, Value](now)}

    def _prepare(self, device: LocalDevice, fields: Fields) -> Prepared:
        key = encode(fields.values)
        if key not in self._prepared:
            try:
                self._prepared[key] = device.prepare(program_from(fields))
            except Exception as error:
                raise _StageError("compile", error) from error
            if len(self._prepared) > _PREPARED_MAX:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return self._prepared[key]


def main() -> int:
    """Answer messages until the input ends."""
    replies = _taken_standard_output()
    messages: queue.SimpleQueue[dict[str, Value]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, messages), daemon=True).start()
    worker = _Worker()
    while True:
        send(replies, _answered(worker, messages.get()))


def _answered(worker: _Worker, message: dict[str, Value]) -> dict[str, Value]:
    # A worker reports whatever a driver or a candidate throws; its tuner decides.
    try:
        return worker.answer(Fields.of(message))
    except _StageError as error:
        return {"failure": _told(error.cause), "stage": error.stage}
    except Exception as error:  # noqa: BLE001 - see above
        return {"failure": _told(error), "stage": "worker"}


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, CastoreError):
        return text[:_REASON_CHARACTERS_MAX]
    return f"{type(error).__name__}: {text}"[:_REASON_CHARACTERS_MAX]


def _read(stream: BinaryIO, messages: queue.SimpleQueue[dict[str, Value]]) -> None:
    try:
        while (message := receive(stream)) is not None:
            messages.put(message)
    finally:
        # The tuner is gone, and the main thread may be inside a driver for ever.
        os._exit(0)


def _taken_standard_output() -> BinaryIO:
    # Drivers and candidates print. Their output must not end up between messages.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


def _local_device(name: str) -> LocalDevice:
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            made: Any = entry.load()()
        except ImportError as error:
            hint = "; try: pip install 'castore[wgpu]'" if name == "wgpu" else ""
            raise DeviceUnavailableError(name, f"{error}{hint}") from error
        return made  # type: ignore[no-any-return]  # entry points carry no types
    raise DeviceUnavailableError(name, f"no entry point of that name in {ENTRY_POINT_GROUP}")


if __name__ == "__main__":
    sys.exit(main())
