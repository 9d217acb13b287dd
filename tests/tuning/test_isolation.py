"""Candidates that misbehave, each in a real worker process, cost nothing but themselves."""

import dataclasses
import os
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
from castore.tuning.device import Observation
from castore.tuning.fields import Fields
from castore.tuning.job import Job
from castore.tuning.poison import FIRST, LAST, pattern
from castore.tuning.python_source import deferred
from castore.tuning.records import Failure, MeasuringPolicy
from castore.tuning.worker_device import WorkerDevice
from castore.tuning.worker_device import _read as read_output
from castore.tuning.worker_process import WorkerLostError, WorkerProcess

from .candidates import misbehaving as modes
from .workbench import DoubleKernel, measure, workbench

REJECTED = {
    modes.KILLED: ("worker", "SIGKILL"),
    modes.EXITS: ("worker", "exit status 3"),
    modes.RAISES: ("run", "RuntimeError: the candidate gave up (misbehaving.py:"),
    modes.RAISES_A_SURROGATE: ("run", r"RuntimeError: no file \udcff"),
    modes.RAISES_THE_UNSPEAKABLE: ("run", "UnspeakableError"),
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
    with pytest.raises(DeviceUnavailableError, match="known are numpy, wgpu"):
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
        "device abacus cannot be used: there is none of that name; known are numpy, wgpu"
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
