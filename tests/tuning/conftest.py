import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import castore
from castore.store.store import Store
from castore.tuning import (
    ArraySpec,
    Kernel,
    Knob,
    PythonImplementation,
    ScheduleSpace,
    Signature,
    Tolerance,
)
from castore.tuning.python_source import deferred

CANDIDATES = str(Path(__file__).parent / "candidates")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with castore.open(tmp_path / "store", durability="none") as opened:
        yield opened


@pytest.fixture
def topology() -> dict[str, object]:
    return {
        "kind": "topology",
        "schema": 1,
        "silicon": {"cpu_model": "Recorded CPU", "cores": 4},
        "software": {"backend": "numpy", "numpy": "2.0.0", "limits": {}, "replayed": True},
    }


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    """Make the kernel y = 2 x, whose knob `mode` may take the given values."""
    monkeypatch.syspath_prepend(CANDIDATES)

    def make(*modes: int, n: int = 64, default: int = 0, **changes: object) -> Kernel:
        space = ScheduleSpace((Knob("mode", tuple(modes)),), {"mode": default})
        fields = {
            "id": "double_f32",
            "semantic_version": 1,
            "sizes": {"n": n},
            "signature": lambda sizes: Signature(
                (ArraySpec("x", "float32", (sizes["n"],)),),
                ArraySpec("y", "float32", (sizes["n"],)),
            ),
            "make_inputs": deferred("misbehaving:make_inputs"),
            "oracle": deferred("misbehaving:oracle"),
            "tolerance": Tolerance(0.0, 1e-6),
            "implementations": {"numpy": PythonImplementation("misbehaving:double", space)},
        }
        return Kernel(**{**fields, **changes})

    yield make
    sys.modules.pop("misbehaving", None)
