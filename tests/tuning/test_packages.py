"""What an installation without the extra `tune` says."""

import subprocess
import sys
from pathlib import Path

import pytest

_WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import castore
from castore import tuning
with castore.open(sys.argv[1]) as store:
    kernel = tuning.kernels.affine_f32
    assert isinstance(tuning.find(store, kernel, topology="ab" * 32), tuning.Missing)
    try:
        {}
    except ImportError as error:
        assert isinstance(error, castore.CastoreError)
        print(error)
"""


@pytest.mark.parametrize(
    "needs_numpy",
    [
        "tuning.tune(store, kernel)",
        "from castore.tuning import tune",
        "tuning.find(store, kernel)",
        "tuning.topology()",
        "tuning.topology('numpy')",
        "tuning.uniform_f32",
    ],
)
def test_without_numpy_one_short_error_names_the_extra(tmp_path: Path, needs_numpy: str) -> None:
    script = _WITHOUT_NUMPY.format(needs_numpy)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "numpy is not installed; run: pip install 'castore[tune]'\n"
