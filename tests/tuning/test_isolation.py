"""Candidates that misbehave, each in a real worker process, cost nothing but themselves."""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import castore
from castore.errors import MalformedError
from castore.store.store import Store
from castore.tuning import (
    ArraySpec,
    DeviceUnavailableError,
    Kernel,
    NothingAcceptableError,
    PythonImplementation,
    Signature,
    Tolerance,
    machine,
    tune,
)
from castore.tuning.device import Observation, Trials
from castore.tuning.errors import NestedTuningError
from castore.tuning.fields import Fields
from castore.tuning.job import Job
from castore.tuning.poison import FIRST, LAST, pattern
from castore.tuning.private_folder import private_folder
from castore.tuning.python_source import deferred
from castore.tuning.records import Failure, MeasuringPolicy
from castore.tuning.worker_device import WorkerDevice
from castore.tuning.worker_device import _read as read_output
from castore.tuning.worker_process import IN_WORKER, WorkerLostError, WorkerProcess

from .candidates import misbehaving as modes

DoubleKernel = Callable[..., Kernel]

PATIENCE_S = 60.0


@contextmanager
def workbench(kernel: Kernel, *, time_limit_s: float = 20.0) -> Iterator[Trials]:
    job = Job.of(kernel, seed=1)
    device = WorkerDevice("numpy")
    with device.trials(job, policy=MeasuringPolicy(), time_limit_s=time_limit_s) as trials:
        yield trials


def measure(
    trials: Trials, kernel: Kernel, mode: int, *, dispatches: int = 1
) -> Observation | Failure:
    schedule = {"mode": mode}
    program = kernel.implementations["numpy"].program(kernel, schedule)
    return trials.measure(schedule, program, samples=2, dispatches=dispatches)


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


REJECTED = {
    modes.KILLED: ("worker", "SIGKILL"),
    modes.EXITS: ("worker", "exit status 3"),
    modes.RAISES: ("run", "RuntimeError: the candidate gave up"),
    modes.OUT_OF_MEMORY: ("run", "MemoryError"),
    modes.WRONG: ("oracle", "first at 32: got 67.0, want 66.0"),
    modes.NAN: ("oracle", "got nan"),
    modes.WRITES_INPUT: ("oracle", "wrote into its input x"),
    modes.TAIL_UNWRITTEN: (
        "oracle",
        "1 of 64 elements were not written, or build on what was there before, first at 63",
    ),
    modes.EVEN_ONLY: ("oracle", "32 of 64 elements were not written"),
    modes.HALF_THE_PROBLEM: ("oracle", "there before, first at 32"),
    modes.ACCUMULATES: ("oracle", "first dispatch"),
    modes.WRONG_LATER: ("oracle", "last dispatch"),
    modes.LAZY: ("oracle", "last dispatch: 64 of 64 elements were not written"),
    modes.PEEKS: (
        "oracle",
        "dispatch over an almost right result: 4 of 64 elements were not written",
    ),
    modes.REMEMBERS: (
        "oracle",
        "dispatch with other inputs: 64 of 64 elements are wrong, first at 0: got 2.0, want 0.0",
    ),
    modes.PAST_END: ("oracle", "wrote outside its output"),
    modes.BEFORE_START: ("oracle", "wrote outside its output"),
    modes.WRECKS_FOLDER: ("run", "FileNotFoundError"),
    modes.FORKS_AND_EXITS: ("worker", "exit status 3"),
}


def test_every_misbehaviour_is_rejected_with_its_reason_and_the_next_candidate_works(
    double: DoubleKernel,
) -> None:
    kernel = double(*range(modes.COUNT))
    with workbench(kernel) as trials:
        for mode, (stage, reason) in REJECTED.items():
            failure = measure(trials, kernel, mode)
            assert isinstance(failure, Failure), mode
            assert failure.stage == stage
            assert reason in failure.reason
            seen = measure(trials, kernel, modes.RIGHT)
            assert isinstance(seen, Observation), f"after mode {mode}: {seen}"


def test_a_candidate_that_hangs_is_killed_at_the_time_limit(double: DoubleKernel) -> None:
    kernel = double(modes.RIGHT, modes.HANGS)
    with workbench(kernel, time_limit_s=1.0) as trials:
        failure = measure(trials, kernel, modes.HANGS)
        assert isinstance(failure, Failure)
        assert failure.stage == "worker"
        assert "no answer within 1 s" in failure.reason
        assert isinstance(measure(trials, kernel, modes.RIGHT), Observation)


def test_what_a_candidate_prints_does_not_disturb_the_messages(double: DoubleKernel) -> None:
    kernel = double(modes.RIGHT, modes.PRINTS)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, modes.PRINTS), Observation)


def test_after_any_failure_the_next_candidate_gets_a_worker_of_its_own(
    double: DoubleKernel,
) -> None:
    kernel = double(modes.RIGHT, modes.WRONG)
    program = kernel.implementations["numpy"].program(kernel, {"mode": 0})
    missing = type(program)("misbehaving:nowhere", program.sizes, program.schedule)
    with workbench(kernel) as trials:
        for failing in (
            lambda: measure(trials, kernel, modes.WRONG),
            lambda: trials.measure({"mode": 0}, missing, samples=1, dispatches=1),
        ):
            assert isinstance(measure(trials, kernel, modes.RIGHT), Observation)
            assert trials._worker is not None  # type: ignore[attr-defined]  # behind the protocol
            assert isinstance(failing(), Failure)
            assert trials._worker is None  # type: ignore[attr-defined]  # behind the protocol


def test_a_function_that_does_not_exist_fails_at_compiling(double: DoubleKernel) -> None:
    kernel = double(modes.RIGHT)
    program = kernel.implementations["numpy"].program(kernel, {"mode": 0})
    missing = type(program)("misbehaving:nowhere", program.sizes, program.schedule)
    with workbench(kernel) as trials:
        failure = trials.measure({"mode": 0}, missing, samples=1, dispatches=1)
        assert isinstance(failure, Failure)
        assert (failure.stage, "no such function" in failure.reason) == ("compile", True)


def test_a_worker_that_answers_nonsense_costs_its_candidate(
    double: DoubleKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = double(modes.RIGHT)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, modes.RIGHT), Observation)
        with monkeypatch.context() as patch:
            patch.setattr(WorkerProcess, "ask", lambda *_, **__: Fields.of({"inputs": 5}))
            failure = measure(trials, kernel, modes.RIGHT)
        assert isinstance(failure, Failure)
        assert "nonsense" in failure.reason
        assert isinstance(measure(trials, kernel, modes.RIGHT), Observation)


def test_tuning_goes_on_past_a_crash_and_a_wrong_result(store: Store, double: DoubleKernel) -> None:
    kernel = double(modes.RIGHT, modes.KILLED, modes.WRONG, modes.TAIL_UNWRITTEN)
    result = tune(store, kernel, device="numpy")
    assert result.schedule == {"mode": modes.RIGHT}
    assert {failure.schedule["mode"] for failure in result.failures} == {
        modes.KILLED,
        modes.WRONG,
        modes.TAIL_UNWRITTEN,
    }
    assert result.winner.timing.source == "completion-clock"


def test_a_kernel_of_which_nothing_works_stores_nothing(store: Store, double: DoubleKernel) -> None:
    kernel = double(modes.EXITS, modes.NAN, default=modes.NAN)
    with pytest.raises(NothingAcceptableError):
        tune(store, kernel, device="numpy")
    assert list(store.refs()) == []
    assert list(store.ids()) == []


def test_a_device_that_nobody_offers_is_unavailable(store: Store, double: DoubleKernel) -> None:
    kernel = double(0)
    everywhere = dict.fromkeys(["numpy", "abacus"], kernel.implementations["numpy"])
    kernel = dataclasses.replace(kernel, implementations=everywhere)
    with pytest.raises(DeviceUnavailableError, match=r"castore\.devices"):
        tune(store, kernel, device="abacus")


@pytest.mark.parametrize("mode", [modes.STASHES, modes.RIGHT])
def test_no_dispatch_finds_what_another_one_left(double: DoubleKernel, mode: int) -> None:
    """Every call gets maps of its own, or the stash would come back as a wrong result."""
    kernel = double(modes.RIGHT, modes.STASHES)
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, mode, dispatches=3), Observation)


def integers(double: DoubleKernel, bits: int) -> Kernel:
    kernel = double(0, 1)
    return dataclasses.replace(
        kernel,
        sizes={"n": 64, "bits": bits},
        signature=lambda sizes: Signature(
            (ArraySpec("x", "float32", (sizes["n"],)),), ArraySpec("y", "int32", (sizes["n"],))
        ),
        make_inputs=lambda sizes, _: {
            "x": np.full(sizes["n"], sizes["bits"], np.uint32).view(np.float32)
        },
        oracle=deferred("misbehaving:constant_oracle"),
        tolerance=Tolerance(0.0, 0.0),
        implementations={
            "numpy": PythonImplementation(
                "misbehaving:constant", kernel.implementations["numpy"].space
            )
        },
    )


@pytest.mark.parametrize("dispatch", [FIRST, LAST])
def test_a_result_that_looks_like_the_poison_is_accepted_from_who_computes_it(
    double: DoubleKernel, dispatch: str
) -> None:
    kernel = integers(double, pattern("int32", dispatch))
    with workbench(kernel) as trials:
        assert isinstance(measure(trials, kernel, 0), Observation)
        idle = measure(trials, kernel, 1)
        assert isinstance(idle, Failure)
        assert "64 of 64 elements were not written" in idle.reason


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


def test_an_output_that_is_not_a_file_of_the_right_size_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("right")
    (tmp_path / "right").write_bytes(b"1234")
    assert read_output(tmp_path / "right", 4) == b"1234"
    for name in ("long", "pipe", "link"):
        with pytest.raises(MalformedError):
            read_output(tmp_path / name, 4)


def test_a_device_that_is_another_one_in_the_worker_ends_the_tuning(
    store: Store, double: DoubleKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.forget()
    kernel = double(modes.RIGHT)
    device = WorkerDevice("numpy")
    told = device.topology()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "31")
    with pytest.raises(DeviceUnavailableError, match=r"topology\.software\.blas_threads"):
        tune(store, kernel, device=device)
    assert list(store.refs("tuning")) == []
    result = tune(store, kernel, device="numpy")
    assert result.topology != castore.object_id(castore.encode(told))


def test_a_device_that_is_gone_when_a_candidate_is_measured_says_so_once(
    double: DoubleKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = double(modes.RIGHT)
    monkeypatch.setattr(WorkerDevice, "topology", lambda _: {"silicon": {}, "software": {}})
    device = WorkerDevice("abacus")
    trials = device.trials(Job.of(kernel, seed=1), policy=MeasuringPolicy(), time_limit_s=20)
    with trials as bench, pytest.raises(DeviceUnavailableError) as caught:
        measure(bench, kernel, modes.RIGHT)
    assert str(caught.value) == (
        "device abacus cannot be used: no entry point of that name in castore.devices"
    )


@pytest.mark.parametrize("time_limit_s", [1e300, float("inf")])
def test_a_time_limit_may_be_longer_than_any_clock_counts(
    double: DoubleKernel, time_limit_s: float
) -> None:
    kernel = double(modes.RIGHT)
    with workbench(kernel, time_limit_s=time_limit_s) as trials:
        assert isinstance(measure(trials, kernel, modes.RIGHT), Observation)


def test_a_worker_that_is_gone_is_reported_with_its_last_words() -> None:
    worker = WorkerProcess()
    os.kill(worker._process.pid, 9)
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        worker.ask({"op": "describe", "device": "numpy"}, time_limit_s=20)
    worker.kill()


def test_a_message_that_is_not_understood_is_answered_with_a_failure() -> None:
    worker = WorkerProcess()
    try:
        assert "unknown op" in worker.ask({"op": "dance"}, time_limit_s=20).text("failure")
        reply = worker.ask({"op": "measure", "program": {}, "samples": 1}, time_limit_s=20)
        assert "no job is loaded" in reply.text("failure")
    finally:
        worker.kill()


def test_a_file_in_the_current_folder_cannot_stand_in_for_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "castore.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    worker = WorkerProcess()
    try:
        assert worker.ask({"op": "describe", "device": "numpy"}, time_limit_s=30).has("topology")
    finally:
        worker.kill()
