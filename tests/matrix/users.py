"""Acting as other users: real processes, forked, because they may not read the interpreter."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class User:
    """A user, who need not have an account."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


LAB = 64101
ALICE = User(64001, 64001, (LAB,))
BOB = User(64002, 64002, (LAB,))
CAROL = User(64003, 64003)
ROOT = User(0, 0)


@dataclass(slots=True)
class Running:
    """A process that acts as a user."""

    pid: int
    pipe: int
    _ended: bool = field(default=False)

    def result(self) -> Any:
        """Wait for the end, and return what was returned, by way of JSON."""
        with os.fdopen(self.pipe, "rb") as pipe:
            answer = json.loads(pipe.read() or b'{"error": "it died"}')
        os.waitpid(self.pid, 0)
        assert "error" not in answer, answer["error"]
        return answer["result"]


def start(user: User, act: Callable[[], Any], *, umask: int = 0o022) -> Running:
    """Begin to run `act` as a user, beside this process."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The threads that a test runner has hold nothing that the child needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            answer = json.dumps(_act(user, act, umask)).encode()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    return Running(pid, reader)


def act_as(user: User, act: Callable[[], Any], *, umask: int = 0o022) -> Any:
    """Run `act` as a user, and return its result, by way of JSON."""
    return start(user, act, umask=umask).result()


def _act(user: User, act: Callable[[], Any], umask: int) -> dict[str, Any]:
    try:
        os.umask(umask)
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
        return {"result": act()}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must learn of it
        return {"error": traceback.format_exc()}
