"""Neither processes nor files outlive what they were made for."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from castore.store.store import Store
from castore.tuning import machine, tune, worker
from castore.tuning.device import Observation
from castore.tuning.errors import NestedTuningError
from castore.tuning.private_folder import private_folder
from castore.tuning.records import Failure
from castore.tuning.wire import packed
from castore.tuning.worker_process import IN_WORKER

from .candidates import misbehaving as modes
from .workbench import PATIENCE_S, DoubleKernel, measure, workbench


class Line:
    """Where candidates connect to; a connection ends when no process has it any more."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def accept(self) -> str:
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE_S)
        self._open.append(connection)
        return connection.recv(100).decode()

    def wait_for_the_end(self, of: int | None = None) -> None:
        for connection in self._open[:of]:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""

    def close(self) -> None:
        for part in (self._listener, *self._open):
            part.close()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    made = Line()
    monkeypatch.setenv("TELL_PORT", str(made.port))
    yield made
    made.close()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder for all temporary ones."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setenv("TMPDIR", str(made))
    return made


def test_what_a_candidate_started_ends_with_its_worker(double: DoubleKernel, line: Line) -> None:
    kernel = double(modes.RIGHT, modes.FORKS)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, modes.FORKS), Observation)
        line.accept()
    line.wait_for_the_end()


def test_a_child_that_outlives_its_worker_is_ended_and_delays_nothing(
    double: DoubleKernel, line: Line
) -> None:
    kernel = double(modes.RIGHT, modes.FORKS_AND_EXITS)
    with workbench(kernel, time_limit_s=PATIENCE_S) as trials:
        failure = measure(trials, kernel, modes.FORKS_AND_EXITS)
        assert isinstance(failure, Failure)
        assert "exit status 3" in failure.reason
        line.accept()
        line.wait_for_the_end()


def test_nothing_waits_for_a_daemon_that_a_candidate_leaves_behind(
    double: DoubleKernel, line: Line
) -> None:
    kernel = double(modes.RIGHT, modes.STARTS_A_DAEMON)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, modes.STARTS_A_DAEMON), Observation)
        daemon = int(line.accept())
    os.kill(daemon, signal.SIGKILL)  # It fails if the daemon is gone already.


def test_of_what_a_candidate_prints_only_the_end_is_kept(
    double: DoubleKernel, temporary: Path
) -> None:
    kernel = double(modes.RIGHT, modes.FLOODS)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, modes.FLOODS), Observation)
        worker, _ = trials._running()  # type: ignore[attr-defined]  # looks behind the protocol
        assert len(worker._last_words) <= 4096
        files = [path for path in temporary.rglob("*") if path.is_file()]
        assert max(path.stat().st_size for path in files) < 10_000


SCRIPT = """
    import os, signal, sys, time
    import numpy as np
    import castore
    from castore.tuning import (
        ArraySpec, Kernel, Knob, PythonImplementation, ScheduleSpace, Signature, Tolerance, tune
    )

    sys.path.append({candidates!r})

    def fork(*_):
        import misbehaving
        if os.fork() == 0:
            misbehaving.tell(str(os.getpid()))
            time.sleep(600)

    signal.signal(signal.SIGUSR1, fork)

    def copy(inputs, output, sizes, schedule):
        if schedule["mode"]:
            import misbehaving
            misbehaving._INSTEAD[schedule["mode"]]()
        output[:] = inputs["x"]

    kernel = Kernel(
        id="copy_f32", semantic_version=1, sizes={{"n": 8}},
        signature=lambda sizes: Signature(
            (ArraySpec("x", "float32", (sizes["n"],)),), ArraySpec("y", "float32", (sizes["n"],))
        ),
        make_inputs=lambda sizes, seed: {{"x": np.full(sizes["n"], seed, np.float32)}},
        oracle=lambda inputs: inputs["x"].astype(np.float64),
        tolerance=Tolerance(0.0, 0.0),
        implementations={{
            "numpy": PythonImplementation(
                "script:copy", ScheduleSpace((Knob("mode", ({mode},)),), {{"mode": {mode}}})
            )
        }},
    )
    {guard}
        with castore.open({store!r}) as store:
            print(tune(store, kernel, device="numpy", time_limit_s={time_limit_s}).schedule)
"""


@contextmanager
def script(tmp_path: Path, guard: str, mode: int) -> Iterator[subprocess.Popen[str]]:
    """Run a script that tunes; it ends with the block."""
    text = SCRIPT.format(
        guard=guard,
        mode=mode,
        candidates=str(Path(__file__).parent / "candidates"),
        store=str(tmp_path / "store"),
        # Where no Python runs any more, the worker notices at its time limit.
        time_limit_s=1 if mode == modes.HOLDS_THE_GIL else PATIENCE_S,
    )
    (tmp_path / "script.py").write_text(textwrap.dedent(text))
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_script_that_tunes_its_own_kernel_works_under_a_guard(tmp_path: Path) -> None:
    with script(tmp_path, 'if __name__ == "__main__":', modes.RIGHT) as process:
        printed, errors = process.communicate(timeout=PATIENCE_S)
    assert (printed, errors) == ("{'mode': 0}\n", "")


def test_a_script_that_tunes_when_it_is_imported_is_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    with script(tmp_path, "if True:", modes.RIGHT) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert 'put the call under: if __name__ == "__main__":' in errors


def test_tuning_inside_a_worker_is_refused(
    store: Store, double: DoubleKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.forget()
    monkeypatch.setenv(IN_WORKER, "1")
    for nested in (
        lambda: tune(store, double(0), device="numpy"),
        lambda: tune(store, double(0)),
        machine.topology,
    ):
        with pytest.raises(NestedTuningError, match="__main__"):
            nested()


@pytest.mark.parametrize("mode", [modes.HANGS, modes.FORKS_AND_HANGS, modes.HOLDS_THE_GIL])
def test_nothing_outlives_a_tuner_that_is_killed(
    tmp_path: Path, temporary: Path, line: Line, mode: int
) -> None:
    with script(tmp_path, 'if __name__ == "__main__":', mode) as process:
        for _ in range(2 if mode == modes.FORKS_AND_HANGS else 1):
            assert line.accept() == "here"
        process.kill()
        line.wait_for_the_end()
    if mode != modes.HOLDS_THE_GIL:
        # Processes of a group end in any order; the folder went before the first of them.
        assert list(temporary.iterdir()) == []


def test_a_worker_ends_with_its_tuner_though_another_process_has_the_pipe(
    tmp_path: Path, line: Line
) -> None:
    with script(tmp_path, 'if __name__ == "__main__":', modes.HANGS) as process:
        assert line.accept() == "here"
        process.send_signal(signal.SIGUSR1)
        forked = int(line.accept())
        try:
            process.kill()
            line.wait_for_the_end(of=1)
        finally:
            os.kill(forked, signal.SIGKILL)


def test_a_worker_that_cannot_answer_removes_its_folder_before_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(5000):
        (folder / str(number)).touch()
    with subprocess.Popen(
        [sys.executable, "-m", "castore.tuning.worker", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(packed({"op": "dance", "time_limit_s": PATIENCE_S}))
        process.stdin.close()
        process.wait(PATIENCE_S)
    assert not folder.exists()


def test_outputs_that_are_written_meanwhile_keep_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    rmdir, outputs = os.rmdir, list("abcde")

    def rmdir_too_late(*args: object, **options: object) -> None:
        if outputs:
            (folder / outputs.pop()).touch()
        rmdir(*args, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(os, "rmdir", rmdir_too_late)
    worker._remove(folder)
    assert (folder.exists(), outputs) == (False, [])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux chooses by this number")
def test_when_memory_runs_out_the_worker_is_the_first_to_go(double: DoubleKernel) -> None:
    kernel = double(modes.RIGHT)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, modes.RIGHT), Observation)
        worker, _ = trials._running()  # type: ignore[attr-defined]  # looks behind the protocol
        score = Path(f"/proc/{worker._process.pid}/oom_score_adj").read_text()
    assert int(score) == 1000


def test_a_folder_of_a_tuner_that_is_long_dead_is_removed_and_one_in_use_is_not(
    temporary: Path,
) -> None:
    old = temporary / "castore-worker-old"
    strangers = temporary / "castore-other"
    for folder in (old, strangers):
        folder.mkdir()
        (folder / "input-x").write_bytes(b"x")
        os.utime(folder, (0, 0))
    with private_folder() as held:
        assert not old.exists()
        os.utime(held, (0, 0))
        with private_folder() as other:
            assert held.exists()
            assert {path.name for path in temporary.iterdir()} == {
                strangers.name,
                held.name,
                other.name,
            }
    assert list(temporary.iterdir()) == [strangers]
