"""The benches run and report; what they measure is judged by people, not here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import manifests
from bench.__main__ import main
from bench.measure import Row, compare
from castore import encode

if TYPE_CHECKING:
    from pathlib import Path

BENCHES = ("store", "scale", "startup", "compat", "reliability")


def test_without_a_name_every_bench_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*BENCHES, "all"]


@pytest.mark.tools("git")
@pytest.mark.parametrize("name", BENCHES)
def test_a_quick_bench_reports_rows_and_machine_and_leaves_nothing_behind(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--quick", "--json", "--dir", str(tmp_path)]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["bench"] == name
    assert set(reported["machine"]) > {"python", "castore", "blake3", "file system", "cpu"}
    assert all(row["castore_us"] > 0 for row in reported["rows"])
    assert any(row["limit"] or row["limit_us"] for row in reported["rows"])
    assert list(tmp_path.iterdir()) == []


def test_the_table_names_every_operation_and_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["startup", "--quick", "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "castore us/op" in printed
    assert "import castore, process time" in printed


def test_manifests_are_two_to_three_kilobytes_and_the_same_in_every_run() -> None:
    made = [encode(value) for value in manifests.make(300)]
    assert made == [encode(value) for value in manifests.make(300)]
    assert len(set(made)) == 300
    assert all(2_000 <= len(content) <= 3_000 for content in made)


def test_a_row_takes_the_median_of_the_rounds_ratios() -> None:
    row = compare("put", [(2_000, 1_000), (9_000, 3_000), (80_000, 2_000)], operations=1, limit=3.0)
    assert row.ratio == 3.0
    assert row.holds is True


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (Row("put", 1.0, floor_us=1.0, ratio=1.3, limit=1.2), False),
        (Row("put", 1.0, floor_us=1.0, ratio=1.2, limit=1.2), True),
        (Row("get", 9.0, limit_us=8.0), False),
        (Row("get", 9.0, floor_us=1.0, ratio=9.0), None),
    ],
)
def test_a_limit_holds_up_to_itself_and_where_none_is_set_nothing_is_claimed(
    row: Row,
    holds: bool | None,  # noqa: FBT001 - a parameter of the test, given by name
) -> None:
    assert row.holds is holds
