import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.tuning.expression import evaluate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ceil_div(n, 4)", 3),
        ("n * 2 + 1 - 3", 16),
        ("n // 4 % 2", 0),
        ("min(n, 3) + max(n, 3, 20)", 23),
        ("1 < n <= 9", 1),
        ("n > 9 or n == 9 and n != 9", 0),
    ],
)
def test_an_expression_has_the_value_that_it_reads_as(text: str, value: int) -> None:
    assert evaluate(text, {"n": 9}) == value


@pytest.mark.parametrize(
    "text",
    ["missing", "__import__('os')", "n.real", "n / 2", "'text'", "1.5", "n +", "n % 0", "(n,)",
     "[n][0]", "min()", "lambda: n", "n ** 9", "True", "min(n, key=n)"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        evaluate(text, {"n": 9})


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_ceil_div_is_the_least_count_that_covers(n: int, block: int) -> None:
    count = evaluate("ceil_div(n, block)", {"n": n, "block": block})
    assert (count - 1) * block < n <= count * block
