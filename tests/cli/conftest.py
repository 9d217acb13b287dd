import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import castore
from castore.cli.main import main
from castore.store.store import Store
from castore.tuning import Recorded, ReplayDevice, TuneResult, kernels, tune

TOPOLOGY = {
    "kind": "topology",
    "schema": 1,
    "silicon": {"cpu_model": "Recorded CPU", "cores": 4},
    "software": {"backend": "numpy", "numpy": "2.0.0", "limits": {}, "replayed": True},
}


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CASTORE_DIR", str(tmp_path / "store"))
    monkeypatch.delenv("CASTORE_ALTERNATES", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with castore.open(tmp_path / "store", durability="none") as opened:
        yield opened


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def ran(*arguments: str) -> Ended:
        capfd.readouterr()
        status = main(arguments)
        assert logging.getLogger("castore").handlers == []
        out, err = capfd.readouterr()
        return Ended(status, out, err)

    return ran


@pytest.fixture
def tuned(store: Store) -> TuneResult:
    """Store a result for affine_f32 with a tie, a slow default and a failure."""
    kernel = kernels.by_id("affine_f32")
    space = kernel.implementations["numpy"].space
    default = space.default_schedule(kernel.sizes)
    others = [each for each in space.schedules(kernel.sizes) if each != default]
    answers = [
        (default, Recorded((4000, 4000))),
        (others[0], Recorded((1000, 1200, 1400))),
        (others[1], Recorded((1100, 1200, 1300))),
    ]
    return tune(store, kernel, device=ReplayDevice(TOPOLOGY, "numpy", answers))
