"""A log loses no line but the damaged one, and no text in it becomes a line of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castore.errors import MalformedError
from castore.format import ref, reflog
from castore.format.reflog import LogEntry
from tests.format.test_ref import NAMES, OID, OTHER, TARGETS

if TYPE_CHECKING:
    from castore.format.value import ObjectId

PLAIN = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=256)
TIMES_NS = st.integers(-(2**63), 2**63 - 1)


def entry_of(
    name: ref.RefName,
    old: ObjectId | None,
    new: ObjectId | None,
    time_ns: int = 0,
    writer: str = "",
    reason: str = "",
) -> LogEntry:
    return LogEntry(
        name.namespace, name.key, old, new, time_ns, name.topology, name.kernel, writer, reason
    )


ENTRIES = st.builds(entry_of, NAMES, TARGETS, TARGETS, TIMES_NS, PLAIN, PLAIN)
NAME = ref.for_topology("tuning", OTHER, "gemm_f32[m=512]")
FIRST = entry_of(NAME, None, OID, 1, "process 1 on host", "tuned")
SECOND = entry_of(NAME, OID, OTHER, 2, "process 2 on host", "tuned again")
THIRD = entry_of(NAME, OTHER, None, 3, "process 3 on host", "forgotten")


def decoded(data: bytes) -> tuple[list[LogEntry], list[MalformedError]]:
    """Return the entries of a log of tuning refs, and its errors."""
    found = list(reflog.decode_entries("tuning", data))
    entries = [entry for entry in found if isinstance(entry, LogEntry)]
    return entries, [error for error in found if isinstance(error, MalformedError)]


@given(entry=ENTRIES)
def test_an_entry_comes_back_as_it_was(entry: LogEntry) -> None:
    line = reflog.encode_entry(entry)
    assert list(reflog.decode_entries(entry.namespace, line)) == [entry]


@given(entry=ENTRIES, writer=st.text(), reason=st.text())
def test_no_text_breaks_out_of_its_line(entry: LogEntry, writer: str, reason: str) -> None:
    line = reflog.encode_entry(replace(entry, writer=writer, reason=reason))
    assert line.count(b"\n") == 1
    assert line.count(b"\t") == 8
    (found,) = reflog.decode_entries(entry.namespace, line)
    assert isinstance(found, LogEntry)
    assert replace(found, writer=entry.writer, reason=entry.reason) == entry


def test_controls_in_a_reason_become_spaces() -> None:
    reason = "a\tb\nc\rd\x1b[2Je\x00f\x85g\u2028h\ud800i"
    (found,), errors = decoded(reflog.encode_entry(replace(FIRST, reason=reason)))
    assert found.reason == "a b c d [2Je f g h?i"
    assert errors == []


def test_a_long_reason_is_cut() -> None:
    (found,), _ = decoded(reflog.encode_entry(replace(FIRST, reason="x" * 10_000)))
    assert found.reason == "x" * 256


def test_a_log_is_read_oldest_first() -> None:
    data = b"".join(map(reflog.encode_entry, (FIRST, SECOND, THIRD)))
    assert decoded(data) == ([FIRST, SECOND, THIRD], [])
    assert decoded(b"") == ([], [])


def test_a_line_torn_at_any_length_takes_no_other_with_it() -> None:
    before, torn, after = map(reflog.encode_entry, (FIRST, SECOND, THIRD))
    for size in range(1, len(torn) - 1):
        # Whoever appends next puts a line end after the torn line.
        entries, errors = decoded(before + torn[:size] + b"\n" + after)
        assert entries == [FIRST, THIRD]
        assert [(error.where, error.rule) for error in errors] == [("line 2", "REF-8")]


def test_a_line_that_lacks_only_its_end_is_whole() -> None:
    line = reflog.encode_entry(FIRST)
    assert decoded(line[:-1]) == ([FIRST], [])


def test_a_flipped_bit_costs_its_own_line_alone() -> None:
    lines = list(map(reflog.encode_entry, (FIRST, SECOND, THIRD)))
    for at in range(len(lines[1])):
        for bit in range(8):
            damaged = bytearray(lines[1])
            damaged[at] ^= 1 << bit
            entries, errors = decoded(lines[0] + bytes(damaged) + lines[2])
            assert entries in ([FIRST, THIRD], [FIRST])
            # Only a lost line end joins two lines, and then both are gone, and one error tells.
            assert (entries == [FIRST]) == (at == len(lines[1]) - 1)
            assert len(errors) >= 1


@pytest.mark.parametrize(
    "line",
    [b"", b"\t" * 8, b"junk", b"\xff" * 50, reflog.encode_entry(FIRST)[:-1] + b"\t"],
)
def test_what_is_no_entry_is_a_typed_error(line: bytes) -> None:
    with pytest.raises(MalformedError) as caught:
        reflog.decode_entry("tuning", line)
    assert caught.value.rule == "REF-8"


@given(line=st.binary(max_size=60))
def test_random_bytes_are_no_entry(line: bytes) -> None:
    with pytest.raises(MalformedError):
        reflog.decode_entry("tuning", line)


def with_check(body: str) -> bytes:
    return f"{body}\t{reflog._check(body)}".encode()


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (0, OTHER),  # a key that topology and kernel do not give
        (0, "../../x"),
        (1, OID.upper()),
        (2, "../../x"),
        (3, "soon"),
        (3, ""),
        (3, "9" * 30),
        (3, "\u0661"),
        (4, "-"),
        (5, "-"),
        (5, "other"),
    ],
)
def test_a_line_with_a_right_check_and_a_wrong_field_is_rejected(field: int, text: str) -> None:
    fields = reflog.encode_entry(FIRST).decode().rstrip("\n").split("\t")[:-1]
    assert reflog.decode_entry("tuning", with_check("\t".join(fields))) == FIRST
    fields[field] = text
    with pytest.raises(MalformedError):
        reflog.decode_entry("tuning", with_check("\t".join(fields)))


def test_an_entry_has_the_namespace_of_its_log() -> None:
    line = reflog.encode_entry(FIRST)[:-1]
    assert reflog.decode_entry("config", line).namespace == "config"
