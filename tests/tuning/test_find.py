import dataclasses
import importlib
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import castore
from castore.errors import MalformedError
from castore.store.store import Store
from castore.tuning import (
    Applicability,
    Found,
    Kernel,
    MeasuringPolicy,
    Missing,
    PythonImplementation,
    Recorded,
    ReplayDevice,
    Tolerance,
    find,
    kernels,
    tune,
)

DoubleKernel = Callable[..., Kernel]
Topology = dict[str, Any]


def tuned(store: Store, kernel: Kernel, topology: Topology) -> None:
    answers = [({"mode": 0}, Recorded((2e6,))), ({"mode": 1}, Recorded((1e6,)))]
    tune(store, kernel, device=ReplayDevice(topology, "numpy", answers))


def encoded_id(topology: Topology) -> str:
    return castore.object_id(castore.encode(topology))


def with_software(topology: Topology, **software: object) -> Topology:
    return {**topology, "software": {**topology["software"], **software}}


def test_a_result_is_found_by_topology_manifest_and_by_its_id(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    by_manifest = find(store, kernel, topology=topology)
    by_id = find(store, kernel, topology=castore.object_id(castore.encode(topology)))
    assert isinstance(by_manifest, Found)
    assert by_manifest == by_id
    assert by_manifest.schedule == {"mode": 1}
    assert by_manifest.is_exact


def test_a_kernel_never_tuned_is_missing_without_fields(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    answer = find(store, double(0, 1), topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ()
    assert answer.reason.endswith("has not been tuned; call: castore.tuning.tune(store, kernel)")


def test_a_kernel_that_the_command_can_tune_is_missing_with_the_command(
    store: Store, topology: Topology
) -> None:
    missing = find(store, kernels.affine_f32, topology=topology)
    assert missing.reason.endswith("run: castore tune affine_f32")
    other_size = find(store, kernels.affine_f32.sized(n=5), topology=topology)
    assert "castore tune" not in other_size.reason


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("semantic_version", {"semantic_version": 2}),
    ("tolerance", {"tolerance": Tolerance(0.0, 5e-7)}),
]


@pytest.mark.parametrize(("field", "change"), CHANGES)
def test_a_changed_kernel_is_missing_and_the_field_is_named(
    store: Store, double: DoubleKernel, topology: Topology, field: str, change: dict[str, Any]
) -> None:
    tuned(store, double(0, 1), topology)
    answer = find(store, double(0, 1, **change), topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == (field,)
    assert field in answer.reason


def test_a_grown_schedule_space_is_named(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    tuned(store, double(0, 1), topology)
    answer = find(store, double(0, 1, 14), topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("schedule_space",)


def test_changed_source_is_named(store: Store, double: DoubleKernel, topology: Topology) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    other = dataclasses.replace(kernel.implementations["numpy"], function="misbehaving:make_inputs")
    changed = dataclasses.replace(kernel, implementations={"numpy": other})
    answer = find(store, changed, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("source",)


def test_a_changed_element_type_is_named_as_the_problem(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    signature = kernel.signature(kernel.sizes)
    output = dataclasses.replace(signature.output, dtype="int32")
    changed = dataclasses.replace(
        kernel, signature=lambda _: dataclasses.replace(signature, output=output)
    )
    answer = find(store, changed, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("problem",)


def test_a_changed_measuring_policy_is_named(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    found = find(store, kernel, topology=topology)
    assert isinstance(found, Found)
    older = dataclasses.replace(
        found.manifest.applicability, measuring_policy=MeasuringPolicy(sample_floor_ns=1)
    )
    manifest = dataclasses.replace(found.manifest, applicability=older)
    store.record("tuning", topology, kernel.text, manifest.to_value(), on_conflict="replace")
    answer = find(store, kernel, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("measuring_policy",)


def test_several_changes_are_all_named(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    tuned(store, double(0, 1), topology)
    changed = double(0, 1, 2, semantic_version=9, tolerance=Tolerance(1.0, 0.0))
    answer = find(store, changed, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("semantic_version", "tolerance", "schedule_space")


def test_an_implementation_that_is_gone_is_named(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    moved = dataclasses.replace(
        kernel, implementations={"wgpu": kernels.affine_f32.implementations["wgpu"]}
    )
    answer = find(store, moved, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("implementation",)


def test_another_problem_size_is_another_kernel_text(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    tuned(store, double(0, 1), topology)
    assert isinstance(find(store, double(0, 1).sized(n=65), topology=topology), Missing)


def test_another_backend_of_the_same_device_is_missing_and_named(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = kernels.affine_f32.sized(n=4096)
    default = kernel.implementations["wgpu"].space.default
    device = ReplayDevice(
        with_software(topology, backend="Vulkan"), "wgpu", [(default, Recorded((1e6,)))]
    )
    tune(store, kernel, device=device)
    here = with_software(topology, backend="OpenGL")
    answer = find(store, kernel, topology=here)
    assert isinstance(answer, Missing)
    assert answer.fields == ("topology.software.backend",)
    assert isinstance(find(store, kernel, topology=here, accept="other-driver"), Found)


def test_an_adapter_on_the_cpu_and_numpy_never_serve_each_others_results(
    store: Store, topology: Topology
) -> None:
    kernel = kernels.affine_f32.sized(n=4096)
    on = {"numpy": topology, "wgpu": with_software(topology, backend="Vulkan")}
    for implementation, other in (("numpy", "wgpu"), ("wgpu", "numpy")):
        default = kernel.implementations[implementation].space.default_schedule(kernel.sizes)
        answers = [(default, Recorded((1e6,)))]
        tune(store, kernel, device=ReplayDevice(on[implementation], implementation, answers))
        answer = find(store, kernel, topology=on[other], accept="other-driver")
        assert isinstance(answer, Missing)
        assert "topology.software.backend" in answer.fields
        store.delete_ref("tuning", encoded_id(on[implementation]), kernel.text)


def test_a_result_of_another_kind_of_device_on_this_topology_is_missing(
    store: Store, topology: Topology
) -> None:
    kernel = kernels.affine_f32.sized(n=4096)
    default = kernel.implementations["wgpu"].space.default
    device = ReplayDevice(topology, "wgpu", [(default, Recorded((1e6,)))])
    assert device.topology()["software"] == topology["software"]
    tune(store, kernel, device=device)
    answer = find(store, kernel, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("implementation",)


@pytest.mark.parametrize("accept", ["exact", "other-driver"])
def test_a_replayed_result_is_never_found_for_the_hardware(
    store: Store, double: DoubleKernel, topology: Topology, accept: Literal["exact", "other-driver"]
) -> None:
    kernel = double(0, 1)
    real = with_software(topology, replayed=False)
    device = ReplayDevice(real, "numpy", [({"mode": 0}, Recorded((2e6,)))])
    result = tune(store, kernel, device=device)
    answer = find(store, kernel, topology=real, accept=accept)
    assert isinstance(answer, Missing)
    assert answer.fields == ("topology.software.replayed",)
    # Not even where somebody files it under the hardware's own topology.
    store.record("tuning", real, kernel.text, result.manifest.to_value())
    answer = find(store, kernel, topology=real, accept=accept)
    assert isinstance(answer, Missing)
    assert answer.fields == ("winner.timing.source",)


FOREIGN_TOPOLOGIES: list[Any] = [
    5,
    [],
    {},
    {"kind": "topology", "schema": 1, "silicon": {}},
    {"kind": "topology", "schema": 1, "software": {}},
    {"kind": "topology", "schema": 1, "silicon": "text", "software": {}},
    {"kind": "topology", "schema": 1, "silicon": {}, "software": []},
]


@pytest.mark.parametrize("foreign", FOREIGN_TOPOLOGIES)
@pytest.mark.parametrize("accept", ["exact", "other-driver"])
def test_a_foreign_topology_costs_the_others_nothing(
    store: Store,
    double: DoubleKernel,
    topology: Topology,
    foreign: Any,
    accept: Literal["exact", "other-driver"],
) -> None:
    kernel = double(0, 1)
    strange = store.put(foreign)
    store.set_ref("topology", strange, "topology", strange)
    store.record("tuning", strange, kernel.text, {"kind": "tuning"})
    assert isinstance(find(store, kernel, topology=topology, accept=accept), Missing)
    assert isinstance(find(store, kernel, topology=strange, accept=accept), Missing)
    tuned(store, kernel, topology)
    assert isinstance(find(store, kernel, topology=topology, accept=accept), Found)
    # Nor is it what is told, being nearest by knowing nothing of itself.
    newer = with_software(topology, numpy="9", os="x")
    answer = find(store, kernel, topology=newer, accept=accept)
    assert isinstance(answer, Missing if accept == "exact" else Found)
    assert "topology.software.numpy" in answer.fields


def test_a_topology_that_is_none_is_refused(store: Store, double: DoubleKernel) -> None:
    with pytest.raises(MalformedError, match="silicon"):
        find(store, double(0), topology={"kind": "topology"})


def test_a_kernel_whose_source_is_gone_is_missing_with_the_reason(
    store: Store,
    double: DoubleKernel,
    topology: Topology,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = tmp_path / "soon_gone.py"
    source.write_text("def double(inputs, output, sizes, schedule): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space = double(0, 1).implementations["numpy"].space
    kernel = double(0, implementations={"numpy": PythonImplementation("soon_gone:double", space)})
    tuned(store, kernel, topology)
    source.unlink()
    importlib.invalidate_caches()
    answer = find(store, kernel, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("source",)
    assert "soon_gone:double" in answer.reason


def test_what_is_found_is_one_reading_of_the_ref(
    store: Store, double: DoubleKernel, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    first = find(store, kernel, topology=topology)
    assert isinstance(first, Found)
    second = dataclasses.replace(
        first.manifest, provenance=dataclasses.replace(first.manifest.provenance, host="other")
    )
    lookup = store.lookup

    def replaced_after(*args: Any) -> Any:
        value = lookup(*args)
        store.record("tuning", topology, kernel.text, second.to_value(), on_conflict="replace")
        return value

    monkeypatch.setattr(store, "lookup", replaced_after)
    found = find(store, kernel, topology=topology)
    assert isinstance(found, Found)
    assert store.get(found.object) == found.manifest.to_value()


def test_a_foreign_topology_id_is_missing_and_the_topology_named(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    answer = find(store, kernel, topology="ab" * 32)
    assert isinstance(answer, Missing)
    assert answer.fields == ("topology",)


def test_other_driver_takes_a_result_from_the_same_silicon_and_says_so(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    updated = with_software(topology, numpy="2.1.0")
    assert isinstance(find(store, kernel, topology=updated), Missing)
    answer = find(store, kernel, topology=updated, accept="other-driver")
    assert isinstance(answer, Found)
    assert not answer.is_exact
    assert answer.fields == ("topology.software.numpy",)
    assert "same silicon" in answer.reason
    assert answer.topology == castore.object_id(castore.encode(topology))


def test_other_driver_takes_the_nearest_result(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    for software in ({"numpy": "1", "blas": "x", "os": "y"}, {"blas": "x"}, {"numpy": "1"}):
        tuned(store, kernel, with_software(topology, **software))
    here = with_software(topology, numpy="1", os="y")
    answer = find(store, kernel, topology=here, accept="other-driver")
    assert isinstance(answer, Found)
    assert answer.fields == ("topology.software.os",)


def test_other_driver_takes_nothing_from_other_silicon(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    elsewhere = {**topology, "silicon": {"cpu_model": "Another CPU", "cores": 4}}
    answer = find(store, kernel, topology=elsewhere, accept="other-driver")
    assert isinstance(answer, Missing)
    assert answer.fields == ("topology.silicon.cpu_model",)


def test_other_driver_still_compares_what_the_result_holds_for(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    tuned(store, double(0, 1), topology)
    updated = with_software(topology, numpy="2.1.0")
    changed = double(0, 1, semantic_version=2)
    answer = find(store, changed, topology=updated, accept="other-driver")
    assert isinstance(answer, Missing)
    assert answer.fields == ("semantic_version",)


def test_other_driver_checks_the_schedule_against_this_adapters_limits(
    store: Store, topology: Topology
) -> None:
    topology = with_software(topology, backend="Vulkan")
    kernel = kernels.affine_f32.sized(n=4096)
    wide = {"workgroup_size": 1024, "items": 1, "contiguous": 0}
    tune(store, kernel, device=ReplayDevice(topology, "wgpu", [(wide, Recorded((1e6,)))]),
         candidates_max=100)  # fmt: skip
    limits = {"max-compute-invocations-per-workgroup": 256}
    narrow = with_software(topology, limits=limits)
    answer = find(store, kernel, topology=narrow, accept="other-driver")
    assert isinstance(answer, Missing)
    assert "max-compute-invocations-per-workgroup = 256" in answer.reason
    roomy = with_software(topology, limits={"max-compute-invocations-per-workgroup": 1024})
    assert isinstance(find(store, kernel, topology=roomy, accept="other-driver"), Found)


def test_the_nearest_topology_is_the_one_that_is_told(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, with_software(topology, numpy="1.0", blas="x", driver="y"))
    tuned(store, kernel, with_software(topology, blas="x"))
    answer = find(store, kernel, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("topology.software.blas",)


def test_a_manifest_of_another_shape_is_missing_with_the_field(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    store.record("tuning", topology, kernel.text, {"kind": "tuning", "schema": 1, "kernel": 5})
    answer = find(store, kernel, topology=topology)
    assert isinstance(answer, Missing)
    assert answer.fields == ("manifest",)
    assert ".kernel" in answer.reason or "missing" in answer.reason


def test_a_damaged_result_is_missing(
    store: Store, double: DoubleKernel, topology: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = double(0, 1)
    tuned(store, kernel, topology)
    found = find(store, kernel, topology=topology)
    assert isinstance(found, Found)
    path = store.root / "objects" / found.object[:2] / found.object[2:]
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "castore"):
        assert isinstance(find(store, kernel, topology=topology), Missing)


def test_an_unknown_acceptance_is_refused(store: Store, double: DoubleKernel) -> None:
    with pytest.raises(MalformedError, match="other-driver"):
        find(store, double(0), topology="ab" * 32, accept="any")


_FIND = """
import sys
import castore
from castore import tuning
with castore.open(sys.argv[1]) as store:
    for kernel in tuning.kernels.BUILT_IN:
        tuning.find(store, kernel, topology="ab" * 32)
        for implementation in kernel.implementations:
            tuning.Applicability.of(kernel, implementation)
print([name for name in ("numpy", "wgpu", "rich") if name in sys.modules])
"""


def test_find_with_a_topology_imports_neither_numpy_nor_wgpu(store: Store) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIND, str(store.root)], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_applicability_has_every_field_that_a_result_hangs_on() -> None:
    names = {field.name for field in dataclasses.fields(Applicability)}
    assert names == {
        "kernel_id", "implementation", "semantic_version", "source", "problem", "tolerance",
        "schedule_space", "measuring_policy",
    }  # fmt: skip
