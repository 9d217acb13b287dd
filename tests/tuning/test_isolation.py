"""Candidates that misbehave, each in a real worker process, cost nothing but themselves."""

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from castore.store.store import Store
from castore.tuning import DeviceUnavailableError, Kernel, NothingAcceptableError, tune
from castore.tuning.device import Observation, Trials
from castore.tuning.fields import Fields
from castore.tuning.job import Job
from castore.tuning.records import Failure, MeasuringPolicy
from castore.tuning.worker_device import WorkerDevice
from castore.tuning.worker_process import WorkerLostError, WorkerProcess

from .candidates import misbehaving as modes

DoubleKernel = Callable[..., Kernel]


@contextmanager
def workbench(kernel: Kernel, *, time_limit_s: float = 20.0) -> Iterator[Trials]:
    job = Job.of(kernel, seed=1)
    device = WorkerDevice("numpy")
    with device.trials(job, policy=MeasuringPolicy(), time_limit_s=time_limit_s) as trials:
        yield trials


def measure(trials: Trials, kernel: Kernel, mode: int) -> Observation | Failure:
    schedule = {"mode": mode}
    program = kernel.implementations["numpy"].program(kernel, schedule)
    return trials.measure(schedule, program, samples=2, dispatches=1)


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
    modes.PAST_END: ("oracle", "wrote outside its output"),
    modes.BEFORE_START: ("oracle", "wrote outside its output"),
}


def test_every_misbehaviour_is_rejected_with_its_reason_and_the_next_candidate_works(
    double: DoubleKernel,
) -> None:
    kernel = double(*range(18))
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


def test_a_worker_ends_with_its_tuner_even_inside_a_candidate(
    double: DoubleKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging"
    monkeypatch.setenv("HANGING", str(hanging))
    kernel = double(modes.HANGS, default=modes.HANGS)
    with workbench(kernel) as trials:
        worker, _ = trials._running()  # type: ignore[attr-defined]  # looks behind the protocol
        process = worker._process
        failures: list[Observation | Failure] = []
        asking = threading.Thread(
            target=lambda: failures.append(measure(trials, kernel, modes.HANGS))
        )
        asking.start()
        while not hanging.exists():
            time.sleep(0.01)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=20) == 0
        asking.join()
        assert isinstance(failures[0], Failure)


def test_a_worker_that_is_gone_is_reported_with_its_last_words(tmp_path: Path) -> None:
    worker = WorkerProcess(str(tmp_path))
    os.kill(worker._process.pid, 9)
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        worker.ask({"op": "describe", "device": "numpy"}, time_limit_s=20)
    worker.kill()


def test_a_message_that_is_not_understood_is_answered_with_a_failure(tmp_path: Path) -> None:
    worker = WorkerProcess(str(tmp_path))
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
    worker = WorkerProcess(str(tmp_path))
    try:
        assert worker.ask({"op": "describe", "device": "numpy"}, time_limit_s=30).has("topology")
    finally:
        worker.kill()
