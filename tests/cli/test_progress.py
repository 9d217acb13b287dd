"""What is drawn while a command works."""

import io
import sys

import pytest

from castore.cli import progress
from castore.tuning import CandidateMeasured, CandidateRejected, Failure, Finished, RoundBegan

_EVENTS = (
    RoundBegan("gemm[k=1]", 1, 2, 2),
    CandidateMeasured("gemm[k=1]", 1, {"block": 1}, 100),
    CandidateRejected("gemm[k=1]", 1, Failure({"block": 2}, "oracle", "wrong\x1b at 3")),
    Finished("gemm[k=1]", {"block": 1}, 100),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _terminal_as_stderr(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_terminal_gets_a_bar_that_shows_labels_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _terminal_as_stderr(monkeypatch)
    with progress.tuning() as tell:
        for event in _EVENTS:
            tell(event)
    assert "gemm[k=1] round 1" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_a_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal_as_stderr(monkeypatch)
    monkeypatch.setitem(sys.modules, "castore.integrations.rich_progress", None)
    with progress.tuning() as tell:
        for event in _EVENTS:
            tell(event)
    assert terminal.getvalue() == (
        "gemm[k=1]: round 1: 2 candidates\n"
        "gemm[k=1]: rejected block=2: oracle: wrong\\x1b at 3\n"
        "gemm[k=1]: best: block=1, 100 ns\n"
    )


def test_counting_draws_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal_as_stderr(monkeypatch)
    with progress.counting("checking") as tell:
        assert tell is not None
        tell(1, None)
        tell(2, 4)
    assert "checking" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.counting("checking") as tell:
        assert tell is None
