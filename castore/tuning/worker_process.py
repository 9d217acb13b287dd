"""The tuner's end of a worker process: start it, ask it, give up on it, kill it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from castore.errors import MalformedError
from castore.tuning.errors import DeviceUnavailableError, NestedTuningError
from castore.tuning.fields import Fields
from castore.tuning.private_folder import private_folder
from castore.tuning.wire import packed, receive, send

if TYPE_CHECKING:
    from io import RawIOBase
    from pathlib import Path

    from castore.format.value import Value

START_LIMIT_S = 90.0
"""How long a worker may take to start and open its device; drivers can be slow the first time."""

IN_WORKER = "CASTORE_IN_WORKER"
"""The environment variable that marks a worker, and whatever its candidates start."""

_LAST_WORDS_BYTES = 4096
_GOODBYE_S = 10.0
_LISTEN_S = 1.0


class WorkerLostError(Exception):
    """The worker died or did not answer in time; it is gone. Internal to tuning.

    Attributes:
        reason: What happened, for people.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class WorkerProcess:
    """One running worker, with a private folder; nothing here waits for it without a limit."""

    def __init__(self) -> None:
        """Start a worker.

        Raises:
            NestedTuningError: This is a worker.
            DeviceUnavailableError: No process can be started here.
        """
        if IN_WORKER in os.environ:
            raise NestedTuningError
        if not sys.executable:
            raise DeviceUnavailableError("worker", "this Python does not know its own executable")
        self._held = ExitStack()
        try:
            self.folder = self._held.enter_context(private_folder())
            self._process = subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
                # -P: a file in the current folder must not stand in for a module of ours.
                [sys.executable, "-P", "-m", "castore.tuning.worker", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=_environment(self.folder),
                start_new_session=True,
            )
        except OSError as error:
            self._held.close()
            raise DeviceUnavailableError("worker", f"none can be started: {error}") from error
        self._asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[dict[str, Value] | None] = queue.SimpleQueue()
        self._last_words = bytearray()
        self._is_over = threading.Event()
        # A pipe to a worker may fill or stay open for ever, so only threads touch them; one that
        # gets stuck is left behind.
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._converse, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, message: dict[str, Value], *, time_limit_s: float) -> Fields:
        """Send a message and return the answer.

        Raises:
            WorkerLostError: There was no answer; the worker has been killed.
            MalformedError: The message cannot be sent; the worker is as it was.
        """
        limit_s = min(time_limit_s, threading.TIMEOUT_MAX)
        self._asked.put(packed({**message, "time_limit_s": float(limit_s)}))
        try:
            reply = self._replies.get(timeout=limit_s)
        except queue.Empty:
            self.kill()
            raise WorkerLostError(f"no answer within {time_limit_s:g} s; killed") from None
        if reply is None:
            raise WorkerLostError(self._obituary())
        return Fields.of(reply)

    def kill(self) -> None:
        """End the process and all that it started, and remove its folder; again does nothing."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        self._asked.put(None)
        _kill_group(self._process)
        # A process inside the kernel, waiting for a device, cannot even be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_GOODBYE_S)
        for thread in self._threads:
            thread.join(_LISTEN_S)
        self._held.close()

    def _converse(self) -> None:
        commands, replies = _raw(self._process.stdin), _raw(self._process.stdout)
        # Bytes that are no message end the conversation, like a worker that died.
        with commands, replies, contextlib.suppress(MalformedError, OSError):
            while (data := self._asked.get()) is not None:
                send(commands, data)
                reply = receive(replies)
                if reply is None:
                    break
                self._replies.put(reply)
        self._replies.put(None)

    def _listen(self) -> None:
        # Read all, lest the worker wait; keep the end, lest it fill the memory.
        with _raw(self._process.stderr) as stream, contextlib.suppress(OSError):
            while not self._is_over.is_set() and (data := stream.read(_LAST_WORDS_BYTES)):
                self._last_words += data
                del self._last_words[:-_LAST_WORDS_BYTES]

    def _obituary(self) -> str:
        try:
            status = self._process.wait(timeout=_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the worker no longer answers in messages; killed"
        self._threads[-1].join(_LISTEN_S)
        lines = bytes(self._last_words).decode("utf-8", "replace").strip().splitlines()
        self.kill()
        how = f"exit status {status}" if status >= 0 else _signal_name(-status)
        words = f": {lines[-1].strip()[:300]}" if lines else ""
        return f"the worker died ({how}){words}"


def describe(device: str) -> dict[str, Value]:
    """Return a device's topology manifest, found in a process of its own.

    A broken driver can crash or hang whoever looks for adapters, and that must not be the
    program that castore serves.

    Raises:
        DeviceUnavailableError: There is no such device here.
    """
    worker = WorkerProcess()
    try:
        message: dict[str, Value] = {"op": "describe", "device": device}
        reply = worker.ask(message, time_limit_s=START_LIMIT_S)
        if reply.has("failure"):
            raise unavailable(device, reply)
        return reply.fields("topology").values
    except WorkerLostError as error:
        raise DeviceUnavailableError(device, error.reason) from None
    finally:
        worker.kill()


def unavailable(device: str, reply: Fields) -> DeviceUnavailableError:
    """Return the error that a worker's answer, a failure, stands for."""
    told = reply.text("failure").removeprefix(str(DeviceUnavailableError(device, "")))
    return DeviceUnavailableError(device, told)


def _environment(folder: Path) -> dict[str, str]:
    # What can be imported here can be imported there, test modules included.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": path, IN_WORKER: "1"}
    # Mesa complains on standard error without it.
    environment.setdefault("XDG_RUNTIME_DIR", str(folder))
    return environment


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # The group outlives its leader for as long as anything that a candidate started runs.
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _raw(stream: object) -> RawIOBase:
    return cast("RawIOBase", stream)


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
