"""tune, why and topology."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import castore
from castore.cli.devices import device_text
from castore.store.store import Store
from castore.tuning import (
    DeviceUnavailableError,
    Found,
    Kernel,
    Tolerance,
    TuneResult,
    find,
    kernels,
    machine,
    topology,
    tuner,
)
from castore.tuning.kernels import affine_f32, matmul_f32

from .conftest import TOPOLOGY, Run

_SMALL = ("--candidates", "2", "--samples", "1", "--finalists", "1", "--finalist-samples", "2")


@pytest.fixture
def small_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    small = (affine_f32.sized(n=4096), matmul_f32.sized(k=32, m=32, n=32))
    monkeypatch.setattr(kernels, "BUILT_IN", small)


@pytest.mark.usefixtures("small_kernels")
def test_tune_all_stores_results_and_does_nothing_the_second_time(run: Run, tmp_path: Path) -> None:
    first = run("tune", "--all", "--device", "numpy", *_SMALL)
    assert first.status == 0
    header, *rows, last = first.out.splitlines()
    assert header.split() == [
        "KERNEL",
        "DEVICE",
        "WINNER",
        "MEDIAN",
        "VS",
        "DEFAULT",
        "VS",
        "WORST",
        "OBJECT",
    ]
    assert [row.split()[0] for row in rows] == ["affine_f32[n=4096]", "matmul_f32[k=32,m=32,n=32]"]
    assert all(row.endswith("measured") for row in rows)
    assert last == "tuned 2 kernels"
    assert "affine_f32[n=4096]: round 1: 2 candidates" in first.err
    second = run("tune", "--all", "--device", "numpy")
    assert second.status == 0
    assert second.out.startswith("nothing was tuned: every result is stored already and applies\n")
    assert second.out.count("stored\n") == 2
    assert second.err.startswith("castore: device numpy: ")
    assert second.err.count("\n") == 1
    assert run("fsck").status == 0


@pytest.mark.usefixtures("small_kernels")
def test_tune_forced_measures_again_and_can_be_undone(run: Run) -> None:
    [first] = run("tune", "affine_f32", "--device", "numpy", "--json", *_SMALL).document
    assert not first["was_stored"]
    [again] = run("tune", "affine_f32", "--device", "numpy", "--json", "--force", *_SMALL).document
    assert not again["was_stored"]
    assert again["object"] != first["object"]
    assert run("restore", "affine_f32").status == 0
    [kept] = run("tune", "affine_f32", "--device", "numpy", "--json").document
    assert (kept["object"], kept["was_stored"]) == (first["object"], True)


@pytest.mark.usefixtures("small_kernels")
def test_a_stored_result_that_had_less_effort_than_is_asked_for_is_told(run: Run) -> None:
    tune = ("tune", "affine_f32", "--device", "numpy")
    run(*tune, *_SMALL)
    ended = run(*tune, "--samples", "5", "--finalists", "2", "--candidates", "9")
    assert ended.out.startswith("nothing was tuned: ")
    assert ended.err.endswith(
        "castore: affine_f32[n=4096]: measured with less effort than asked for "
        "(candidates 2, not 9, samples 1, not 5, finalists 1, not 2); --force measures again\n"
    )
    for enough in ((), _SMALL, ("--samples", "1")):
        assert "less effort" not in run(*tune, *enough).err
    run(*tune, "--force", "--candidates", "900", "--samples", "1", "--finalists", "900")
    beyond = run(*tune, "--candidates", "1000", "--finalists", "1000")
    assert "less effort" not in beyond.err  # there are no more schedules


@pytest.mark.usefixtures("small_kernels")
def test_one_kernel_without_an_acceptable_candidate_costs_the_others_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, matmul = kernels.BUILT_IN
    impossible = dataclasses.replace(affine_f32.sized(n=600), tolerance=Tolerance(0.0, 0.0))
    monkeypatch.setattr(kernels, "BUILT_IN", (impossible, matmul))
    ended = run("tune", "--all", "--device", "numpy", *_SMALL)
    assert ended.status == 8
    assert "castore: affine_f32[n=600]: none of 2 candidates is acceptable" in ended.err
    assert "affine_f32[n=600]: rejected block=" in ended.err
    assert "tuned 1 kernel\n" in ended.out
    assert [ref["kernel"] for ref in run("ls", "--namespace", "tuning", "--json").document] == [
        matmul.text
    ]


@pytest.mark.usefixtures("small_kernels")
def test_auto_says_in_one_line_why_it_uses_numpy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine.topology

    def without_adapter(device: str = "auto") -> object:
        if device == "wgpu":
            raise DeviceUnavailableError("wgpu", "no adapter was found")
        return real(device)

    monkeypatch.setattr(machine, "topology", without_adapter)
    ended = run("tune", "affine_f32", *_SMALL)
    assert ended.status == 0
    told = "castore: using numpy: device wgpu cannot be used: no adapter was found\n"
    assert ended.err.startswith(f"{told}castore: device numpy: ")
    assert " numpy " in ended.out
    for command in (["why", "affine_f32"], ["topology"]):
        ended = run(*command)
        assert (ended.status, ended.err) == (0, told)
        assert " numpy: " in ended.out
        assert ", the CPU" in ended.out


@pytest.mark.usefixtures("small_kernels")
@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt(), OSError(28, "No space left")])
def test_tune_that_is_stopped_says_in_one_line_what_is_kept(
    stopped_by: BaseException, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tuner.tune

    def interrupted(store: Store, kernel: Kernel, **options: Any) -> TuneResult:
        if kernel.id == "matmul_f32":
            raise stopped_by
        return real(store, kernel, **options)

    monkeypatch.setattr(tuner, "tune", interrupted)
    first = run("tune", "--all", "--device", "numpy", *_SMALL)
    assert first.status == (130 if isinstance(stopped_by, KeyboardInterrupt) else 1)
    assert "castore: stopped; kept: affine_f32[n=4096]\n" in first.err
    assert run("why", "affine_f32", "--device", "numpy").status == 0
    again = run("tune", "--all", "--device", "numpy", *_SMALL)
    assert "castore: stopped; nothing new was stored\n" in again.err


@pytest.mark.parametrize(
    ("device", "adapter_type", "told"),
    [
        ("wgpu", "cpu", "wgpu: llvmpipe, a software adapter that runs on the CPU"),
        ("wgpu", "discrete", "wgpu: llvmpipe"),
        ("numpy", "cpu", "numpy: llvmpipe, the CPU"),
    ],
)
def test_a_device_is_told_with_the_adapter_and_whether_it_is_the_cpu(
    device: str, adapter_type: str, told: str
) -> None:
    silicon: dict[str, Any] = {"device": "llvmpipe", "adapter_type": adapter_type}
    assert device_text(device, {"silicon": silicon, "software": {}}) == told
    assert device_text(device, "foreign") == f"{device}: unknown hardware"


@pytest.mark.parametrize("arguments", [[], ["--all", "affine_f32"]])
def test_tune_wants_kernels_or_all(run: Run, arguments: list[str], tmp_path: Path) -> None:
    ended = run("tune", *arguments)
    assert ended.status == 2
    assert "affine_f32, matmul_f32" in ended.err
    assert ("not both" in ended.err) == bool(arguments)
    assert not (tmp_path / "store").exists()


def test_tune_of_an_unknown_kernel_names_those_that_there_are(run: Run) -> None:
    ended = run("tune", "softmax")
    assert ended.status == 3
    assert "affine_f32, matmul_f32" in ended.err


def _without(package: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where a package cannot be imported, workers included."""
    (folder / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None\n")
    return subprocess.run(
        [sys.executable, "-m", "castore", *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_device_that_is_not_there_has_its_status(tmp_path: Path) -> None:
    ended = _without("wgpu", tmp_path, "topology", "--device", "wgpu")
    assert ended.returncode == 9
    assert ended.stderr.startswith("castore: device wgpu cannot be used")
    assert ended.stderr.count("\n") == 1


def test_without_numpy_tune_says_what_to_install(tmp_path: Path) -> None:
    ended = _without("numpy", tmp_path, "tune", "affine_f32", "--device", "numpy")
    assert ended.returncode == 9
    assert "castore: numpy is not installed; run: pip install 'castore[tune]'\n" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [["why", "affine_f32"], ["topology"], ["tune", "--all"]])
def test_without_numpy_nothing_that_needs_a_device_shows_a_traceback(
    command: list[str], tmp_path: Path
) -> None:
    assert _without("numpy", tmp_path, "init").returncode == 0
    ended = _without("numpy", tmp_path, *command)
    assert ended.returncode == 9
    assert ended.stderr == ("castore: numpy is not installed; run: pip install 'castore[tune]'\n")


def test_without_numpy_a_store_can_be_used(tmp_path: Path) -> None:
    assert _without("numpy", tmp_path, "init").returncode == 0
    assert _without("numpy", tmp_path, "fsck").returncode == 0


@pytest.mark.adapter
@pytest.mark.usefixtures("small_kernels")
def test_tune_runs_wgsl_on_an_adapter(run: Run) -> None:
    [result] = run("tune", "affine_f32", "--device", "wgpu", "--json", *_SMALL).document
    assert result["device"] == "wgpu"
    assert result["median_ns"] > 0
    assert "workgroup_size=" in run("show", "affine_f32").out
    assert run("why", "affine_f32", "--device", "wgpu").status == 0


@pytest.mark.usefixtures("small_kernels")
def test_why_tells_what_applies_and_which_fields_differ(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init")
    never = run("why", "affine_f32", "--device", "numpy")
    assert never.status == 3
    assert "has not been tuned; run: castore tune affine_f32" in never.out
    run("tune", "affine_f32", "--device", "numpy", *_SMALL)
    applies = run("why", "affine_f32", "--device", "numpy")
    assert applies.status == 0
    assert "was tuned on this topology" in applies.out
    found = run("why", "affine_f32", "--device", "numpy", "--json").document
    assert found["found"]["is_exact"] is True
    affine, matmul = kernels.BUILT_IN
    stricter = dataclasses.replace(affine, tolerance=Tolerance(1e-7, 1e-7), semantic_version=2)
    monkeypatch.setattr(kernels, "BUILT_IN", (stricter, matmul))
    differs = run("why", "affine_f32", "--device", "numpy")
    assert differs.status == 3
    assert (
        "differs: semantic_version: stored 1, here 2\n"
        "differs: tolerance.absolute: stored 1e-06, here 1e-07\n"
        "differs: tolerance.relative: stored 1e-06, here 1e-07\n"
        "next: castore tune affine_f32 --device numpy\n"
    ) in differs.out
    document = run("why", "affine_f32", "--device", "numpy", "--json").document
    assert document["differences"][0] == {
        "field": "semantic_version",
        "stored": "1",
        "here": "2",
    }


@pytest.mark.usefixtures("small_kernels")
def test_why_of_the_same_silicon_tells_of_the_result_that_could_be_accepted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("tune", "affine_f32", "--device", "numpy", *_SMALL)
    real = topology("numpy")
    software = {**real["software"], "numpy": "99.0", "blas": "64" * 32, "features": ["a", "b"]}
    monkeypatch.setattr(machine, "topology", lambda _: {**real, "software": software})
    told = run("why", "affine_f32", "--device", "numpy").out
    assert (
        f"differs: topology.software.numpy: stored {real['software']['numpy']}, here 99.0" in told
    )
    assert "differs: topology.software.features: stored nothing, here a, b\n" in told
    assert f"here {'64' * 6}\n" in told
    assert "castore why affine_f32 --device numpy --accept other-driver" in told
    accepted = run("why", "affine_f32", "--device", "numpy", "--accept", "other-driver")
    assert accepted.status == 0


@pytest.mark.usefixtures("small_kernels")
def test_a_kernel_may_be_named_by_its_whole_text(run: Run) -> None:
    [result] = run("tune", "affine_f32[n=4096]", "--device", "numpy", "--json", *_SMALL).document
    assert result["kernel"] == "affine_f32[n=4096]"
    assert run("why", "affine_f32[n=4096]", "--device", "numpy").status == 0


def test_why_lists_other_topologies_that_know_the_kernel(tuned: TuneResult, run: Run) -> None:
    ended = run("why", "affine_f32", "--device", "numpy")
    assert ended.status == 3
    assert "tuned on another topology, which differs in topology.silicon" in ended.out
    assert tuned.topology[:12] in ended.out.partition("also stored:")[2]
    document = run("why", "affine_f32", "--device", "numpy", "--json").document
    assert document["found"] is None
    assert "topology.silicon.cpu_model" in document["fields"]
    [model] = [each for each in document["differences"] if "cpu_model" in each["field"]]
    assert model["stored"] == "Recorded CPU"
    assert model["here"] != "Recorded CPU"
    assert [each["object"] for each in document["others"]] == [tuned.object]


def test_topology_prints_the_manifest_whose_id_it_tells(run: Run) -> None:
    document = run("topology", "--device", "numpy", "--json").document
    manifest = document["manifest"]
    assert castore.object_id(castore.encode(manifest)) == document["topology"]
    told = run("topology", "--device", "numpy").out
    assert told.startswith(f"topology {document['topology']}\ndevice numpy: ")
    assert ", the CPU\nsilicon:\n" in told
    assert "backend: numpy" in told


def test_topology_lists_those_that_the_store_knows(tuned: TuneResult, run: Run) -> None:
    lines = run("topology", "--list").out.splitlines()
    assert lines[1].split() == [tuned.topology[:12], "Recorded", "CPU", "numpy", "-"]
    assert run("topology", "--list", "--json").document == [
        {"topology": tuned.topology, "manifest": TOPOLOGY}
    ]


def test_a_result_of_the_command_is_found_by_a_library(
    run: Run, tmp_path: Path, small_kernels: None
) -> None:
    run("tune", "affine_f32", "--device", "numpy", *_SMALL)
    kernel = kernels.by_id("affine_f32")
    with castore.open(tmp_path / "store", read_only=True) as store:
        found = find(store, kernel, topology=topology("numpy"))
    assert isinstance(found, Found)
