import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.tuning.fields import Fields
from castore.tuning.statistics import SYNTHETIC, TimingSummary, good_samples, quantile, summarise

SAMPLES = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)


def summary(samples: list[int], dispatches: int = 1) -> TimingSummary:
    return summarise(samples, source=SYNTHETIC, dispatches=dispatches, rejected_count=0)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, -math.inf, 2**64 - 1, 0.25])
def test_an_impossible_sample_is_rejected_and_counted(bad: float) -> None:
    assert good_samples([5, bad, 7]) == ([5, 7], 1)


def test_the_median_is_the_lower_middle_and_p95_the_ceiling_rank() -> None:
    twenty = summary(list(range(1, 21)))
    assert (twenty.minimum_ns, twenty.median_ns, twenty.p95_ns) == (1, 10, 19)
    assert summary(list(range(1, 22))).p95_ns == 20
    assert summary([4, 1, 3, 2]).median_ns == 2


@given(SAMPLES)
def test_every_figure_is_a_sample_and_they_are_in_order(samples: list[int]) -> None:
    made = summary(samples)
    figures = [made.minimum_ns, made.median_ns, made.upper_quartile_ns, made.p95_ns]
    assert set(figures) <= set(samples)
    assert figures == sorted(figures)


@given(SAMPLES, st.sampled_from([0.25, 0.5, 0.75, 0.95, 1.0]))
def test_a_quantile_has_its_share_of_the_samples_at_or_below(
    samples: list[int], share: float
) -> None:
    found = quantile(sorted(samples), share)
    assert sum(sample <= found for sample in samples) >= share * len(samples) - 1e-9
    assert sum(sample < found for sample in samples) < share * len(samples) + 1e-9


@given(SAMPLES, st.randoms())
def test_the_order_of_the_samples_does_not_matter(samples: list[int], random: object) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert summary(shuffled) == summary(samples)


def test_figures_are_per_dispatch() -> None:
    assert summary([1000, 2000, 3000], dispatches=10).median_ns == 200


@given(SAMPLES, st.integers(1, 100))
def test_a_summary_comes_back_from_its_plain_form(samples: list[int], dispatches: int) -> None:
    made = summary(samples, dispatches)
    assert TimingSummary.from_fields(Fields.of(made.to_value())) == made
