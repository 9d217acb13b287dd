"""Reading typed records out of plain values, with the path of whatever is wrong.

A manifest may come from another machine or another program. Each reader here
either returns a value of the stated type or raises `MalformedError` naming the
field, so that a record class holds nothing that was not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from castore.errors import MalformedError
from castore.format.value import ObjectId, Value, WeakLink

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fields:
    """A map from outside, read field by field.

    Attributes:
        values: The map.
        where: The path that leads to it, such as `.winner`; empty at the top.
    """

    values: dict[str, Value]
    where: str = ""

    @classmethod
    def of(cls, value: object, where: str = "") -> Fields:
        """Return a reader of `value`, which must be a map."""
        if type(value) is not dict:
            raise MalformedError(where or ".", f"expected a map, got {type(value).__name__}")
        return cls(value, where)

    def has(self, name: str) -> bool:
        """Tell whether the field is there."""
        return name in self.values

    def get(self, name: str) -> Value:
        """Return the field as it is."""
        if name not in self.values:
            raise MalformedError(f"{self.where}.{name}", "the field is missing")
        return self.values[name]

    def fields(self, name: str) -> Fields:
        """Return a reader of the map in this field."""
        return Fields.of(self.get(name), f"{self.where}.{name}")

    def text(self, name: str) -> str:
        """Return a string."""
        value = self.get(name)
        if type(value) is not str:
            raise self._refused(name, "a string", value)
        return value

    def integer(self, name: str, *, least: int = 0) -> int:
        """Return an integer not below `least`."""
        return self._integer(name, self.get(name), least)

    def number(self, name: str) -> float:
        """Return an integer or a float, as a float."""
        value = self.get(name)
        if type(value) is not float and type(value) is not int:
            raise self._refused(name, "a number", value)
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self._items(name)
        for at, value in enumerate(values):
            if type(value) is not str:
                raise self._refused(f"{name}[{at}]", "a string", value)
        return tuple(str(value) for value in values)

    def integers(self, name: str, *, least: int) -> tuple[int, ...]:
        """Return a list of integers."""
        return tuple(
            self._integer(f"{name}[{at}]", value, least)
            for at, value in enumerate(self._items(name))
        )

    def integer_map(self, name: str, *, least: int = 0) -> dict[str, int]:
        """Return a map from strings to integers, sorted by key."""
        inner = self.fields(name)
        return {key: inner.integer(key, least=least) for key in sorted(inner.values)}

    def weak_link(self, name: str) -> ObjectId:
        """Return the id in a weak link."""
        value = self.get(name)
        if not isinstance(value, WeakLink):
            raise self._refused(name, "a weak link", value)
        return value.oid

    def list_of(self, name: str, parse: Callable[[Fields], _T]) -> tuple[_T, ...]:
        """Return a list of records, each read by `parse`."""
        return tuple(
            parse(Fields.of(value, f"{self.where}.{name}[{at}]"))
            for at, value in enumerate(self._items(name))
        )

    def manifest_of(self, kind: str, schema: int) -> None:
        """Refuse a manifest of another kind or schema.

        Raises:
            MalformedError: `kind` or `schema` differ.
        """
        if self.get("kind") != kind:
            raise self._refused("kind", repr(kind), self.get("kind"))
        if self.get("schema") != schema or type(self.get("schema")) is not int:
            raise self._refused("schema", str(schema), self.get("schema"))

    def _items(self, name: str) -> list[Value]:
        value = self.get(name)
        if type(value) is not list:
            raise self._refused(name, "a list", value)
        return value

    def _integer(self, name: str, value: Value, least: int) -> int:
        if type(value) is not int or value < least:
            raise self._refused(name, f"an integer of at least {least}", value)
        return value

    def _refused(self, name: str, wanted: str, got: object) -> MalformedError:
        shown = ascii(got)[:60]
        return MalformedError(f"{self.where}.{name}", f"expected {wanted}, got {shown}")
