"""Running an operation under strace: what calls it makes, and what a kill at one of them leaves.

strace attaches to a forked child that has nothing left to do but the operation, so
every call in the trace is the operation's own, and the n-th call of a name is the n-th
of the operation. An injected SIGKILL arrives at the entry of the call, which is then
not made: what is on disk is what all the calls before it have done.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.store.children import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALLS = (
    *("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "syncfs", "rename", "renameat"),
    *("renameat2", "link", "linkat", "unlink", "unlinkat", "open", "openat", "mkdir", "mkdirat"),
    *("fchmod", "chmod", "fchown", "chown", "flock", "utimensat"),
)
"""The calls that are traced, and that a process is killed at."""

_VERBS = {
    "write": ("write", "pwrite64", "ftruncate"),
    "sync": ("fsync", "fdatasync"),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat"),
    "unlink": ("unlink", "unlinkat"),
    "open": ("open", "openat"),
    "mkdir": ("mkdir", "mkdirat"),
    "mode": ("fchmod", "chmod", "fchown", "chown"),
    "touch": ("utimensat",),
}
_VERB_OF = {call: verb for verb, calls in _VERBS.items() for call in calls}

# `?` lets strace pass over a call that this machine does not have.
_TRACE = "trace=" + ",".join(f"?{call}" for call in CALLS)
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_PATHS = re.compile(r'(?<=<)/[^>]*(?=>)|(?<=")/[^"]*(?=")')


@dataclass(frozen=True, slots=True)
class Call:
    """One system call.

    Attributes:
        name: Its name.
        paths: The paths in its arguments, those of descriptors too, relative to the store's root.
        arguments: All of its arguments, as strace shows them.
        number: The how-manieth call of this name it is, from 1.
    """

    name: str
    paths: tuple[str, ...]
    arguments: str
    number: int

    @property
    def path(self) -> str:
        """What it works on; for a rename or a link, the new name."""
        return self.paths[-1] if self.paths else ""

    @property
    def verb(self) -> str:
        """What it does, one word for calls that differ but in their arguments."""
        if self.name in ("open", "openat") and "O_CREAT" in self.arguments:
            return "create"
        return _VERB_OF.get(self.name, self.name)

    @property
    def changes(self) -> bool:
        """Whether it may change what is on disk."""
        return self.verb not in ("open", "flock")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended.

    Attributes:
        status: The exit status; negative where a signal ended the process.
        is_acknowledged: Whether it was done, and said so.
        trace: What strace wrote.
    """

    status: int
    is_acknowledged: bool
    trace: str


class Operator:
    """Starts operations, each in a process of its own, with a tracer attached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.real.operations", str(folder)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.communicate()

    def run(
        self, operation: str, root: Path, *options: str, durability: str = "full", names: int = 256
    ) -> Outcome:
        """Do an operation under `strace`, with more of its options."""
        self._ask(json.dumps({"operation": operation, "root": str(root), "durability": durability}))
        child = self._answer()["pid"]
        output = self._folder / "trace"
        command = ["strace", "-y", "-s", str(names), "-e", _TRACE, *options]
        with _attached([*command, "-o", str(output), "-p", str(child)]):
            self._ask("go")
            ended = self._answer()
        return Outcome(ended["status"], ended["said"] == "acknowledged", output.read_text())

    def calls(self, operation: str, root: Path, *, durability: str = "full") -> list[Call]:
        """Do an operation, and return the calls that it made and that did not fail."""
        outcome = self.run(operation, root, durability=durability)
        assert outcome.is_acknowledged, outcome.trace
        return parse(outcome.trace, root)

    def killed_at(self, call: Call, operation: str, root: Path) -> Outcome:
        """Do an operation, and kill its process when it makes the call."""
        return self.run(
            operation, root, "-e", f"inject={call.name}:signal=KILL:when={call.number}", names=0
        )

    def _ask(self, line: str) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(line + "\n")
        self._server.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer


@contextmanager
def _attached(command: list[str]) -> Iterator[None]:
    """Let strace trace a process that waits, while the body lets it go on."""
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        assert "attached" in line, line
        yield
        tracer.communicate(timeout=60)
    finally:
        tracer.kill()
        tracer.communicate()


def parse(trace: str, root: Path) -> list[Call]:
    """Return the calls in a trace of one process that succeeded, numbered among all."""
    counts: dict[str, int] = {}
    calls = []
    for line in trace.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        name, arguments, result = found.groups()
        counts[name] = counts.get(name, 0) + 1
        if int(result) >= 0:
            paths = [path for path in _PATHS.findall(arguments) if _is_inside(path, root)]
            inside = tuple(path.removeprefix(str(root)).lstrip("/") or "." for path in paths)
            calls.append(Call(name, inside, arguments, counts[name]))
    return calls


def _is_inside(path: str, root: Path) -> bool:
    return path == str(root) or path.startswith(f"{root}/")
