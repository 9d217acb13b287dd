"""Files of ejKernel's PersistentCache."""

from __future__ import annotations

import enum
import json
import logging
import os
from argparse import Namespace
from collections import UserDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import castore
from castore.compat import PersistentCache

if TYPE_CHECKING:
    from pathlib import Path

CALL = ("cpu|cpu", "flash_attention@v2", "1b7958b048186f93")
KEY = "|".join(CALL)


class Mode(enum.Enum):
    FAST = "fast"


@dataclass
class Params:
    q: int | None = None
    tile: tuple[int, ...] = ()


@dataclass
class Config:
    platform: str = "auto"
    fwd: Params | None = None
    by_size: dict[int, Params] = field(default_factory=dict)
    mode: Mode = Mode.FAST


CONTENT = {
    KEY: {
        "platform": "xla",
        "fwd": {"q": 256, "tile": [1, 2]},
        "by_size": {"8": {"q": 1}},
        "mode": "fast",
    },
    "gpu|cuda 12|x\n|op@v1|k": {"platform": "auto"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fa.json"
    path.write_text(json.dumps(CONTENT))
    return path


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def opened(path: Path, **options: Any) -> PersistentCache[Any]:
    return PersistentCache("flash-attn", str(path), **options)


def test_a_file_is_imported_and_left_as_it_was(file: Path) -> None:
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    kept = opened(file)
    assert kept.get(*CALL) == Namespace(**CONTENT[KEY])
    assert kept.get("gpu|cuda 12|x\n", "op@v1", "k") == Namespace(platform="auto")
    kept.put(*CALL, {"new": 1})
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert kept.path == str(file)


def test_new_configurations_go_to_the_store_beside_it(file: Path) -> None:
    opened(file).put(*CALL, {"new": 1})
    assert opened(file.with_suffix(".castore")).get(*CALL) == Namespace(new=1)
    assert opened(file).get(*CALL) == Namespace(new=1), "the file does not win the key back"


def test_what_is_imported_is_typed_as_the_annotations_say(file: Path) -> None:
    assert opened(file, cfg_type=Config).get(*CALL) == Config(
        "xla", Params(256, (1, 2)), {8: Params(1)}, Mode.FAST
    )


def test_a_loader_gets_what_was_in_the_file(file: Path) -> None:
    assert opened(file, loader=UserDict).get(*CALL) == UserDict(CONTENT[KEY])


def test_changing_what_was_got_changes_no_later_get(file: Path) -> None:
    kept = opened(file)
    for _ in range(4):
        got = kept.get(*CALL)
        assert got.fwd["tile"] == [1, 2]
        got.fwd["tile"].append(3)


def test_a_second_import_changes_nothing(file: Path) -> None:
    def everything() -> list[object]:
        with castore.open(file.with_suffix(".castore")) as store:
            return [list(store.ids()), list(store.refs())]

    opened(file)
    before = everything()
    opened(file)
    assert everything() == before


def test_a_deleted_key_is_not_imported_again(file: Path) -> None:
    opened(file)
    with castore.open(file.with_suffix(".castore")) as store:
        for ref in list(store.refs("config")):
            store.delete_ref("config", ref.topology, ref.kernel)
    assert opened(file).get(*CALL) is None


def test_what_the_file_gained_is_imported(file: Path) -> None:
    opened(file).put(*CALL, {"mine": 1})
    file.write_text(json.dumps({**CONTENT, "d|o|k": {"late": 1}}))
    kept = opened(file)
    assert kept.get("d", "o", "k") == Namespace(late=1)
    assert kept.get(*CALL) == Namespace(mine=1)


def test_the_manifest_says_that_it_was_imported(file: Path) -> None:
    opened(file)
    with castore.open(file.with_suffix(".castore")) as store:
        origins = {store.get(r.object)["provenance"]["origin"] for r in store.refs("config")}  # type: ignore[index, call-overload]
    assert origins == {"imported"}


def test_a_missing_file_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = opened(tmp_path / "later.json")
    kept.put(*CALL, 1)
    assert kept.get(*CALL) == 1
    assert os.listdir(tmp_path) == ["later.castore"]
    assert warnings_of(caplog) == []


def test_a_file_truncated_at_any_length_never_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = json.dumps({KEY: {"q": [1, "é"]}}, ensure_ascii=False).encode()
    path = tmp_path / "fa.json"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        caplog.clear()
        kept = opened(path)
        assert kept.get(*CALL) is None
        assert len(warnings_of(caplog)) <= 1
        kept._backing._warned.clear()
    path.write_bytes(whole)
    assert opened(path).get(*CALL) == Namespace(q=[1, "é"])


@pytest.mark.parametrize(
    "content",
    [b"[]", b"7", b"null", b"\xff\xfe", b"{]", b"[" * 100_000, b'{"a|b|c": 1}{}', b"\0" * 100],
)
def test_a_foreign_file_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "fa.json"
    path.write_bytes(content)
    for _ in range(2):
        opened(path).put(*CALL, {"q": 1})
    assert len(warnings_of(caplog)) == 1
    assert path.read_bytes() == content


def test_entries_that_cannot_be_stored_are_left_out_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "fa.json"
    odd = {"no separators": {}, "d|o|big": {"n": 2**70}, "d|o|null": None, "d|" + "o" * 2000: 1}
    path.write_text(json.dumps({**odd, "d|" + "o" * 2000 + "|k": 1, "d|o|nan": {"n": 1e400}}))
    kept = opened(path)
    assert kept.get("d", "o", "nan") == Namespace(n=float("inf"))
    assert len(warnings_of(caplog)) == 1
    assert "5 entries" in warnings_of(caplog)[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_a_fifo_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "fa.json")
    kept = opened(tmp_path / "fa.json")
    kept.put(*CALL, 1)
    assert kept.get(*CALL) == 1
    assert len(warnings_of(caplog)) == 1


def test_a_file_is_imported_to_memory_where_there_can_be_no_store(file: Path) -> None:
    file.with_suffix(".castore").write_bytes(b"in the way")
    kept = opened(file)
    assert kept.get(*CALL) == Namespace(**CONTENT[KEY])


def test_without_a_path_the_file_that_ejkernel_left_is_imported(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EJKERNEL_PERSISTENT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CASTORE_DIR", str(tmp_path / "own"))
    kept: PersistentCache[Any] = PersistentCache("fa")
    assert kept.get(*CALL) == Namespace(**CONTENT[KEY])
    assert kept.path == str(tmp_path / "own")
    assert PersistentCache[Any]("../fa").get(*CALL) is None


# Files as ejKernel writes them: a device string with a separator in it, an operation with its
# version, 16 hex digits; flat configurations, and nested ones with fields that were not chosen.
AS_WRITTEN = {
    "attention": {
        "cpu|cpu|attention@v0|0123456789abcdef": {
            "platform": "auto", "backend": "any", "block_q": 32, "block_k": 96,
            "num_warps": 8, "num_stages": 3,
        },
    },
    "flash-attn": {
        "cpu|cpu|flash_attention@v2|fedcba9876543210": {
            "platform": "auto", "backend": "any",
            "fwd_params": {"blocksize_m": None, "q_blocksize": 512, "num_warps": 2},
            "bwd_params": {"blocksize_m": None, "q_blocksize": 64, "num_warps": None},
        },
    },
    "many": {
        f"{device}|scan@v1|{n:016x}": {"platform": "xla", "block_d": 2**n, "ratio": n / 3}
        for device in ("NVIDIA H100 80GB HBM3|cuda 12040", "TPU v5 lite|libtpu 0.0.9\nbuilt 1")
        for n in range(20)
    },
    "empty": {},
}  # fmt: skip


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_files_as_ejkernel_writes_them_are_imported(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(AS_WRITTEN[name]))
    kept: PersistentCache[Any] = PersistentCache(name, str(path))
    for joined, config in AS_WRITTEN[name].items():
        device, op_id, call_key = joined.rsplit("|", 2)
        assert vars(kept.get(device, op_id, call_key)) == config
