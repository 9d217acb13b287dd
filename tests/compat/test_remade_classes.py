"""Classes that are more than their fields: made again as they were, or refused."""

from __future__ import annotations

import threading
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from castore.errors import MalformedError
from tests.compat.test_exact_types import CALL, Level, cache, is_empty, shape

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Dataclasses that are more than their fields.


@dataclass
class Derived:
    size: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.size


@dataclass(frozen=True)
class FrozenDerived:
    size: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.size)


@dataclass(frozen=True, slots=True)
class SlottedDerived:
    size: int
    parts: list[int] = field(default_factory=list)
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.size)


@dataclass
class Scaled:
    size: int
    scale: InitVar[int] = 1

    def __post_init__(self, scale: int) -> None:
        self.size *= scale


@dataclass
class Locked:
    """Holds what cannot be copied."""

    size: int

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.double: Callable[[], int] = lambda: 2 * self.size


@dataclass(frozen=True)
class Caching:
    size: int

    @cached_property
    def halves(self) -> list[int]:
        return [self.size // 2] * 2


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class Unset:
    size: int
    later: int = field(init=False)


@pytest.mark.parametrize(
    "config",
    [
        Derived(2),
        FrozenDerived(2),
        SlottedDerived(2, [1]),
        Scaled(2, scale=3),
        Caching(4),
        Box(3),
    ],
)
def test_derived_fields_come_back(tmp_path: Path, config: Any) -> None:
    kept = cache(tmp_path / "store", cfg_type=type(config))
    kept.put(*CALL, config)
    for _ in range(3):
        assert shape(kept.get(*CALL)) == shape(config)
        assert kept.get(*CALL) == config


def test_derived_fields_that_were_changed_come_back(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store", cfg_type=Derived)
    config = Derived(2)
    config.doubled = 5
    kept.put(*CALL, config)
    assert [kept.get(*CALL).doubled for _ in range(3)] == [5] * 3


def test_what_is_derived_from_an_instance_belongs_to_each_copy(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store", cfg_type=Locked)
    kept.put(*CALL, Locked(2))
    for size in range(3, 6):
        got = kept.get(*CALL)
        assert got.double() == 4
        got.size = size
        assert got.double() == 2 * size
        with got.lock:
            assert not kept.get(*CALL).lock.locked()


def test_what_an_instance_remembers_is_not_shared(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store", cfg_type=Caching)
    kept.put(*CALL, Caching(4))
    for _ in range(3):
        halves = kept.get(*CALL).halves
        assert halves == [2, 2]
        halves.append(9)


def test_a_field_that_was_never_set_is_not_set_again(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store", cfg_type=Unset)
    kept.put(*CALL, Unset(1))
    for _ in range(3):
        assert vars(kept.get(*CALL)) == {"size": 1}


@dataclass
class Growing:
    size: int

    def __post_init__(self) -> None:
        self.size += 1


@dataclass
class Asking:
    size: int
    scale: InitVar[int]

    def __post_init__(self, scale: int) -> None:
        self.size *= scale


@dataclass
class Failing:
    size: int

    def __post_init__(self) -> None:
        if self.size > 1:
            raise RuntimeError("too large")


@dataclass
class WithBase(dict[str, int]):
    size: int


@dataclass
class Outer:
    first: int = 0
    inner: Growing | Asking | Failing | WithBase | None = None


def failing() -> Failing:
    made = Failing(1)
    made.size = 2
    return made


@pytest.mark.parametrize("inner", [Growing(1), Asking(1, 2), failing(), WithBase(1)])
def test_a_class_that_its_fields_do_not_make_again_is_refused(tmp_path: Path, inner: Any) -> None:
    with pytest.raises(MalformedError):
        cache(tmp_path / "store", cfg_type=type(inner)).put(*CALL, inner)
    with pytest.raises(MalformedError, match=r"^\.inner"):
        cache(tmp_path / "store", cfg_type=Outer).put(*CALL, Outer(inner=inner))
    assert is_empty(tmp_path / "store")


# Models.


class Model:
    """Works like a Pydantic model: takes what its dump has, and turns it into its types."""

    def __init__(self, level: Any, part: Any = None, inner: Any = None) -> None:
        self.level = Level(level)
        self.part = part
        self.inner = Model(**inner) if type(inner) is dict else inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def model_dump(self) -> dict[str, Any]:
        given = vars(self).items()
        return {name: each.model_dump() if type(each) is Model else each for name, each in given}


def test_a_model_that_makes_its_types_again_is_taken(tmp_path: Path) -> None:
    kept = cache(tmp_path / "store", cfg_type=Model)
    model = Model(2, (1, 2), Model(1, {3: 4.5}))
    kept.put(*CALL, model)
    for _ in range(3):
        assert kept.get(*CALL) == model
        assert shape(kept.get(*CALL).model_dump()) == shape(model.model_dump())


@pytest.mark.parametrize(
    ("model", "cfg_type"),
    [(Model(2, Level.LOW), Model), (Model(2, Model(1)), Model), (Model(2), None), (Model(2), dict)],
)
def test_a_model_that_would_come_back_otherwise_is_refused(
    tmp_path: Path, model: Model, cfg_type: Any
) -> None:
    with pytest.raises(MalformedError):
        cache(tmp_path / "store", cfg_type=cfg_type).put(*CALL, model)
    assert is_empty(tmp_path / "store")
