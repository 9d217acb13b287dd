"""Schedule spaces: knobs, the constraints between them, and which candidates to try.

A space that is larger than the budget is sampled. The first so many of a sorted
list would favour one end of a knob (small workgroups, say), so the sample is
balanced instead: each step takes the schedule whose knob values were taken least
so far. It depends on nothing but the space, the budget and a seed text, and
always holds the default schedule. A space that is too large to be walked through
is sampled twice: first by chance, into a pool.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from blake3 import blake3

from castore.errors import MalformedError
from castore.format.canonical import encode
from castore.format.value import Value
from castore.tuning.checks import check_integer, check_mapping, check_tuple
from castore.tuning.expression import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Schedule: TypeAlias = dict[str, int]
"""What a candidate sets each knob to, by name in sorted order; never changed once made."""

_VALUE_MAX = 2**63 - 1

POOL_MAX = 4096
"""No more schedules than this are looked at, drawn evenly by hash from larger spaces."""

_WALKED_MAX = 2**16
"""No more combinations of values than this are tried against the constraints."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One parameter of a schedule.

    Attributes:
        name: A name that WGSL and expressions can use.
        values: The values it may take: integers of at least 0, each once.
    """

    name: str
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what could be measured but never be stored or passed to a device."""
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise MalformedError(".knobs", f"a knob needs a name, got {self.name!r}")
        where = f".knobs.{self.name}"
        check_tuple(where, self.values, "integers")
        for value in self.values:
            if type(value) is not int or not 0 <= value <= _VALUE_MAX:
                raise MalformedError(where, f"expected integers of at least 0, got {value!r}")
        if not self.values or len(set(self.values)) < len(self.values):
            raise MalformedError(where, "expected at least one value, and each value once")


@dataclass(frozen=True, slots=True)
class ScheduleSpace:
    """The schedules that a kernel allows, whatever the device.

    Attributes:
        knobs: The parameters.
        default: The schedule to use where nothing has been tuned; itself in the space.
        constraints: Expressions over the knobs and the problem's sizes that must all hold.
    """

    knobs: tuple[Knob, ...]
    default: Mapping[str, int]
    constraints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse fields of another shape, and a default that does not fit the knobs.

        Raises:
            MalformedError: A field is not what it should be, a knob is there twice, or the
                default lacks one or has another.
        """
        check_tuple(".knobs", self.knobs, "Knobs")
        for knob in self.knobs:
            if not isinstance(knob, Knob):
                raise MalformedError(".knobs", f"expected a Knob, got {knob!r}")
        names = [knob.name for knob in self.knobs]
        if len(set(names)) < len(names):
            raise MalformedError(".knobs", f"a name is there twice: {', '.join(names)}")
        check_mapping(".default", self.default)
        if self.default.keys() != set(names):
            raise MalformedError(
                ".default",
                f"expected a value for each of {sorted(names)}, got {dict(self.default)}",
            )
        for name, value in self.default.items():
            check_integer(f".default.{name}", value, least=0)
        check_tuple(".constraints", self.constraints, "expressions")

    @property
    def names(self) -> frozenset[str]:
        """The names of the knobs."""
        return frozenset(knob.name for knob in self.knobs)

    def schedules(self, sizes: Mapping[str, int]) -> Iterator[Schedule]:
        """Yield every schedule that keeps the constraints, in a fixed order."""
        knobs = sorted(self.knobs, key=lambda knob: knob.name)
        names = [knob.name for knob in knobs]
        for values in itertools.product(*(sorted(knob.values) for knob in knobs)):
            schedule = dict(zip(names, values, strict=True))
            if self._holds(schedule, sizes):
                yield schedule

    def pool(self, sizes: Mapping[str, int], *, seed_text: str) -> list[Schedule]:
        """Return the schedules to choose from: at most `POOL_MAX`, the default among them.

        Up to 65,536 combinations of knob values are all tried against the constraints. Of more,
        that many are drawn, so that constraints which admit few of them leave a small pool.

        Args:
            sizes: The problem's sizes.
            seed_text: Decides what is drawn; the same text, the same answer.

        Raises:
            MalformedError: The default is not in the space for these sizes.
        """
        default = self.default_schedule(sizes)
        combinations = math.prod(len(knob.values) for knob in self.knobs)
        is_small = combinations <= _WALKED_MAX
        found = self.schedules(sizes) if is_small else self._drawn(sizes, seed_text)
        others = sorted(
            (schedule for schedule in found if schedule != default),
            key=lambda schedule: _lot(schedule, seed_text),
        )
        return [default, *others[: POOL_MAX - 1]]

    def _drawn(self, sizes: Mapping[str, int], seed_text: str) -> Iterator[Schedule]:
        knobs = sorted((knob.name, sorted(knob.values)) for knob in self.knobs)
        admitted: set[tuple[int, ...]] = set()
        for draw in range(_WALKED_MAX):
            lots = blake3(f"castore draw 1 {draw} {seed_text}".encode()).digest(8 * len(knobs))
            values = tuple(
                options[int.from_bytes(lots[8 * at : 8 * at + 8], "big") % len(options)]
                for at, (_, options) in enumerate(knobs)
            )
            schedule = {name: value for (name, _), value in zip(knobs, values, strict=True)}
            if values not in admitted and self._holds(schedule, sizes):
                admitted.add(values)
                yield schedule
            if len(admitted) == POOL_MAX:
                return

    def admits(self, schedule: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        """Tell whether `schedule` is one of this space."""
        allowed = {knob.name: knob.values for knob in self.knobs}
        return (
            schedule.keys() == allowed.keys()
            and all(value in allowed[name] for name, value in schedule.items())
            and self._holds(schedule, sizes)
        )

    def default_schedule(self, sizes: Mapping[str, int]) -> Schedule:
        """Return the default schedule.

        Raises:
            MalformedError: It is not in the space for these sizes.
        """
        if not self.admits(self.default, sizes):
            names = {**sizes, **self.default}
            reasons = [
                *(
                    f"{knob.name!r} may not be {self.default[knob.name]}"
                    for knob in self.knobs
                    if self.default[knob.name] not in knob.values
                ),
                *(
                    f"it breaks {text!r} of .constraints"
                    for text in self.constraints
                    if not evaluate(text, names)
                ),
            ]
            raise MalformedError(
                ".default", f"{dict(self.default)} is not in the schedule space: {reasons[0]}"
            )
        return dict(sorted(self.default.items()))

    def digest(self) -> str:
        """Return the BLAKE3 of the space: its knobs, its default and its constraints."""
        knobs: dict[str, Value] = {
            knob.name: list[Value](sorted(knob.values)) for knob in self.knobs
        }
        default: dict[str, Value] = dict(self.default)
        constraints: list[Value] = list[Value](sorted(self.constraints))
        space: dict[str, Value] = {"knobs": knobs, "default": default, "constraints": constraints}
        return blake3(encode(space)).hexdigest()

    def _holds(self, schedule: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        names = {**sizes, **schedule}
        return all(evaluate(constraint, names) for constraint in self.constraints)


def schedule_order(schedule: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the key by which schedules are sorted and ties are broken: values by knob name."""
    return tuple(sorted(schedule.items()))


def subset(
    schedules: Sequence[Schedule], default: Schedule, *, budget: int, seed_text: str
) -> list[Schedule]:
    """Return at most `budget` of the schedules, spread evenly over the knobs' values.

    Args:
        schedules: All that could be tried, without repetition.
        default: Always first in the answer when it is among them.
        budget: The most to return, at least 1.
        seed_text: Decides between equally good choices; the same text, the same answer.
    """
    first = [default] if default in schedules else []
    pool = sorted(
        (schedule for schedule in schedules if schedule != default),
        key=lambda schedule: _lot(schedule, seed_text),
    )
    if len(schedules) <= budget:
        return first + sorted(pool, key=schedule_order)
    return _balanced(first, pool, budget)


def _balanced(chosen: list[Schedule], pool: list[Schedule], budget: int) -> list[Schedule]:
    taken = Counter(item for schedule in chosen for item in schedule.items())
    chosen, pool = list(chosen), list(pool)
    while pool and len(chosen) < budget:
        best = min(range(len(pool)), key=lambda at: _crowding(pool[at], taken))
        schedule = pool.pop(best)
        taken.update(schedule.items())
        chosen.append(schedule)
    return chosen


def _crowding(schedule: Schedule, taken: Counter[tuple[str, int]]) -> int:
    # Squares: a value seen ten times weighs more than ten values seen once, so that
    # no value of any knob is left out while another piles up.
    return sum(taken[item] ** 2 - (taken[item] == 0) for item in schedule.items())


def _lot(schedule: Schedule, seed_text: str) -> bytes:
    return blake3(seed_text.encode() + b"\0" + encode(dict(schedule))).digest()
