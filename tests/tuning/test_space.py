import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.tuning.space import POOL_MAX, Knob, Schedule, ScheduleSpace, schedule_order, subset

KNOBS = st.lists(
    st.lists(st.integers(0, 64), min_size=1, max_size=5, unique=True), min_size=1, max_size=4
)


def space_of(values: list[list[int]]) -> ScheduleSpace:
    knobs = tuple(Knob(f"knob_{at}", tuple(options)) for at, options in enumerate(values))
    return ScheduleSpace(knobs, {knob.name: knob.values[-1] for knob in knobs})


def keys(schedules: list[Schedule]) -> set[tuple[tuple[str, int], ...]]:
    return {schedule_order(schedule) for schedule in schedules}


@given(KNOBS, st.integers(1, 60), st.text(max_size=8))
def test_a_subset_is_legal_without_repetition_within_budget_and_holds_the_default(
    values: list[list[int]], budget: int, seed_text: str
) -> None:
    space = space_of(values)
    schedules = list(space.schedules({}))
    default = space.default_schedule({})
    chosen = subset(schedules, default, budget=budget, seed_text=seed_text)
    assert len(chosen) == len(keys(chosen)) == min(budget, len(schedules))
    assert keys(chosen) <= keys(schedules)
    assert chosen[0] == default


@given(KNOBS, st.text(max_size=8), st.randoms())
def test_a_subset_does_not_depend_on_the_order_of_what_it_is_given(
    values: list[list[int]], seed_text: str, random: object
) -> None:
    space = space_of(values)
    schedules = list(space.schedules({}))
    default = space.default_schedule({})
    want = subset(schedules, default, budget=7, seed_text=seed_text)
    random.shuffle(schedules)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert subset(schedules, default, budget=7, seed_text=seed_text) == want


@given(KNOBS, st.text(max_size=8))
def test_a_subset_leaves_no_value_of_any_knob_out(values: list[list[int]], seed_text: str) -> None:
    space = space_of(values)
    schedules = list(space.schedules({}))
    budget = 1 + sum(len(options) for options in values)
    chosen = subset(schedules, space.default_schedule({}), budget=budget, seed_text=seed_text)
    for at, options in enumerate(values):
        assert {schedule[f"knob_{at}"] for schedule in chosen} == set(options)


def test_a_subset_does_not_favour_one_end_of_a_knob() -> None:
    space = space_of([[1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16], [0, 1, 2, 3]])
    chosen = subset(
        list(space.schedules({})), space.default_schedule({}), budget=24, seed_text="kernel"
    )
    counts = [sum(s["knob_0"] == value for s in chosen) for value in (1, 2, 4, 8, 16, 32)]
    assert max(counts) - min(counts) <= 1


def test_constraints_over_sizes_and_knobs_leave_schedules_out() -> None:
    space = ScheduleSpace((Knob("tile", (8, 16, 32)),), {"tile": 8}, ("tile <= n",))
    assert [s["tile"] for s in space.schedules({"n": 16})] == [8, 16]
    assert not space.admits({"tile": 32}, {"n": 16})
    assert not space.admits({"tile": 9}, {"n": 16})
    assert not space.admits({"tile": 8, "extra": 1}, {"n": 16})


def test_a_default_outside_the_space_is_refused() -> None:
    space = ScheduleSpace((Knob("tile", (8,)),), {"tile": 16})
    with pytest.raises(MalformedError, match="not in the schedule space"):
        space.default_schedule({})


def test_the_digest_ignores_orders_and_sees_every_change() -> None:
    one = ScheduleSpace((Knob("a", (1, 2)), Knob("b", (3,))), {"a": 1, "b": 3}, ("a < b", "b > 0"))
    same = ScheduleSpace((Knob("b", (3,)), Knob("a", (2, 1))), {"b": 3, "a": 1}, ("b > 0", "a < b"))
    assert one.digest() == same.digest()
    others = [
        ScheduleSpace((Knob("a", (1, 2, 4)), Knob("b", (3,))), one.default, one.constraints),
        ScheduleSpace(one.knobs, {"a": 2, "b": 3}, one.constraints),
        ScheduleSpace(one.knobs, one.default, ("a < b",)),
    ]
    assert len({one.digest(), *(other.digest() for other in others)}) == 4


HUGE = tuple(Knob(f"knob_{at}", tuple(range(16))) for at in range(12))
ZEROS = {knob.name: 0 for knob in HUGE}


def test_a_space_that_could_never_be_walked_through_gives_a_pool_at_once() -> None:
    space = ScheduleSpace(HUGE, ZEROS, ("knob_0 + knob_1 < 16",))
    pool = space.pool({}, seed_text="kernel")
    assert pool[0] == ZEROS
    assert len(pool) == len(keys(pool)) == POOL_MAX
    assert all(space.admits(schedule, {}) for schedule in pool)
    assert pool == space.pool({}, seed_text="kernel") != space.pool({}, seed_text="other")
    for knob in HUGE[2:]:
        counts = [sum(each[knob.name] == value for each in pool) for value in knob.values]
        assert min(counts) > POOL_MAX // 16 // 2
    assert len(subset(pool, ZEROS, budget=8, seed_text="kernel")) == 8


def test_a_huge_space_that_admits_next_to_nothing_gives_a_small_pool() -> None:
    space = ScheduleSpace(HUGE, ZEROS, ("knob_0 * 1 < 1", *(f"knob_{at} < 1" for at in range(12))))
    assert space.pool({}, seed_text="kernel") == [ZEROS]


@given(KNOBS, st.text(max_size=8))
def test_the_pool_of_a_small_space_is_the_whole_space(
    values: list[list[int]], seed_text: str
) -> None:
    space = space_of(values)
    pool = space.pool({}, seed_text=seed_text)
    assert len(pool) == len(list(space.schedules({})))
    assert keys(pool) == keys(list(space.schedules({})))


_SAMPLE = """
from castore.tuning import kernels
from castore.tuning.candidates import candidates_for
for kernel in kernels.BUILT_IN:
    found, _ = candidates_for(kernel, "wgpu", {"software": {}}, candidates_max=10)
    print([c.schedule for c in found])
    for implementation in kernel.implementations.values():
        print(implementation.source_digest(), implementation.space.digest())
"""


def test_candidates_and_digests_do_not_depend_on_the_hash_seed() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", _SAMPLE],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(seen) == 1


@pytest.mark.parametrize("values", [(), (1, 1), (1.5,), (True,), ("8",), (-1,), (2**63,), (None,)])
def test_a_knob_refuses_values_that_no_schedule_can_hold(values: tuple[object, ...]) -> None:
    with pytest.raises(MalformedError, match=r"\.knobs\.width"):
        Knob("width", values)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("name", ["", "two words", "3d", 3])
def test_a_knob_needs_a_name_that_expressions_can_use(name: object) -> None:
    with pytest.raises(MalformedError, match="needs a name"):
        Knob(name, (1,))  # type: ignore[arg-type]  # that is the point
