"""A workbench for single candidates, in real worker processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from castore.tuning import Kernel
from castore.tuning.device import Observation, Trials
from castore.tuning.job import Job
from castore.tuning.records import Failure, MeasuringPolicy
from castore.tuning.worker_device import WorkerDevice

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
