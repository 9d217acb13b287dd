"""PersistentCache: ejKernel's interface, with its faults fixed."""

from __future__ import annotations

import enum
import logging
import math
import os
import subprocess
import sys
import threading
from argparse import Namespace
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import castore
from castore.compat import PersistentCache
from castore.errors import MalformedError

CALL = ("cpu|cpu", "attention@v0", "5645c67752613303")


class Precision(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class Tile(NamedTuple):
    rows: int
    columns: int


@dataclass
class Block:
    q: int | None = None
    kv: int | None = None


@dataclass
class Config:
    platform: str = "auto"
    forward: Block | None = None
    stages: tuple[Block, ...] = ()
    by_size: dict[int, Block] = field(default_factory=dict)
    precision: Precision = Precision.FAST
    tile: Tile = field(default=Tile(1, 1))
    names: frozenset[str] = frozenset()
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class Slotted:
    block: int
    pair: tuple[int, int] = (1, 2)
    tags: list[str] = field(default_factory=list)


FULL = Config(
    platform="gpu",
    forward=Block(128, None),
    stages=(Block(1, 2), Block(3, 4)),
    by_size={1: Block(5, 6), -7: Block()},
    precision=Precision.EXACT,
    tile=Tile(16, 32),
    names=frozenset({"b", "a"}),
    scale=math.inf,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def cache(root: Path, opname: str = "flash-attn", **options: Any) -> PersistentCache[Any]:
    return PersistentCache(opname, str(root), **options)


# What comes back.


def test_a_missing_configuration_is_none(root: Path) -> None:
    assert cache(root).get(*CALL) is None


def test_nested_dataclasses_tuples_and_enums_come_back_typed(root: Path) -> None:
    cache(root, cfg_type=Config).put(*CALL, FULL)
    got = cache(root, cfg_type=Config).get(*CALL)
    assert got == FULL
    assert type(got.tile) is Tile
    assert got.precision is Precision.EXACT
    assert type(got.stages[1]) is Block


def test_without_a_type_fields_come_back_as_a_namespace(root: Path) -> None:
    cache(root).put(*CALL, Block(1, 2))
    assert cache(root).get(*CALL) == Namespace(q=1, kv=2)


def test_without_a_type_a_nested_dataclass_comes_back_as_a_dict(root: Path) -> None:
    config = Config(forward=Block(1, 2), precision="fast", tile=(1, 1))  # type: ignore[arg-type]
    cache(root).put(*CALL, config)
    got = cache(root).get(*CALL)
    assert got.forward == {"q": 1, "kv": 2}
    assert got.tile == (1, 1)


def test_a_typed_configuration_is_readable_without_a_type(root: Path) -> None:
    cache(root, cfg_type=Config).put(*CALL, FULL)
    got = cache(root).get(*CALL)
    assert got.by_size == {1: {"q": 5, "kv": 6}, -7: {"q": None, "kv": None}}
    assert got.precision == "exact"


def test_tuples_and_int_keys_return_as_they_were(root: Path) -> None:
    config = {"tile": (1, (2, 3)), "warps": {4: "a", -1: "b", None: "c"}, "$odd": {"$tuple": [1]}}
    cache(root).put(*CALL, config)
    assert vars(cache(root).get(*CALL)) == config


def test_what_is_no_dict_comes_back_as_it_is(root: Path) -> None:
    for n, value in enumerate([7, "text", b"\0", [1, (2,)], (1,), 2.5, True, {1, 2}]):
        cache(root).put("d", "op", str(n), value)
        got = cache(root).get("d", "op", str(n))
        assert (got, type(got)) == (value, type(value))


def test_a_field_called_self_comes_back(root: Path) -> None:
    cache(root).put(*CALL, {"self": 1})
    assert vars(cache(root).get(*CALL)) == {"self": 1}


def test_a_namespace_that_was_got_can_be_put(root: Path) -> None:
    kept = cache(root)
    kept.put(*CALL, {"a": 1})
    kept.put("other", *CALL[1:], kept.get(*CALL))
    assert kept.get("other", *CALL[1:]) == Namespace(a=1)


def test_a_dict_becomes_the_type(root: Path) -> None:
    cache(root, cfg_type=Block).put(*CALL, {"q": 3})
    assert cache(root, cfg_type=Block).get(*CALL) == Block(3, None)


def test_any_callable_serves_as_the_type(root: Path) -> None:
    made = cache(root, cfg_type=dict)
    made.put(*CALL, {"q": 3})
    assert made.get(*CALL) == {"q": 3}


def test_a_model_is_stored_by_its_dump(root: Path) -> None:
    class Model:
        def __init__(self, q: int) -> None:
            self.q = q

        def model_dump(self) -> dict[str, int]:
            return {"q": self.q}

    cache(root, cfg_type=Model).put(*CALL, Model(9))
    assert cache(root, cfg_type=Model).get(*CALL).q == 9


def test_loader_and_dumper_are_used_as_theirs_are(root: Path) -> None:
    seen: list[object] = []

    def loader(raw: object) -> object:
        seen.append(raw)
        return {"q": 5}

    kept = cache(root, loader=loader, dumper=lambda cfg: ["dumped", cfg], cfg_type=Block)
    kept.put(*CALL, (1, 2))
    assert kept.get(*CALL) == Block(5)
    assert seen == [["dumped", (1, 2)]]


def test_numpy_numbers_come_back_equal(root: Path) -> None:
    cache(root, cfg_type=Block).put(*CALL, Block(np.int32(7), np.int64(8)))  # type: ignore[arg-type]
    got = cache(root, cfg_type=Block).get(*CALL)
    assert got == Block(7, 8)
    assert type(got.q) is int


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=4)
        | st.frozensets(st.integers(0, 9) | st.text(max_size=2), max_size=3)
    ),
    max_leaves=12,
)
SHARED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SHARED
@given(st.dictionaries(st.text(max_size=5), PLAIN, max_size=5))
def test_every_plain_configuration_returns_as_it_was(
    tmp_path: Path, config: dict[str, object]
) -> None:
    kept = cache(tmp_path / "store")
    try:
        kept.put(*CALL, config)
    except MalformedError:
        assert any(has_surrogate(text) for text in texts_in(config))
        return
    got = vars(cache(tmp_path / "store").get(*CALL))
    assert repr(got) == repr(config) or got == config


def texts_in(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [t for pair in value.items() for each in pair for t in texts_in(each)]
    if isinstance(value, (list, tuple, frozenset)):
        return [t for each in value for t in texts_in(each)]
    return []


def has_surrogate(text: str) -> bool:
    return any(0xD800 <= ord(character) < 0xE000 for character in text)


BLOCKS = st.builds(Block, q=st.none() | st.integers(0, 512), kv=st.none() | st.integers(0, 512))


@SHARED
@given(
    st.builds(
        Config,
        platform=st.sampled_from(["auto", "gpu"]),
        forward=st.none() | BLOCKS,
        stages=st.lists(BLOCKS, max_size=3).map(tuple),
        by_size=st.dictionaries(st.integers(-5, 5), BLOCKS, max_size=3),
        precision=st.sampled_from(Precision),
        tile=st.builds(Tile, st.integers(), st.integers()).filter(
            lambda tile: all(-(2**63) <= each < 2**64 for each in tile)
        ),
        names=st.frozensets(st.sampled_from("abc")),
        scale=st.none() | st.floats(allow_nan=False),
    )
)
def test_every_typed_configuration_returns_equal(tmp_path: Path, config: Config) -> None:
    cache(tmp_path / "store", cfg_type=Config).put(*CALL, config)
    assert cache(tmp_path / "store", cfg_type=Config).get(*CALL) == config


# What is refused.


@dataclass
class Loose:
    part: Any = None
    other: int = 0


@dataclass
class OtherBlock(Block):
    pass


@dataclass
class BiggerBlock(Block):
    extra: int = 0


Unnamed = namedtuple("Unnamed", ["a"])  # noqa: PYI024 - the untyped kind is what is tried


def itself() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("config", "cfg_type", "where"),
    [
        ({"a": {"b": [1, object()]}}, None, ".a.b[1]"),
        ({"a": np.dtype("float32")}, None, ".a"),
        ({"a": np.float32}, None, ".a"),
        ({"a": np.arange(3)}, None, ".a"),
        ({"a": 2**64}, None, ".a"),
        ({"a": "\ud800"}, None, ".a"),
        ({"a": complex(1, 2)}, None, ".a"),
        ({"a": Precision.FAST}, None, ".a"),
        ({"a": Namespace(b=1)}, None, ".a"),
        ({1: "top"}, None, "."),
        (Loose(part=Block(1)), Loose, ".part"),
        (Loose(part=Precision.FAST), Loose, ".part"),
        (Config(forward=OtherBlock(1)), Config, ".forward"),
        (Config(forward=BiggerBlock(1)), Config, ".forward"),
        (BiggerBlock(1), Block, "."),
        ({"unknown": 1}, Block, "."),
    ],
)
def test_what_cannot_come_back_equal_is_refused_and_nothing_is_stored(
    root: Path, config: object, cfg_type: type | None, where: str
) -> None:
    kept = cache(root, cfg_type=cfg_type)
    with pytest.raises(MalformedError) as refused:
        kept.put(*CALL, config)
    assert refused.value.where == where
    with castore.open(root) as store:
        assert list(store.ids()) == []
    kept.put(*CALL, {"q": 1} if cfg_type is Block else cfg_type() if cfg_type else {"q": 1})
    assert kept.get(*CALL) is not None


def test_a_configuration_within_itself_is_refused(root: Path) -> None:
    with pytest.raises(MalformedError, match="nested deeper"):
        cache(root).put(*CALL, {"a": itself()})


def test_an_unknown_origin_is_refused(root: Path) -> None:
    with pytest.raises(MalformedError, match="origin"):
        cache(root).put(*CALL, {"a": 1}, origin="guessed")  # type: ignore[arg-type]


def test_no_stored_name_is_imported(root: Path) -> None:
    with castore.open(root) as store:
        kept = cache(root)
        kept.put(*CALL, {"a": 1})
        (ref,) = store.refs("config")
        manifest = store.get(ref.object)
        manifest["config"] = {"a": {"$record": ["antigravity.Flight", {"b": 1}]}}  # type: ignore[index, call-overload]
        store.record("config", ref.topology, ref.kernel, manifest, on_conflict="replace")
    assert kept.get(*CALL).a == {"b": 1}
    assert "antigravity" not in sys.modules


def test_a_foreign_manifest_is_a_miss_with_one_warning(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = cache(root)
    kept.put(*CALL, {"a": 1})
    with castore.open(root) as store:
        (ref,) = store.refs("config")
        for odd in ({"kind": "else"}, {"config": {"$later": 1}}, {"config": {"$tuple": 1}}):
            manifest = {**store.get(ref.object), **odd}  # type: ignore[dict-item]
            store.record("config", ref.topology, ref.kernel, manifest, on_conflict="replace")
            assert kept.get(*CALL) is None
    assert len(warnings_of(caplog)) == 1


def test_a_class_that_changed_is_a_miss_with_one_warning(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache(root, cfg_type=BiggerBlock).put(*CALL, BiggerBlock(1))
    kept = cache(root, cfg_type=Block)
    assert kept.get(*CALL) is None
    assert kept.get(*CALL) is None
    assert len(warnings_of(caplog)) == 1


# Keys.

AWKWARD = ["a|b", "a", "b", "A", "", "a\nb", "a\0b", "Intel(R) Arc(TM)", "../../x", "é", "e\u0301",
           '"', "\\", "a/b", "🚀", "x" * 300]  # fmt: skip


def test_awkward_keys_are_distinct(root: Path) -> None:
    kept = cache(root)
    calls = [(a, b, c) for a in AWKWARD[:4] for b in AWKWARD[:4] for c in AWKWARD[:3]]
    calls += [(odd, "op", "k") for odd in AWKWARD] + [("d", odd, "k") for odd in AWKWARD]
    calls = list(dict.fromkeys(calls))
    for n, call in enumerate(calls):
        kept.put(*call, n)
    fresh = cache(root)
    assert [fresh.get(*call) for call in calls] == list(range(len(calls)))
    assert sorted(os.listdir(root)) == ["format", "local", "objects", "packs", "refs"]


def test_a_device_name_may_have_ten_thousand_characters(root: Path) -> None:
    kept = cache(root)
    kept.put("x" * 10_000, "op", "k", 1)
    kept.put("x" * 9_999 + "y", "op", "k", 2)
    assert kept.get("x" * 10_000, "op", "k") == 1


@pytest.mark.parametrize("call", [("d", "x" * 10_000, "k"), ("\ud83d", "op", "k"),
                                  ("d", "\ud83d\ude80", "k"), ("d", 7, "k")])  # fmt: skip
def test_a_key_that_cannot_be_stored_is_refused_by_put_and_missed_by_get(
    root: Path, call: tuple[str, str, str]
) -> None:
    kept = cache(root)
    with pytest.raises(MalformedError):
        kept.put(*call, 1)
    assert kept.get(*call) is None


def test_operations_do_not_see_each_other(root: Path) -> None:
    cache(root, "one").put(*CALL, 1)
    assert cache(root, "two").get(*CALL) is None


# Sharing.


def test_changing_what_was_got_changes_no_later_get(root: Path) -> None:
    for cfg_type in (None, Config):
        kept = cache(root, str(cfg_type), cfg_type=cfg_type)
        kept.put(*CALL, Config(forward=Block(1), by_size={1: Block(2)}) if cfg_type else
                 {"by_size": {1: {"q": [2]}}})  # fmt: skip
        for _ in range(4):
            got = kept.get(*CALL)
            part = got.by_size.pop(1)
            assert part == (Block(2) if cfg_type else {"q": [2]})
            if cfg_type is None:
                part["q"].append(3)
            else:
                got.forward.q = part.q = 99
                assert kept.get(*CALL).forward.q == 1


def test_a_slotted_frozen_configuration_is_not_shared_where_it_holds_a_list(root: Path) -> None:
    kept = cache(root, cfg_type=Slotted)
    kept.put(*CALL, Slotted(1, (2, 3), ["a"]))
    for _ in range(4):
        got = kept.get(*CALL)
        assert got == Slotted(1, (2, 3), ["a"])
        got.tags.append("b")


def test_caches_on_one_root_share_one_store(root: Path) -> None:
    assert cache(root, "one")._backing is cache(Path(f"{root}/../store"), "two")._backing


def run(code: str, *args: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PUT = """
import sys
from castore.compat import PersistentCache
PersistentCache("flash-attn", sys.argv[1]).put("cpu|cpu", "attention@v0", "5645c67752613303",
                                              {"q": int(sys.argv[2])})
"""


def test_puts_of_other_processes_are_seen(root: Path) -> None:
    kept = cache(root)
    assert kept.get(*CALL) is None
    for n in range(3):
        run(PUT, root, n)
        assert [kept.get(*CALL).q for _ in range(3)] == [n] * 3


def test_two_replacements_within_one_tick_are_seen(root: Path) -> None:
    kept, other = cache(root), cache(root)
    for n in range(60):
        other.put(*CALL, n)
        assert kept.get(*CALL) == n


def test_a_deleted_configuration_is_gone(root: Path) -> None:
    kept = cache(root)
    kept.put(*CALL, 1)
    assert kept.get(*CALL) == 1
    with castore.open(root) as store:
        (ref,) = store.refs("config")
        store.delete_ref("config", ref.topology, ref.kernel)
    assert kept.get(*CALL) is None


def test_a_configuration_of_an_alternate_is_found(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache(tmp_path / "system").put(*CALL, "system")
    monkeypatch.setenv("CASTORE_ALTERNATES", str(tmp_path / "system"))
    kept = cache(root)
    assert [kept.get(*CALL) for _ in range(3)] == ["system"] * 3
    kept.put(*CALL, "own")
    assert kept.get(*CALL) == "own"


PUT_MANY = """
import sys
from castore.compat import PersistentCache
kept = PersistentCache("many", sys.argv[1])
for n in range(100):
    kept.put("cpu|cpu", "op@v0", f"{sys.argv[2]}-{n}", {"n": n})
"""


def test_four_processes_putting_a_hundred_each_leave_four_hundred(root: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", PUT_MANY, str(root), str(each)])
        for each in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    kept = cache(root, "many")
    got = [kept.get("cpu|cpu", "op@v0", f"{w}-{n}").n for w in range(4) for n in range(100)]
    assert got == list(range(100)) * 4


def test_threads_may_put_and_get_at_once(root: Path) -> None:
    kept = cache(root, cfg_type=Config)
    wrong: list[object] = []

    def work(mine: int) -> None:
        for n in range(20):
            kept.put("d", "op", str(mine), Config(forward=Block(n)))
            if kept.get("d", "op", str(mine)) != Config(forward=Block(n)):
                wrong.append((mine, n))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


FORK = """
import os, sys
from castore.compat import PersistentCache
kept = PersistentCache("fork", sys.argv[1])
kept.put("d", "op", "parent", 1)
children = []
for n in range(4):
    child = os.fork()
    if child == 0:
        ok = kept.get("d", "op", "parent") == 1
        kept.put("d", "op", str(n), n)
        os._exit(0 if ok and kept.get("d", "op", str(n)) == n else 1)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
assert [kept.get("d", "op", str(n)) for n in range(4)] == [0, 1, 2, 3]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_cache_is_usable_after_a_fork(root: Path) -> None:
    run(FORK, root)


# Origins.


def origin_of(root: Path) -> str:
    with castore.open(root) as store:
        (ref,) = store.refs("config")
        return str(store.get(ref.object)["provenance"]["origin"])  # type: ignore[index, call-overload]


def test_the_manifest_tells_defaults_and_overrides_from_tuned(root: Path) -> None:
    kept = cache(root)
    told = {"device": CALL[0], "op_id": CALL[1], "call_key": CALL[2]}
    for events, origin in (
        (["autotune_start"], "tuned"),
        (["autotune_start", "heuristics"], "heuristic"),
        (["override"], "override"),
        (["cache_hit"], "unstated"),
    ):
        for event in events:
            kept.on_event(event, **told)
        kept.put(*CALL, {"a": 1})
        assert origin_of(root) == origin


def test_an_origin_may_be_stated(root: Path) -> None:
    cache(root).put(*CALL, {"a": 1}, origin="override")
    assert origin_of(root) == "override"


def test_putting_the_same_again_stores_nothing(root: Path) -> None:
    kept = cache(root)
    for _ in range(3):
        kept.put(*CALL, {"a": 1})
    with castore.open(root) as store:
        (ref,) = store.refs("config")
        assert len(store.ref_log("config", ref.topology, ref.kernel)) == 1


def test_a_later_put_replaces_and_the_log_keeps_what_was_replaced(root: Path) -> None:
    kept = cache(root)
    for n in range(3):
        kept.put(*CALL, n)
    assert kept.get(*CALL) == 2
    with castore.open(root) as store:
        (ref,) = store.refs("config")
        log = store.ref_log("config", ref.topology, ref.kernel)
        assert [store.get(entry.new)["config"] for entry in log] == [2, 1, 0]  # type: ignore[index, call-overload, arg-type]


# Damage.


def file_of(root: Path, what: str, config: object) -> Path:
    with castore.open(root) as store:
        ref = next(r for r in store.refs("config") if store.get(r.object)["config"] == config)  # type: ignore[index, call-overload]
    if what == "ref":
        return root / f"refs/config/{ref.key[:2]}/{ref.key[2:]}"
    return root / f"objects/{ref.object[:2]}/{ref.object[2:]}"


@pytest.mark.parametrize("content", [b"", b"\0junk\xff" * 9, b"object " + b"0" * 64 + b"\n"])
@pytest.mark.parametrize("what", ["ref", "object"])
def test_damage_is_a_miss_with_one_warning_and_the_next_put_heals(
    root: Path, caplog: pytest.LogCaptureFixture, what: str, content: bytes
) -> None:
    cache(root).put(*CALL, {"a": 1})
    cache(root).put("other", *CALL[1:], {"a": 2})
    path = file_of(root, what, {"a": 1})
    path.chmod(0o644)
    path.write_bytes(content)
    kept = cache(root)
    caplog.clear()
    assert [kept.get(*CALL) for _ in range(3)] == [None] * 3
    assert len(warnings_of(caplog)) == 1
    assert kept.get("other", *CALL[1:]) == Namespace(a=2)
    kept.put(*CALL, {"a": 1})
    assert kept.get(*CALL) == Namespace(a=1)


def test_a_ref_whose_object_is_missing_is_a_miss(root: Path) -> None:
    kept = cache(root)
    kept.put(*CALL, {"a": 1})
    with castore.open(root) as store:
        (ref,) = store.refs("config")
        (root / f"objects/{ref.object[:2]}/{ref.object[2:]}").unlink()
    assert cache(root).get(*CALL) is None
    kept.put(*CALL, {"a": 1})
    assert cache(root).get(*CALL) == Namespace(a=1)
