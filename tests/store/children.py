"""Children of a test: started, let end or killed, and what they said.

What a child does is in `tests.store.writers`; it says a JSON line for each thing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import castore
from tests.store.worlds import errors_in
from tests.store.writers import TOPOLOGY

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 300


def start(
    task: str,
    root: Path,
    *arguments: object,
    module: str = "tests.store.writers",
    own_pids: bool = False,
    **environment: str,
) -> subprocess.Popen[str]:
    """Start a child that does a task; with `own_pids`, as process 1 of its own namespace."""
    apart = ["unshare", "--pid", "--fork", "--kill-child"] if own_pids else []
    return subprocess.Popen(
        [*apart, sys.executable, "-m", module, task, str(root), *map(str, arguments)],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(child: subprocess.Popen[str], *, status: int = 0) -> list[dict[str, Any]]:
    """Let a child end, and return what it said."""
    out, error = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == status, error
    assert "Traceback" not in error
    return [json.loads(line) for line in out.splitlines() if line.endswith("}")]


@contextmanager
def beside(task: str, root: Path, count: int, **how: Any) -> Iterator[list[Any]]:
    """Run a task until the body ends; what its children said is in the list after that.

    Takes what `start` takes.
    """
    children = [start(task, root, **how) for _ in range(count)]
    answers: list[Any] = []
    try:
        yield answers
        for child in children:
            answers += said(child)
    finally:
        for child in children:
            end(child)


def end(child: subprocess.Popen[str]) -> None:
    """Kill a child that still runs, and close its pipes."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def all_said(children: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Let all of them end, whatever one of them does, and return what they said."""
    try:
        return [answer for child in children for answer in said(child)]
    finally:
        for child in children:
            end(child)


def losses(root: Path, answers: list[Any]) -> list[Any]:
    """Return what was acknowledged and does not resolve, at the time or in the end."""
    store = castore.open(root)
    last = {answer["kernel"]: answer["oid"] for answer in answers if "kernel" in answer}
    lost = [answer for answer in answers if "kernel" not in answer]
    lost += [
        ref for ref in store.refs("tuning") if ref.kernel in last and ref.object != last[ref.kernel]
    ]
    for kernel in last:
        found = store.lookup("tuning", TOPOLOGY, kernel)
        if found is None:
            lost.append(kernel)
    return lost + [found for found in errors_in(store) if found.id != "object-link-missing"]
