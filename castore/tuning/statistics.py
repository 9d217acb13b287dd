"""Timing statistics over raw samples, in whole nanoseconds.

Ranks, never means: one sample in a thousand may be hundreds of times slower, or
wrong. The median is the lower middle and the other quantiles take the ceiling
rank, so every figure is a sample that was really measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from castore.format.value import Value
    from castore.tuning.fields import Fields

GPU_TIMESTAMP = "gpu-timestamp"
COMPLETION_CLOCK = "completion-clock"
SYNTHETIC = "synthetic"
TIMING_SOURCES = (GPU_TIMESTAMP, COMPLETION_CLOCK, SYNTHETIC)

_SAMPLE_NS_MAX = 10**15


@dataclass(frozen=True, slots=True)
class TimingSummary:
    """What the samples of one candidate say about one dispatch.

    Attributes:
        source: One of `TIMING_SOURCES`.
        dispatches: Dispatches in each sample; timings with other counts are not comparable.
        sample_count: Good samples.
        rejected_count: Samples thrown away as impossible.
        minimum_ns: The shortest, per dispatch, as are all that follow.
        median_ns: The lower middle.
        upper_quartile_ns: The sample at ceiling rank of three quarters.
        p95_ns: The sample at ceiling rank of 95 %.
    """

    source: str
    dispatches: int
    sample_count: int
    rejected_count: int
    minimum_ns: int
    median_ns: int
    upper_quartile_ns: int
    p95_ns: int

    def to_value(self) -> dict[str, Value]:
        """Return the plain form."""
        return {
            "source": self.source,
            "dispatches": self.dispatches,
            "sample_count": self.sample_count,
            "rejected_count": self.rejected_count,
            "minimum_ns": self.minimum_ns,
            "median_ns": self.median_ns,
            "upper_quartile_ns": self.upper_quartile_ns,
            "p95_ns": self.p95_ns,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> TimingSummary:
        """Read the plain form."""
        return cls(
            source=fields.text("source"),
            dispatches=fields.integer("dispatches", least=1),
            sample_count=fields.integer("sample_count", least=1),
            rejected_count=fields.integer("rejected_count"),
            minimum_ns=fields.integer("minimum_ns"),
            median_ns=fields.integer("median_ns"),
            upper_quartile_ns=fields.integer("upper_quartile_ns"),
            p95_ns=fields.integer("p95_ns"),
        )


def good_samples(raw: Iterable[float]) -> tuple[list[int], int]:
    """Return the samples that can be times, as whole nanoseconds, and how many cannot.

    Zero, negative and non-finite samples, and those beyond eleven days, are clocks that did
    not tick, ran backwards or wrapped around.
    """
    good, rejected = [], 0
    for sample in raw:
        if math.isfinite(sample) and 1 <= sample <= _SAMPLE_NS_MAX:
            good.append(int(sample))
        else:
            rejected += 1
    return good, rejected


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the sample at the ceiling rank of `share`.

    Args:
        ordered: Samples in ascending order, at least one.
        share: Above 0, at most 1.
    """
    # The rank is found in whole thousandths: 0.95 * 20 is 19.000000000000004 in floats on
    # no machine we know, but a rank must not hang on it.
    rank = -(-round(share * 1000) * len(ordered) // 1000)
    return ordered[max(rank, 1) - 1]


def summarise(
    samples_ns: Sequence[int], *, source: str, dispatches: int, rejected_count: int
) -> TimingSummary:
    """Return the summary of good samples, per dispatch.

    Args:
        samples_ns: Whole samples in nanoseconds, each over `dispatches` dispatches; at least
            one.
        source: The clock.
        dispatches: Dispatches in each sample.
        rejected_count: How many samples were thrown away.
    """
    ordered = sorted(samples_ns)
    return TimingSummary(
        source=source,
        dispatches=dispatches,
        sample_count=len(ordered),
        rejected_count=rejected_count,
        minimum_ns=ordered[0] // dispatches,
        median_ns=ordered[(len(ordered) - 1) // 2] // dispatches,
        upper_quartile_ns=quantile(ordered, 0.75) // dispatches,
        p95_ns=quantile(ordered, 0.95) // dispatches,
    )
