"""What is known to differ on Windows breaks nothing; rehearsed, as there is none here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import castore
from tests.matrix.work import A
from tests.store.worlds import TOPOLOGY, errors_in, leftovers_on_disk, manifest

no_windows = pytest.mark.skipif(os.name == "nt", reason="the real thing needs no rehearsal")
ROOT = Path(__file__).parents[2]


def on_windows(script: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python that lacks what Windows lacks; `use_everything` is imported."""
    prepared = (
        # These choose their ways by the system's name: they are to find the true one.
        "import blake3, msgpack, zstandard, pytest, hypothesis, sys, random\n"
        "import multiprocessing.connection, concurrent.futures.process\n"
        "from tests.matrix import windows\n"
        "windows.rehearse()\n"
        "import castore, pytest\n"
        "from pathlib import Path\n"
        "from castore.maintenance import gc\n"
        "from tests.matrix.work import A, B, use_everything, collect\n"
        "from tests.store.worlds import TOPOLOGY\n"
        "root = Path(sys.argv[1])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", prepared + script, str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
    )


@no_windows
def test_a_store_works_where_posix_calls_are_missing_and_read_only_files_stay(
    tmp_path: Path,
) -> None:
    ran = on_windows("use_everything(root, 'first')\nuse_everything(root, 'again')\n", tmp_path)
    assert ran.returncode == 0, ran.stderr
    store = castore.open(tmp_path)
    assert store.lookup("tuning", TOPOLOGY, "shared") == manifest(11, who="again")
    assert leftovers_on_disk(tmp_path) == []
    assert errors_in(store) == []


@no_windows
def test_of_two_refs_of_one_name_the_second_conflicts_where_rename_replaces_nothing(
    tmp_path: Path,
) -> None:
    script = (
        "s = castore.open(root)\n"
        "s.record('tuning', TOPOLOGY, 'k', A)\n"
        "with pytest.raises(castore.RefConflictError):\n"
        "    s.record('tuning', TOPOLOGY, 'k', B)\n"
        "with pytest.raises(FileExistsError):\n"
        "    s.fs.write_new('local/tmp/x', b'')\n"
        "    s.fs.rename_new('local/tmp/x', 'format')\n"
    )
    ran = on_windows(script, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert castore.open(tmp_path).lookup("tuning", TOPOLOGY, "k") == A
