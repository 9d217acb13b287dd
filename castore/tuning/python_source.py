"""Python functions as kernels, and the digest of what they say.

The digest covers the whole module of a function, and every module of the author's own
that it imports, wherever the import stands; as tokens, without comments, blank lines and
positions. That is more than the function needs: a helper may be defined under an `if`, be
put into a table, or be reached through `getattr`, and a stale result is worse than one
measured anew. Kernels whose results should not hang on each other's source live in modules
of their own. The modules of others (numpy, for one) are the topology's business.

An import runs the packages around a module, so those count, too. Of the packages around the
function's own module only their text does, and not what they import: they often import all
that there is. What is imported by a computed name (`importlib.import_module`, a module's
`__getattr__`) is not found; raise the kernel's `semantic_version` where that changes.

Files are read, not imported, so that a lookup costs no import of numpy.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.util
import io
import os
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from castore.errors import MalformedError
from castore.tuning.errors import SourceUnavailableError
from castore.tuning.program import PythonProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from castore.tuning.kernel import Kernel
    from castore.tuning.space import Schedule, ScheduleSpace

_SILENT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING})
# Their text is white space; that they are there is what counts.
_SHAPE_ONLY = frozenset({tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER})
_BINARY = tuple(importlib.machinery.EXTENSION_SUFFIXES)


@dataclass(frozen=True, slots=True)
class PythonImplementation:
    """How the CPU computes a kernel, in Python.

    Attributes:
        function: `module:name` of a function as `PythonProgram` describes.
        space: The schedules.
    """

    function: str
    space: ScheduleSpace

    def __post_init__(self) -> None:
        """Refuse what a worker process could not import.

        Raises:
            MalformedError: `function` is not `module:name` as text.
        """
        check_reference(self.function)

    @property
    def names(self) -> frozenset[str]:
        """The knobs."""
        return self.space.names

    def source_digest(self) -> str:
        """Return the BLAKE3 of the function's module and of all its author's that it imports.

        Raises:
            SourceUnavailableError: There is no source to read, or no such function in it.
        """
        return source_digest(self.function)

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
    module, name = check_reference(reference)
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise MalformedError(reference, "there is no such function")
    return function  # type: ignore[no-any-return]  # getattr cannot know; callable() checked it


def deferred(reference: str) -> Callable[..., Any]:
    """Return a function that imports `module:name` when it is called, and calls it.

    For `make_inputs` and `oracle` of kernels that are looked up where numpy is not wanted.

    Raises:
        MalformedError: `reference` is not `module:name` as text.
    """
    check_reference(reference)

    def call(*args: Any) -> Any:  # noqa: ANN401 - stands for any function
        return resolved(reference)(*args)

    return call


def check_reference(reference: object) -> tuple[str, str]:
    """Return the module and the name in `module:name`.

    Raises:
        MalformedError: It is something else, or names what a worker process cannot import.
    """
    wanted = "expected the text module:name, which a worker process can import"
    if type(reference) is not str:
        raise MalformedError(".function", f"{wanted}, got {_told(reference)}")
    module, _, name = reference.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise MalformedError(reference, f"{wanted}; name is a function at its top level")
    if module == "__main__":
        reason = "a worker process cannot import the running script; move the function to a module"
        raise MalformedError(reference, reason)
    return module, name


def _told(given: object) -> str:
    if not callable(given):
        return repr(given)
    module, name = getattr(given, "__module__", "?"), getattr(given, "__qualname__", "?")
    return f"the function itself, which {module}:{name} might name"


def source_digest(reference: str) -> str:
    """Return the BLAKE3 of a function's module and of all its author's that it imports.

    Raises:
        SourceUnavailableError: There is no source to read, or no such function in it.
    """
    module, name = check_reference(reference)
    try:
        own, others = _Family.of(module).closure(module)
    except (OSError, ImportError, ValueError, SyntaxError) as error:
        raise SourceUnavailableError(reference, f"its source cannot be read: {error}") from None
    if not own.bound & {name, "*"}:
        raise SourceUnavailableError(reference, f"{name} is not defined in its module")
    parts = [f"{file}\x1e{parsed.digest}" for file, parsed in sorted(others.items())]
    return blake3("\x1d".join([name, own.digest, *parts]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Family:
    """The modules that count as a function's author's own.

    Attributes:
        root: The folder that the function's package, or its module, lies in.
        top: The first part of the module's name.
        is_shared: Whether others' packages lie there too; only `top` is the author's then.
    """

    root: str
    top: str
    is_shared: bool

    @classmethod
    def of(cls, module: str) -> _Family:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.has_location or spec.origin is None:
            raise ImportError(f"module {module} has no file")
        root = os.path.abspath(spec.origin)
        for _ in range(module.count(".") + 1 + (spec.submodule_search_locations is not None)):
            root = os.path.dirname(root)
        return cls(root, module.partition(".")[0], _is_shared(root))

    def closure(self, module: str) -> tuple[_Parsed, dict[str, _Parsed]]:
        """Return what a module says, and all of the family that it imports, by file."""
        files = self._files(module)
        source = next((file for file in files if file.endswith(".py")), None)
        if source is None:
            raise ImportError(f"module {module} has no source file below {self.root}")
        own = _parsed(_content(self.root, source))
        # A compiled module goes before its source when Python looks for one.
        others = {file: _compiled(_content(self.root, file)) for file in files if file != source}
        seen, around = {module}, {*_prefixes(module)} - {module}
        wanted = [*own.absolute_imports(module, source)]
        while wanted:
            current = wanted.pop()
            if current in seen:
                continue
            seen.add(current)
            for file in self._files(current):
                others[file] = _parsed_leniently(_content(self.root, file))
                wanted += others[file].absolute_imports(current, file)
            wanted += {*_prefixes(current)} - around
        if self.top != __name__.partition(".")[0]:  # ours runs whatever the kernel is
            for package in around - seen:
                for file in self._files(package):
                    others[file] = _parsed_leniently(_content(self.root, file))
        return own, others

    def _files(self, module: str) -> list[str]:
        """Return the files, from `root` on, that might be a module."""
        if self.is_shared and module.partition(".")[0] != self.top:
            return []
        place = module.replace(".", "/")
        folder = os.path.join(self.root, place)
        names = [place + ".py", *(place + suffix for suffix in _BINARY)]
        if os.path.isdir(folder):
            names.insert(0, place + "/__init__.py")
        elif not os.path.isdir(os.path.dirname(folder)):
            return []  # a name in a module, and no module of its own
        return [name for name in names if os.path.isfile(os.path.join(self.root, name))]


def _content(root: str, file: str) -> bytes:
    return Path(root, file).read_bytes()


@lru_cache(maxsize=64)
def _is_shared(root: str) -> bool:
    return any(name.endswith(".dist-info") for name in os.listdir(root))


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What a module's text says.

    Attributes:
        digest: BLAKE3 of its tokens.
        bound: Names that it gives a meaning to anywhere; `*` where it takes all of a module's.
        imports: Modules that it may import, as (dots before the name, name).
    """

    digest: str
    bound: frozenset[str] = frozenset()
    imports: tuple[tuple[int, str], ...] = ()

    def absolute_imports(self, module: str, file: str) -> Iterator[str]:
        """Yield the whole names of `imports`, as seen from this module."""
        package = module if file.endswith("/__init__.py") else module.rpartition(".")[0]
        parts = package.split(".") if package else []
        for level, name in self.imports:
            kept = parts[: len(parts) - level + 1] if level else []
            yield ".".join([*kept, *filter(None, [name])])


def _parsed_leniently(content: bytes) -> _Parsed:
    try:
        return _parsed(content)
    except (SyntaxError, ValueError):
        return _compiled(content)  # it is, or it is for another Python


def _compiled(content: bytes) -> _Parsed:
    return _Parsed(blake3(content).hexdigest())


@lru_cache(maxsize=256)
def _parsed(content: bytes) -> _Parsed:
    source = importlib.util.decode_source(content)
    bound: set[str] = set()
    imports: set[tuple[int, str]] = set()
    for node in _running(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.Import(names=aliases):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
                imports |= {(0, name) for alias in aliases for name in _prefixes(alias.name)}
            case ast.ImportFrom(module=module, names=aliases, level=level):
                bound |= {alias.asname or alias.name for alias in aliases}
                imports.add((level, module or ""))
                inner = f"{module}." if module else ""
                imports |= {(level, inner + alias.name) for alias in aliases}
    digest = blake3(_tokens(source).encode()).hexdigest()
    return _Parsed(digest, frozenset(bound), tuple(sorted(imports)))


def _running(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes but those that only a type checker sees."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                waiting += node.orelse
            case _:
                waiting += ast.iter_child_nodes(node)


def _prefixes(module: str) -> Iterator[str]:
    # `import a.b` makes what `a` itself defines reachable, too.
    parts = module.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _tokens(source: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\x1f".join(
        "" if token.type in _SHAPE_ONLY else token.string
        for token in tokens
        if token.type not in _SILENT
    )
