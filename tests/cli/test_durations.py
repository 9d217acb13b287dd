import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castore.cli.durations import DURATION_S_MAX, duration_text, parse_duration
from castore.errors import MalformedError


@settings(deadline=None)
@given(st.integers(0, DURATION_S_MAX))
def test_a_duration_reads_as_it_was_written(duration_s: int) -> None:
    assert parse_duration(duration_text(duration_s)) == duration_s


@settings(deadline=None)
@given(st.text(alphabet="0123456789smhdw .-+e", max_size=12))
def test_a_text_is_a_duration_or_refused(text: str) -> None:
    try:
        duration_s = parse_duration(text)
    except MalformedError:
        return
    assert 0 <= duration_s <= DURATION_S_MAX


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("0", 0),
        ("0s", 0),
        ("90s", 90),
        ("12h", 43_200),
        ("14d", 1_209_600),
        ("1d12h", 129_600),
        ("2w", 1_209_600),
        ("5m", 300),
    ],
)
def test_a_duration_has_this_length(text: str, duration_s: int) -> None:
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "14",
        "00",
        "-1s",
        "+1s",
        "1.5h",
        "1 d",
        "d",
        "1d\n",
        "1d1d",
        "1y",
        "\u0661s",
        "999999999999w",
    ],
)
def test_a_text_without_a_clear_length_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_duration(text)


def test_the_longest_duration_is_taken_and_one_more_is_not() -> None:
    assert parse_duration(f"{DURATION_S_MAX}s") == DURATION_S_MAX
    with pytest.raises(MalformedError):
        parse_duration(f"{DURATION_S_MAX + 1}s")
