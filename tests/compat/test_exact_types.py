"""What PersistentCache takes comes back with its types; whatever would not is refused."""

from __future__ import annotations

import dataclasses
import enum
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import castore
from castore.compat import PersistentCache
from castore.errors import MalformedError
from castore.format.value import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALL = ("cpu|cpu", "attention@v0", "5645c67752613303")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Platform(enum.StrEnum):
    XLA = "xla"
    AUTO = "auto"


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Tile(NamedTuple):
    rows: Any
    columns: Any


class Grid(NamedTuple):
    rows: Any
    columns: Any


class Number(int):
    pass


class Text(str):
    __slots__ = ()


class Mapping(dict[str, int]):
    pass


class Items(list[int]):
    pass


class Pair(tuple[int, int]):
    __slots__ = ()


@dataclass
class Block:
    part: Any = None


@dataclass(frozen=True)
class Key:
    name: str


@dataclass(frozen=True, slots=True)
class Slotted:
    part: Any = None


@dataclass
class Broad:
    anything: Any = None
    level: Level | Platform | int | str | None = None
    tile: Tile | Grid | tuple[Any, ...] | None = None
    block: Block | Slotted | dict[str, Any] | None = None
    blocks: list[Block | Level] = field(default_factory=list)
    by_key: dict[Key | Level | int, Tile | Block] = field(default_factory=dict)
    flags: frozenset[Access | Platform | str] = frozenset()


ODD = st.sampled_from(
    [
        *Level,
        *Platform,
        *Access,
        Access.READ | Access.WRITE,
        Tile(1, Level.LOW),
        Grid(Platform.XLA, (1,)),
        Number(3),
        Text("text"),
        Mapping(a=1),
        Items([1]),
        Pair((1, 2)),
        OrderedDict(a=1),
        defaultdict(int, a=1),
        Counter("ab"),
        Block(1),
        Block(Level.HIGH),
        Slotted((1, Tile(1, 2))),
        Key("a"),
        Namespace(a=1),
        bytearray(b"x"),
        range(3),
        complex(1, 2),
        float("nan"),
        -0.0,
        2**64,
        Block,
        Level,
        object(),
        np.str_("text"),
    ]
)
HASHABLE = st.sampled_from(
    [0, 1, True, "a", "$a", 1.5, (1, Level.LOW), Level.LOW, Platform.XLA, Tile(1, 2), Key("b"),
     Text("c"), Number(4), None, b"b", frozenset({Level.LOW}), Access.READ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("a$", max_size=2) | ODD,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=2)
        | st.sets(HASHABLE, max_size=2)
        | st.frozensets(HASHABLE, max_size=2)
        | st.builds(Block, inner)
        | st.builds(Slotted, inner)
        | st.builds(Tile, inner, inner)
    ),
    max_leaves=5,
)
BROAD = st.builds(
    Broad,
    *[st.none() | VALUES] * 4,
    st.lists(st.builds(Block, VALUES) | VALUES, max_size=2),
    st.dictionaries(HASHABLE, st.builds(Tile, VALUES, VALUES) | VALUES, max_size=2),
    st.frozensets(HASHABLE, max_size=2),
)
MANY = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def cache(root: Path, **options: Any) -> PersistentCache[Any]:
    return PersistentCache("flash-attn", str(root), **options)


def shape(value: Any, record: Callable[[Any], Any] = type) -> object:
    """Return what a value is, with the types all the way down.

    Args:
        value: The value.
        record: What a dataclass counts as.
    """
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        kind = record(value)
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif kind is Namespace:
        value = vars(value)
    if isinstance(value, dict):
        return kind, frozenset((shape(k, record), shape(v, record)) for k, v in value.items())
    if isinstance(value, (set, frozenset)):
        return kind, frozenset(shape(each, record) for each in value)
    if isinstance(value, (list, tuple)):
        return kind, tuple(shape(each, record) for each in value)
    return kind, repr(value)


def is_empty(root: Path) -> bool:
    with castore.open(root) as store:
        return list(store.ids()) == []


def assert_comes_back_or_is_refused(
    root: Path, config: Any, expected: object, **options: Any
) -> None:
    """Put a configuration; what is refused leaves the store as it was, and names a field."""
    kept = cache(root, **options)
    with castore.open(root) as store:
        before = list(store.ids())
        try:
            kept.put(*CALL, config)
        except MalformedError as refused:
            assert refused.where  # noqa: PT017 - whether it is refused is not for this test to say
            assert list(store.ids()) == before
            return
    for reader in (kept, cache(root, **options)):
        for _ in range(3):
            got = reader.get(*CALL)
            assert shape(vars(got) if type(got) is Namespace else got) == expected


@MANY
@given(BROAD)
def test_with_a_type_what_is_taken_comes_back_with_its_types(tmp_path: Path, config: Broad) -> None:
    assert_comes_back_or_is_refused(tmp_path / "store", config, shape(config), cfg_type=Broad)


@MANY
@given(st.dictionaries(st.text("ab$", max_size=2), VALUES, max_size=3))
def test_without_a_type_what_is_taken_comes_back_with_its_types_and_dataclasses_as_dicts(
    tmp_path: Path, config: dict[str, object]
) -> None:
    expected = shape(config, lambda _: dict)
    assert_comes_back_or_is_refused(tmp_path / "store", config, expected)


@MANY
@given(VALUES)
def test_a_loader_gets_what_a_dumper_gave(tmp_path: Path, dumped: object) -> None:
    expected = shape(Tile("loaded", dumped), lambda _: dict)
    assert_comes_back_or_is_refused(
        tmp_path / "store",
        1,
        expected,
        dumper=lambda _: dumped,
        loader=lambda raw: Tile("loaded", raw),
    )


@pytest.mark.parametrize(
    "config",
    [
        Broad(level=Level.HIGH),
        Broad(level=Platform.XLA),
        Broad(level=2),
        Broad(tile=Tile(1, 2)),
        Broad(tile=Grid(1, 2)),
        Broad(tile=(1, 2)),
        Broad(block=Block(1)),
        Broad(block=Slotted((1,))),
        Broad(block={"part": 1}),
        Broad(blocks=[Block(), Level.LOW]),
        Broad(by_key={Key("a"): Tile(1, 2), Level.LOW: Block(3), 7: Tile(4, 5)}),
        Broad(flags=frozenset({Access.READ | Access.WRITE, "a", Platform.AUTO})),
    ],
)
def test_annotated_types_are_taken(tmp_path: Path, config: Broad) -> None:
    cache(tmp_path / "store", cfg_type=Broad).put(*CALL, config)
    assert shape(cache(tmp_path / "store", cfg_type=Broad).get(*CALL)) == shape(config)


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (Broad(anything=[Level.LOW]), ".anything[0]"),
        (Broad(anything={"a": Platform.XLA}), ".anything.a"),
        (Broad(anything=Tile(1, 2)), ".anything"),
        (Broad(anything={Level.LOW: 1}), ".anything[<Level.LOW: 1>]"),
        (Broad(anything={Level.LOW}), ".anything[<Level.LOW: 1>]"),
        (Broad(anything=Slotted()), ".anything"),
        (Broad(level=Access.READ), ".level"),
        (Broad(blocks=[Block(Level.LOW)]), ".blocks[0].part"),
        (Broad(blocks=[Slotted()]), ".blocks[0]"),  # type: ignore[list-item]
        (Broad(level=Number(1)), ".level"),
        (Broad(level=Text("a")), ".level"),
        (Broad(anything=Items([1])), ".anything"),
        (Broad(anything=Mapping(a=1)), ".anything"),
        (Broad(anything=Pair((1, 2))), ".anything"),
        (Broad(anything=OrderedDict(a=1)), ".anything"),
    ],
)
def test_types_that_no_annotation_names_are_refused(
    tmp_path: Path, config: Broad, where: str
) -> None:
    with pytest.raises(MalformedError) as refused:
        cache(tmp_path / "store", cfg_type=Broad).put(*CALL, config)
    assert refused.value.where == where


@pytest.mark.parametrize("part", [Level.LOW, Platform.XLA, Tile(1, 2), {Key("a"): 1}, {Key("a")}])
def test_types_are_refused_where_no_class_is_known(tmp_path: Path, part: object) -> None:
    kept = cache(tmp_path / "store")
    for config in ({"part": part}, Block(part), Namespace(part=part)):
        with pytest.raises(MalformedError):
            kept.put(*CALL, config)
    assert is_empty(tmp_path / "store")


def test_the_fields_of_a_dict_reach_the_type_as_they_were(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store", cfg_type=Broad)
    kept.put(*CALL, {"level": Level.HIGH, "tile": (1, 2)})
    assert shape(kept.get(*CALL)) == shape(Broad(level=Level.HIGH, tile=(1, 2)))
    with pytest.raises(MalformedError) as refused:
        kept.put(*CALL, {"anything": Level.HIGH})
    assert refused.value.where == ".anything"


def test_a_configuration_that_fits_only_without_its_manifest_is_refused(tmp_path: Path) -> None:
    nested: Any = 1
    for _ in range(DEPTH_MAX - 1):
        nested = [nested]
    with pytest.raises(MalformedError):
        cache(tmp_path / "store").put(*CALL, {"a": nested})
    assert is_empty(tmp_path / "store")


def test_a_refused_put_does_not_forget_where_the_next_comes_from(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store")
    kept.on_event("override", device=CALL[0], op_id=CALL[1], call_key=CALL[2])
    with pytest.raises(MalformedError):
        kept.put(*CALL, {"a": Level.LOW})
    kept.put(*CALL, {"a": 1})
    with castore.open(tmp_path / "store") as store:
        (ref,) = store.refs("config")
        assert store.get(ref.object)["provenance"]["origin"] == "override"  # type: ignore[index, call-overload]


def test_numpy_numbers_come_back_as_the_numbers_that_they_hold(tmp_path: Path) -> None:
    config = {"a": np.int64(3), "b": [np.float32(0.5)], "c": {np.int8(1): np.bool_(True)}}  # noqa: FBT003 - a value
    kept = cache(tmp_path / "store")
    kept.put(*CALL, config)
    expected = {"a": 3, "b": [0.5], "c": {1: True}}
    assert shape(vars(kept.get(*CALL))) == shape(expected)
