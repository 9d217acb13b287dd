"""Which schedules of a kernel to try on a device.

Nothing here takes longer for a larger space: no more than `space.POOL_MAX` schedules are
looked at, and only those that are tried are kept as programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.tuning.limits import limits_of, violation
from castore.tuning.records import Failure
from castore.tuning.search import Candidate
from castore.tuning.space import subset

if TYPE_CHECKING:
    from castore.format.value import Value
    from castore.tuning.kernel import Kernel
    from castore.tuning.space import Schedule

SKIPPED_MAX = 64
"""Of more skipped schedules than this only the number is kept."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Schedules that were looked at and break a limit of the adapter.

    Attributes:
        count: How many there are.
        first: The first `SKIPPED_MAX` of them.
    """

    count: int
    first: tuple[Failure, ...]


def candidates_for(
    kernel: Kernel, implementation: str, topology: dict[str, Value], *, candidates_max: int
) -> tuple[list[Candidate], Skipped]:
    """Return the candidates to try, the default first, and the schedules that break a limit.

    Args:
        kernel: The kernel with its problem.
        implementation: The kind of device.
        topology: Whose limits count.
        candidates_max: The most to return.
    """
    chosen = kernel.implementations[implementation]
    limits = limits_of(topology)
    default = chosen.space.default_schedule(kernel.sizes)
    fitting: list[Schedule] = []
    first: list[Failure] = []
    looked_at = 0
    for schedule in chosen.space.pool(kernel.sizes, seed_text=kernel.text):
        looked_at += 1
        broken = violation(chosen.program(kernel, schedule), limits)
        if broken is None:
            fitting.append(schedule)
        elif len(first) < SKIPPED_MAX:
            first.append(Failure(schedule, "limits", broken))
    tried = subset(fitting, default, budget=candidates_max, seed_text=kernel.text)
    candidates = [Candidate(schedule, chosen.program(kernel, schedule)) for schedule in tried]
    return candidates, Skipped(looked_at - len(fitting), tuple(first))
