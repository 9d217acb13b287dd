"""The oracle's verdict: is what a candidate wrote what the kernel means?

Expected values are float64 and made before any candidate exists. The whole output
is compared. It was filled with a pattern before the run, so an element that was
never written shows as itself and not as a neighbour's luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from castore.tuning.records import ComparisonReport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from castore.tuning.kernel import Tolerance


@dataclass(frozen=True, slots=True)
class Verdict:
    """The oracle's answer for one output.

    Attributes:
        report: The figures.
        reason: Why the output is wrong; empty when it is right.
    """

    report: ComparisonReport
    reason: str


def judge(
    got: NDArray[Any], want: NDArray[np.float64], tolerance: Tolerance, *, poison: int
) -> Verdict:
    """Compare all of an output with what the oracle expects.

    An element is right when abs(got - want) <= absolute + relative * abs(want). An expected
    infinity or NaN must be met exactly; zeros of either sign are equal.

    Args:
        got: The output, any shape, four-byte elements.
        want: Expected values of the same shape.
        tolerance: The allowed error.
        poison: The bits that every element had before the run.
    """
    # Whatever a candidate wrote is only compared: overflow and NaN are answers here.
    with np.errstate(all="ignore"):
        got_f64, want = got.astype(np.float64).ravel(), want.ravel()
        error = np.abs(got_f64 - want)
        right = error <= tolerance.absolute + tolerance.relative * np.abs(want)
        right &= np.isfinite(want)
        right |= (got_f64 == want) | (np.isnan(got_f64) & np.isnan(want))
        report = _report(error, want, right)
    if report.mismatch_count == 0:
        return Verdict(report, "")
    unwritten = ~right & (got.ravel().view(np.uint32) == poison)
    return Verdict(report, _reason(got_f64, want, right, unwritten))


def _report(
    error: NDArray[np.float64], want: NDArray[np.float64], right: NDArray[np.bool_]
) -> ComparisonReport:
    wrong = np.flatnonzero(~right)
    finite = np.isfinite(error)
    compared = finite & (want != 0)
    # Beside the smallest of numbers any error is beyond measure; a report holds finite ones.
    relative = np.minimum(error[compared] / np.abs(want[compared]), np.finfo(np.float64).max)
    return ComparisonReport(
        compared=int(want.size),
        mismatch_count=int(wrong.size),
        first_mismatch=int(wrong[0]) if wrong.size else None,
        absolute_error_max=float(error[finite].max(initial=0.0)),
        relative_error_max=float(relative.max(initial=0.0)),
    )


def _reason(
    got: NDArray[np.float64],
    want: NDArray[np.float64],
    right: NDArray[np.bool_],
    unwritten: NDArray[np.bool_],
) -> str:
    if unwritten.any():
        first = int(np.flatnonzero(unwritten)[0])
        return (
            f"{int(unwritten.sum())} of {want.size} elements were not written, or build on what "
            f"was there before, first at {first}"
        )
    wrong = np.flatnonzero(~right)
    at = int(wrong[0])
    return (
        f"{wrong.size} of {want.size} elements are wrong, first at {at}: "
        f"got {float(got[at])!r}, want {float(want[at])!r}"
    )
