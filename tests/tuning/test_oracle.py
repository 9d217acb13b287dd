import numpy as np
import pytest

from castore.tuning import Tolerance
from castore.tuning.oracle import POISON, judge, poison

EXACT = Tolerance(0.0, 0.0)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_an_error_within_absolute_plus_relative_is_right_and_one_beyond_is_wrong() -> None:
    tolerance = Tolerance(absolute=0.25, relative=0.125)
    assert judge(f32(8 + 1.25), f64(8), tolerance).reason == ""
    assert judge(f32(8 + 1.5), f64(8), tolerance).report.mismatch_count == 1


def test_the_tolerance_is_relative_to_what_is_wanted() -> None:
    tolerance = Tolerance(absolute=0.0, relative=0.5)
    assert judge(f32(0.5), f64(1), tolerance).reason == ""
    assert judge(f32(1), f64(0.5), tolerance).reason != ""


@pytest.mark.parametrize(
    ("got", "want", "is_right"),
    [
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (1e30, np.inf, False),
        (np.inf, 1.0, False),
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (-0.0, 0.0, True),
        (1e-45, 1e-45, False),
        (float(np.float32(1e-45)), float(np.float32(1e-45)), True),
    ],
)
def test_special_values_are_compared_as_what_they_are(
    got: float, want: float, *, is_right: bool
) -> None:
    relative = 0.5 if np.isinf(want) or np.isinf(got) else 0.0
    verdict = judge(f32(got), f64(want), Tolerance(0.0, relative))
    assert (verdict.reason == "") is is_right


def test_the_report_counts_all_elements_and_names_the_first_wrong_one() -> None:
    report = judge(f32(1, 2, 9, 4, 8), f64(1, 2, 3, 4, 4), EXACT).report
    assert (report.compared, report.mismatch_count, report.first_mismatch) == (5, 2, 2)
    assert (report.absolute_error_max, report.relative_error_max) == (6.0, 2.0)


def test_an_unwritten_element_is_told_apart_from_a_computed_nan() -> None:
    got = np.frombuffer(f32(1).tobytes() + POISON, np.float32)
    assert "1 of 2 elements were not written" in judge(got, f64(1, np.nan), EXACT).reason
    assert judge(f32(1, np.nan), f64(1, np.nan), EXACT).reason == ""


def test_poison_is_nan_in_every_element() -> None:
    assert np.isnan(np.frombuffer(poison(64), np.float32)).all()
