"""Whether GPU timestamps can be trusted is decided from readings alone."""

import pytest

from castore.integrations.wgpu_device import clock_from
from castore.tuning import Clock

Reading = tuple[tuple[int, int], tuple[int, int]]


def readings(tick_ns: float, *, overhead_ns: int = 500_000) -> list[Reading]:
    short, long = 20_000_000, 60_000_000
    return [
        (
            (round(short / tick_ns), short + overhead_ns),
            (round(long / tick_ns), long + overhead_ns),
        )
    ] * 5


def test_ticks_of_about_a_nanosecond_are_nanoseconds() -> None:
    assert clock_from(readings(1.0)) == Clock("gpu-timestamp", 1.0)
    assert clock_from(readings(1.1)) == Clock("gpu-timestamp", 1.0)


def test_other_ticks_are_calibrated() -> None:
    clock = clock_from(readings(52.08))
    assert clock.source == "gpu-timestamp"
    assert clock.tick_ns == pytest.approx(52.08, rel=1e-3)


def test_one_reading_that_something_got_in_the_way_of_does_not_decide() -> None:
    assert clock_from([*readings(1.0)[:4], *readings(3.0)[:1]]) == Clock("gpu-timestamp", 1.0)


@pytest.mark.parametrize(
    "untrusted",
    [
        [((0, 100), (0, 300))] * 3,
        [((100, 100), (50, 300))] * 3,
        [((-(2**63), 100), (300, 300))] * 3,
        [((100, 100), (300, 90))] * 3,
        [*readings(1.0)[:3], *readings(2.0)[:2]],
    ],
    ids=["zero", "backwards", "wrapped", "clock", "disagree"],
)
def test_ticks_that_cannot_be_trusted_leave_the_completion_clock(untrusted: list[Reading]) -> None:
    assert clock_from(untrusted) == Clock("completion-clock")
