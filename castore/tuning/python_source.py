"""Python functions as kernels, and the digest of what they say.

The digest covers the function and all that it names in its own module, as tokens
without comments, blank lines and positions. Other modules (numpy, for one) are
the topology's business. The module's file is read, not imported, so that a lookup
costs no import of numpy.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import io
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from castore.errors import MalformedError
from castore.tuning.program import PythonProgram

if TYPE_CHECKING:
    from collections.abc import Callable

    from castore.tuning.kernel import Kernel
    from castore.tuning.space import Schedule, ScheduleSpace

_SILENT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
# Their text is white space; that they are there is what counts.
_SHAPE_ONLY = frozenset({tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER})


@dataclass(frozen=True, slots=True)
class PythonImplementation:
    """How the CPU computes a kernel, in Python.

    Attributes:
        function: `module:name` of a function as `PythonProgram` describes.
        space: The schedules.
    """

    function: str
    space: ScheduleSpace

    def source_digest(self) -> str:
        """Return the BLAKE3 of the function's tokens and those of all that it uses at home."""
        module, name = _split(self.function)
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise MalformedError(self.function, "the module's source cannot be found")
        return _digest(Path(spec.origin).read_text("utf-8"), name)

    def program(self, kernel: Kernel, schedule: Schedule) -> PythonProgram:
        """Return the function with the kernel's sizes and the schedule."""
        sizes, knobs = sorted(kernel.sizes.items()), sorted(schedule.items())
        return PythonProgram(self.function, tuple(sizes), tuple(knobs))


def resolved(reference: str) -> Callable[..., Any]:
    """Import `module:name` and return the function of that name.

    Raises:
        MalformedError: The reference does not name a function.
        ImportError: The module cannot be imported.
    """
    module, name = _split(reference)
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise MalformedError(reference, "there is no such function")
    return function  # type: ignore[no-any-return]  # getattr cannot know; callable() checked it


def deferred(reference: str) -> Callable[..., Any]:
    """Return a function that imports `module:name` when it is called, and calls it."""

    def call(*args: Any) -> Any:  # noqa: ANN401 - stands for any function
        return resolved(reference)(*args)

    return call


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    if not module or not name:
        raise MalformedError(reference, "expected module:name")
    return module, name


@lru_cache(maxsize=64)
def _digest(source: str, name: str) -> str:
    definitions = _definitions(source)
    if name not in definitions:
        raise MalformedError(name, "is not defined at the top level of its module")
    wanted, texts = [name], dict[str, str]()
    while wanted:
        current = wanted.pop()
        if current in texts or current not in definitions:
            continue
        nodes = definitions[current]
        texts[current] = "\x1d".join(_tokens(_segment(source, node)) for node in nodes)
        parts = (part for node in nodes for part in ast.walk(node))
        wanted += [part.id for part in parts if isinstance(part, ast.Name)]
    tokens = "\x1e".join(texts[current] for current in sorted(texts))
    return blake3(f"{name}\x1e{tokens}".encode()).hexdigest()


def _definitions(source: str) -> dict[str, list[ast.stmt]]:
    """Return the statements at the top level that give each name its meaning."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(source).body:
        for name in _bound(statement):
            found.setdefault(name, []).append(statement)
    return found


def _bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    stored = (part for part in ast.walk(statement) if isinstance(part, ast.Name))
    return {part.id for part in stored if isinstance(part.ctx, ast.Store)}


def _segment(source: str, node: ast.stmt) -> str:
    # Decorators stand before what Python calls the start of a function.
    decorators = getattr(node, "decorator_list", [])
    segments = [ast.get_source_segment(source, part) or "" for part in (*decorators, node)]
    return "\n".join(segments)


def _tokens(source: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\x1f".join(
        "" if token.type in _SHAPE_ONLY else token.string
        for token in tokens
        if token.type not in _SILENT
    )
