import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import castore
from castore.cli.tagged import from_json, to_json

_IDS = st.binary(min_size=32, max_size=32).map(bytes.hex)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    _TEXT,
    st.binary(),
    _IDS.map(castore.Link),
    _IDS.map(castore.WeakLink),
)
_KEYS = st.one_of(
    _TEXT,
    st.sampled_from(["$link", "$weak", "$bytes", "$float", "$int", "$", "$$", "$$link"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda children: st.one_of(st.lists(children), st.dictionaries(_KEYS, children, max_size=3)),
    max_leaves=20,
)


@settings(deadline=None)
@given(_VALUES)
@example({"$link": "00" * 32})
@example({"$$link": {"$link": 1}})
@example([-0.0, 0, 0.0, 1, 1.0, True, 2**53, 2**53 + 1, -(2**63), 2**64 - 1, 1e300])
@example([math.nan, math.inf, -math.inf, 5e-324])
def test_json_and_back_gives_the_same_bytes(value: object) -> None:
    text = to_json(value)
    assert castore.encode(from_json(text)) == castore.encode(value)


@settings(deadline=None)
@given(_VALUES)
def test_json_is_plain_ascii_that_other_readers_take(value: object) -> None:
    text = to_json(value)
    assert text.isascii()
    assert all(character.isprintable() or character == "\n" for character in text)
    json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (castore.Link("ab" * 32), '{"$link": "' + "ab" * 32 + '"}'),
        (castore.WeakLink("ab" * 32), '{"$weak": "' + "ab" * 32 + '"}'),
        (b"\x00\xff", '{"$bytes": "AP8="}'),
        (math.nan, '{"$float": "nan"}'),
        (-math.inf, '{"$float": "-inf"}'),
        (2**53, "9007199254740992"),
        (2**53 + 1, '{"$int": "9007199254740993"}'),
        (1.0, "1.0"),
        (1, "1"),
        ({"$link": 1}, '{"$$link": 1}'),
        ({"$link": 1, "b": 2}, '{"$link": 1, "b": 2}'),
    ],
)
def test_a_value_has_this_spelling(value: object, text: str) -> None:
    assert to_json(value, indent=None) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('[{"b": {"c": 1, "c": 1}}]', "'c' stands twice"),
        ("NaN", '{"$float": "nan"}'),
        ("-Infinity", '{"$float": "-inf"}'),
        ("1e999", "beyond the range"),
        ("1" * 5000, "beyond -2^63"),
        ('{"a": {"$lnk": "x"}}', ".a: '$lnk' is no tag"),
        ('{"$link": 3}', "takes text"),
        ('{"$link": "AB"}', "64 lower-case hex digits"),
        ('{"$bytes": "?"}', "not base64"),
        ('{"$float": "1.5"}', "does not fit $float"),
        ('{"$int": "1_000"}', "beyond -2^63"),
        ("{", "line 1 column 2"),
        ("[" * 100_000, "nested deeper"),
        ("[" * 200 + "]" * 200, "nested deeper"),
        ("1 2", "not JSON"),
        ("", "not JSON"),
    ],
)
def test_input_that_would_change_is_refused(text: str, told: str) -> None:
    with pytest.raises(castore.MalformedError) as refused:
        from_json(text)
    assert told in str(refused.value)
