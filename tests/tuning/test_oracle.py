import numpy as np
import pytest

from castore.tuning import Tolerance
from castore.tuning.oracle import Verdict
from castore.tuning.oracle import judge as judged
from castore.tuning.poison import FIRST, LAST, TEMPTED, TOLD, almost, pattern, poison

EXACT = Tolerance(0.0, 0.0)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def judge(got: np.ndarray, want: np.ndarray, tolerance: Tolerance) -> Verdict:
    return judged(got, want, tolerance, poison=pattern("float32", FIRST))


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
    bits = pattern("float32", FIRST)
    got = np.frombuffer(f32(1).tobytes() + poison(bits, 4), np.float32)
    assert "1 of 2 elements were not written" in judge(got, f64(1, 2), EXACT).reason
    assert "got nan, want 2.0" in judge(f32(1, np.nan), f64(1, 2), EXACT).reason
    assert judge(f32(1, np.nan), f64(1, np.nan), EXACT).reason == ""


def test_the_patterns_of_a_type_differ_in_what_they_would_be_right_for() -> None:
    for dtype in ("float32", "int32", "uint32"):
        found = [np.array([pattern(dtype, name)], np.uint32).view(dtype) for name in (FIRST, LAST)]
        for value in found:
            want = value.astype(np.float64)
            right = [judged(got, want, Tolerance(0, 0.01), poison=0).reason for got in found]
            assert right.count("") == 1


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("dispatch", TOLD)
def test_an_integer_that_is_the_pattern_and_right_is_right(dtype: str, dispatch: str) -> None:
    bits = pattern(dtype, dispatch)
    got = np.frombuffer(poison(bits, 12), dtype)
    want = got.astype(np.float64)
    assert judged(got, want, EXACT, poison=bits).reason == ""
    wrong = judged(got, want + np.array([0.0, 1.0, 0.0]), EXACT, poison=bits)
    assert "1 of 3 elements were not written" in wrong.reason
    assert "first at 1" in wrong.reason


def test_an_almost_right_result_lacks_elements_that_the_other_one_has() -> None:
    for count in (1, 2, 5, 16, 17, 100):
        result = np.arange(count, dtype=np.uint32)
        lacking = []
        for start in TEMPTED.values():
            made = np.frombuffer(almost(result.tobytes(), 0xA5A5A5A5, start), np.uint32)
            changed = np.flatnonzero(made != result)
            assert 1 <= changed.size <= -(-count // 16)
            lacking.append(set(changed.tolist()))
        assert count == 1 or not set.intersection(*lacking)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (f32(3e38), f64(5e-324)),
        (f32(np.inf), f64(-1.7e308)),
        (np.array([0x7FA00001], np.uint32).view(np.float32), f64(1)),
        (f32(-3e38), f64(1.7e308)),
    ],
    ids=["relative error overflows", "infinity", "signalling NaN", "error overflows"],
)
def test_extreme_values_are_compared_without_a_warning(got: np.ndarray, want: np.ndarray) -> None:
    """All warnings are errors here."""
    report = judge(got, want, Tolerance(0.0, 1e-6)).report
    assert report.mismatch_count == 1
    assert np.isfinite([report.absolute_error_max, report.relative_error_max]).all()
