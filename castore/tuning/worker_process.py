"""The tuner's end of a worker process: start it, ask it, give up on it, kill it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from castore.errors import MalformedError
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.fields import Fields
from castore.tuning.wire import receive, send

if TYPE_CHECKING:
    from castore.format.value import Value

START_LIMIT_S = 90.0
"""How long a worker may take to start and open its device; drivers can be slow the first time."""

_LAST_WORDS_BYTES = 4096
_GOODBYE_S = 10.0


class WorkerLostError(Exception):
    """The worker died or did not answer in time; it is gone. Internal to tuning.

    Attributes:
        reason: What happened, for people.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class WorkerProcess:
    """One running worker."""

    def __init__(self, folder: str) -> None:
        """Start a worker.

        Args:
            folder: A private folder, for what its libraries want to keep at run time.
        """
        if not sys.executable:
            raise DeviceUnavailableError("worker", "this Python does not know its own executable")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `kill`
        self._process = subprocess.Popen(
            # -P: a file in the current folder must not stand in for a module of ours.
            [sys.executable, "-P", "-m", "castore.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(folder),
        )
        self._replies: queue.SimpleQueue[dict[str, Value] | None] = queue.SimpleQueue()
        reading = (cast("BinaryIO", self._process.stdout), self._replies)
        self._reader = threading.Thread(target=_read, args=reading, daemon=True)
        self._reader.start()

    def ask(self, message: dict[str, Value], *, time_limit_s: float) -> Fields:
        """Send a message and return the answer.

        Raises:
            WorkerLostError: There was no answer; the worker has been killed.
        """
        try:
            send(cast("BinaryIO", self._process.stdin), message)
            reply = self._replies.get(timeout=time_limit_s)
        except queue.Empty:
            self.kill()
            raise WorkerLostError(f"no answer within {time_limit_s:g} s; killed") from None
        except (BrokenPipeError, OSError):
            reply = None
        if reply is None:
            raise WorkerLostError(self._obituary())
        return Fields.of(reply)

    def kill(self) -> None:
        """End the process at once and release what belongs to it; again does nothing."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                # Flushing to a process that is gone fails; the stream is closed all the same.
                with contextlib.suppress(OSError):
                    stream.close()
        self._errors.close()

    def _obituary(self) -> str:
        try:
            status = self._process.wait(timeout=_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_WORDS_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
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
    with tempfile.TemporaryDirectory(prefix="castore-") as folder:
        worker = WorkerProcess(folder)
        try:
            message: dict[str, Value] = {"op": "describe", "device": device}
            reply = worker.ask(message, time_limit_s=START_LIMIT_S)
            if reply.has("failure"):
                raise DeviceUnavailableError(device, _plain(reply.text("failure"), device))
            return reply.fields("topology").values
        except WorkerLostError as error:
            raise DeviceUnavailableError(device, error.reason) from None
        finally:
            worker.kill()


def _plain(failure: str, device: str) -> str:
    return failure.removeprefix(f"device {device} cannot be used: ")


def _environment(folder: str) -> dict[str, str]:
    # What can be imported here can be imported there, test modules included.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    # Mesa complains on standard error without it.
    environment.setdefault("XDG_RUNTIME_DIR", folder)
    return environment


def _read(stream: BinaryIO, replies: queue.SimpleQueue[dict[str, Value] | None]) -> None:
    # Bytes that are no message end the conversation, like a worker that died.
    with contextlib.suppress(MalformedError, ValueError, OSError):
        while (reply := receive(stream)) is not None:
            replies.put(reply)
    replies.put(None)


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
