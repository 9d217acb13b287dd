import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castore.cli.text import columns, moment_text, printable, size_text, time_text


@settings(deadline=None)
@given(st.text(st.characters()))
def test_every_text_becomes_harmless(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" ")))
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb", "a\\x0ab"),
        ("\x9b1m", "\\x9b1m"),
        ("\u202egpj", "\\u202egpj"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_an_unprintable_character_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_columns_line_up_also_with_wide_letters_and_accents() -> None:
    rows = [("漢字", "x"), ("e\u0301", "y"), ("abcd", "z")]
    assert list(columns(("A", "B"), rows)) == [
        "A     B",
        "漢字  x",
        "e\u0301     y",
        "abcd  z",
    ]


def test_a_table_without_rows_has_no_header() -> None:
    assert list(columns(("A",), [])) == []


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1000, "1.00 us"), (12_345_678, "12.3 ms"), (10**10, "10.0 s")],
)
def test_a_time_has_three_digits_and_a_unit(time_ns: int, text: str) -> None:
    assert time_text(time_ns) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (1024, "1.00 KiB"), (5 * 2**30, "5.00 GiB")],
)
def test_a_size_has_a_unit(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


def test_any_clock_can_be_shown() -> None:
    assert moment_text(0) == "1970-01-01 00:00:00Z"
    assert moment_text(10**30) == f"{10**30} ns"
