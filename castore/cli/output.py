"""Where a command's output goes: data to stdout, remarks to stderr.

Everything passes through here, so that text from a store is harmless wherever it is
printed, and `--json` output is nothing but JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from castore.cli.text import columns, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one command.

    Attributes:
        as_json: Whether stdout gets JSON in place of text: one document, or one on each line.
    """

    as_json: bool

    def line(self, text: str) -> None:
        """Print one line of text, made harmless."""
        print(printable(text))

    def lines(self, texts: Iterable[str]) -> None:
        """Print lines of text, each made harmless."""
        for text in texts:
            self.line(text)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
        """Print rows under a header; where there are none, the remark `empty`."""
        if not rows:
            self.note(f"castore: {empty}")
        for row in columns(header, rows):
            print(row)

    def data(self, document: object) -> None:
        """Print a JSON document in ASCII."""
        print(json.dumps(document, ensure_ascii=True, allow_nan=False, indent=2))

    def record(self, document: object) -> None:
        """Print a JSON document in ASCII on one line, as one of many."""
        print(json.dumps(document, ensure_ascii=True, allow_nan=False))

    def note(self, text: str) -> None:
        """Print a remark to stderr, made harmless."""
        print(printable(text), file=sys.stderr)
