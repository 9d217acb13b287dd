"""How people name objects and refs on the command line.

    OBJECT  an id or its first digits (4 at least), the name of a named ref, or a REF
    REF     NAMESPACE/KERNEL, a KERNEL alone (of the namespace `tuning`), names/NAME, or
            by-key-NAMESPACE/KEY; --topology chooses between hardware

A kernel is given by its whole text, by the part before `[`, or with the wildcards `*`
and `?`. (`[` is no wildcard here: kernel texts are full of it.) Whatever fits several
things is refused, and the message names them. The digits of ids may be upper case.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from castore.cli.text import short_id
from castore.errors import CastoreError, MalformedError, ObjectNotFoundError, RefNotFoundError
from castore.format import layout
from castore.format.value import ObjectId, shown
from castore.refs import log

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from castore.format.ref import Ref, RefName
    from castore.store.store import Store

_Found = TypeVar("_Found")

DEFAULT_NAMESPACE = "tuning"
DIGITS_MIN = 4
CANDIDATES_SHOWN = 8

_MORE_DIGITS = "give more digits"
_NEAR_NAMES_MAX = 3
_NAMES_COMPARED_MAX = 2000

_is_abbreviation = re.compile(f"[0-9a-fA-F]{{{DIGITS_MIN},64}}").fullmatch
_is_too_short = re.compile(f"[0-9a-fA-F]{{1,{DIGITS_MIN - 1}}}").fullmatch


class AmbiguousNameError(CastoreError):
    """What was typed fits several things.

    Attributes:
        text: What was typed.
        candidates: Some of the things that it fits, as shown to people.
        hint: How to choose between them.
    """

    exit_status = 2

    def __init__(self, text: str, candidates: tuple[str, ...], hint: str) -> None:
        self.text = text
        self.candidates = candidates
        self.hint = hint
        super().__init__(text, candidates, hint)

    def __str__(self) -> str:
        more = ", ..." if len(self.candidates) > CANDIDATES_SHOWN else ""
        some = ", ".join(self.candidates[:CANDIDATES_SHOWN])
        return f"{shown(self.text)} is ambiguous; it fits {some}{more}; {self.hint}"


def add_object(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name one object."""
    parser.add_argument(
        "object", metavar="OBJECT", help="an id, its first digits, a named ref, or NAMESPACE/KERNEL"
    )
    _add_topology(parser)


def add_ref(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name one ref."""
    parser.add_argument(
        "ref",
        metavar="REF",
        help="NAMESPACE/KERNEL, KERNEL of the namespace tuning, names/NAME, or by-key-NS/KEY",
    )
    _add_topology(parser)


def _add_topology(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topology", metavar="ID", help="the topology, where several have the kernel"
    )


def find_object(store: Store, text: str, *, topology: str | None = None) -> ObjectId:
    """Return the id of the object that a person named.

    Raises:
        AmbiguousNameError: It fits several objects.
        ObjectNotFoundError: It looks like an id, and no object has it.
        RefNotFoundError: It looks like a ref, and there is none.
    """
    if len(text) == 64 and _is_abbreviation(text):
        return ObjectId(text.lower())
    named = _named_ref(store, text)
    if named is not None:
        return named
    if not _is_abbreviation(text):
        try:
            return find_ref(store, text, topology=topology).object
        except RefNotFoundError as error:
            if _is_too_short(text):
                error.add_note(f"an id needs {DIGITS_MIN} digits at least")
            raise
    try:
        return expand_id(store, text)
    except ObjectNotFoundError:
        # The id of a kernel may consist of hex digits alone.
        found = list(_matching_refs(store, text, topology))
        if not found:
            raise
        return _only(text, {each.name: each for each in found}).object


def object_digits(text: str) -> str:
    """Return the digits of an id as ids have them, in lower case.

    Raises:
        MalformedError: `text` is not 4 to 64 hex digits.
    """
    if not _is_abbreviation(text):
        reason = f"expected {DIGITS_MIN} to 64 hex digits, got {shown(text)}"
        raise MalformedError("id", reason, "OBJ-1")
    return text.lower()


def expand_id(store: Store, text: str) -> ObjectId:
    """Return the id of the one object whose id begins with `text`.

    Raises:
        MalformedError: `text` is not 4 to 64 hex digits.
        AmbiguousNameError: Several ids begin so.
        ObjectNotFoundError: None does.
    """
    digits = object_digits(text)
    if len(digits) == 64:
        return ObjectId(digits)
    found = tuple(islice(store.ids(digits), CANDIDATES_SHOWN + 1))
    if not found:
        raise ObjectNotFoundError(text, (str(store.root), *store.alternates))
    if len(found) > 1:
        raise AmbiguousNameError(text, found, _MORE_DIGITS)
    return found[0]


def find_ref(store: Store, text: str, *, topology: str | None = None) -> Ref:
    """Return the ref that a person named.

    Raises:
        AmbiguousNameError: It fits several refs.
        RefNotFoundError: It fits none.
    """
    found = {each.name: each for each in _matching_refs(store, text, topology)}
    if not found:
        raise _no_ref(store, text, topology)
    return _only(text, found)


def find_ref_name(store: Store, text: str, *, topology: str | None = None) -> RefName:
    """Return the name of the ref that a person named, one that was deleted included.

    A ref that is there goes before one that only has a log.

    Raises:
        AmbiguousNameError: It fits several refs.
        RefNotFoundError: It fits none.
    """
    try:
        return find_ref(store, text, topology=topology).name
    except RefNotFoundError:
        found = {name: name for name in _logged_names(store, text, topology)}
        if not found:
            raise
        return _only(text, found)


def expand_topology(refs: Iterable[Ref], text: str) -> ObjectId:
    """Return the one topology among those of `refs` whose id begins with `text`.

    Raises:
        MalformedError: `text` is not 4 to 64 hex digits.
        AmbiguousNameError: Several topologies begin so.
        RefNotFoundError: None does.
    """
    digits = object_digits(text)
    if len(digits) == 64:
        return ObjectId(digits)
    found = {each.topology for each in refs if each.topology and each.topology.startswith(digits)}
    if not found:
        error = RefNotFoundError(f"for a topology that begins with {text}")
        error.add_note("castore topology --list shows those that the store knows")
        raise error
    if len(found) > 1:
        raise AmbiguousNameError(text, tuple(sorted(found)), _MORE_DIGITS)
    return found.pop()


def kernel_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test for kernel texts: the whole text, the part before `[`, or wildcards."""
    if not {"*", "?"} & set(pattern):
        return lambda kernel: pattern in (kernel, kernel.partition("[")[0])
    matches = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
    return lambda kernel: matches(kernel) is not None


def ref_text(name: RefName) -> str:
    """Return a ref as the command takes it, the topology behind it."""
    if name.kernel is None:
        return f"{name.namespace}/{name.key}"
    return f"{name.namespace}/{name.kernel} on topology {short_id(name.topology)}"


def ref_document(name: RefName) -> dict[str, object]:
    """Return a ref's name for JSON output, every id in full."""
    return {
        "namespace": name.namespace,
        "kernel": name.kernel,
        "topology": name.topology,
        "key": name.key,
    }


def _named_ref(store: Store, text: str) -> ObjectId | None:
    try:
        found = store.get_name(text)
    except MalformedError:
        return None  # it cannot be a name
    return None if found is None else found.object


def _matching_refs(store: Store, text: str, topology: str | None) -> Iterator[Ref]:
    namespace, matches = _parsed(text, topology)
    found = store.names() if namespace == layout.NAMES else store.refs(namespace)
    return (each for each in found if matches(each.name))


def _logged_names(store: Store, text: str, topology: str | None) -> Iterator[RefName]:
    wanted, matches = _parsed(text, topology)
    for namespace, path in log.log_files(store.fs):
        if namespace != wanted:
            continue
        for entry in log.read_log(store.fs, namespace, path):
            if not isinstance(entry, MalformedError) and matches(entry.name):
                yield entry.name


def _parsed(text: str, topology: str | None) -> tuple[str, Callable[[RefName], bool]]:
    """Return the namespace that a REF means, and a test for the names of refs in it.

    Raises:
        MalformedError: The part before the slash cannot be a namespace, or `topology` an id.
    """
    namespace, slash, rest = text.partition("/")
    if not slash:
        namespace, rest = DEFAULT_NAMESPACE, text
    if namespace == layout.NAMES:
        return namespace, lambda name: name.key == rest
    layout.check_namespace(namespace)
    if namespace.startswith(layout.BY_KEY_PREFIX):
        key = object_digits(rest)
        return namespace, lambda name: name.key.startswith(key)
    there = "" if topology is None else object_digits(topology)
    matches = _kernel_test(rest)
    return (
        namespace,
        lambda name: matches(name.kernel or "") and (name.topology or "").startswith(there),
    )


@lru_cache(maxsize=8)
def _kernel_test(pattern: str) -> Callable[[str], bool]:
    return kernel_matcher(pattern)


def _only(text: str, found: dict[RefName, _Found]) -> _Found:
    if len(found) > 1:
        names = tuple(found)
        raise AmbiguousNameError(text, tuple(map(ref_text, names)), _how_to_choose(names))
    return next(iter(found.values()))


def _how_to_choose(names: tuple[RefName, ...]) -> str:
    if any(name.kernel is None for name in names):
        return _MORE_DIGITS
    if len({name.kernel for name in names}) == 1:
        return "choose with --topology ID"
    more = ", or --topology ID" if len({name.topology for name in names}) > 1 else ""
    return f"give the whole kernel text{more}"


def _no_ref(store: Store, text: str, topology: str | None) -> RefNotFoundError:
    """Return the error for a ref that is not there, with what may have been meant."""
    if topology is not None:
        error = RefNotFoundError(f"{text} on topology {topology}")
        there = {short_id(each.topology): None for each in _matching_refs(store, text, None)}
        if there:
            error.add_note(f"there is one on topology {_some(there)}")
            return error
    else:
        error = RefNotFoundError(text)
    namespace, slash, rest = text.rpartition("/")
    if namespace.startswith(layout.BY_KEY_PREFIX):
        return error
    near = near_kernels(_known_names(store, namespace or DEFAULT_NAMESPACE), rest)
    if near:
        error.add_note(f"did you mean {_some(namespace + slash + name for name in near)}?")
    return error


def near_kernels(known: Iterable[str], text: str) -> list[str]:
    """Return those of the `known` kernel texts or ids that somebody who typed `text` may mean."""
    wanted = text.partition("[")[0]
    texts_of: dict[str, list[str]] = {}
    for name in known:
        texts_of.setdefault(name.partition("[")[0], []).append(name)
        if len(texts_of) == _NAMES_COMPARED_MAX:
            break
    if wanted in texts_of:  # with another problem, then
        return sorted(texts_of[wanted])
    return difflib.get_close_matches(wanted, texts_of, _NEAR_NAMES_MAX)


def _known_names(store: Store, namespace: str) -> Iterator[str]:
    if namespace != layout.NAMES:
        yield from (each.kernel for each in store.refs(namespace) if each.kernel is not None)
    if namespace in (layout.NAMES, DEFAULT_NAMESPACE):
        yield from (each.key for each in store.names())


def _some(names: Iterable[str]) -> str:
    return ", ".join(islice(names, _NEAR_NAMES_MAX))
