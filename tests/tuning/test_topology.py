import copy

import pytest

import castore
from castore.errors import MalformedError
from castore.tuning import host, machine, silicon_id, topology
from castore.tuning.errors import DeviceUnavailableError
from castore.tuning.topology_manifest import differing_fields, manifest


def test_the_topology_of_numpy_names_cpu_and_software_without_empty_strings() -> None:
    found = topology("numpy")
    assert (found["kind"], found["schema"]) == ("topology", 1)
    silicon, software = found["silicon"], found["software"]
    assert isinstance(silicon, dict)
    assert isinstance(software, dict)
    assert {"cores", "architecture"} <= silicon.keys()
    assert {"backend", "numpy", "os", "python", "blas_threads"} <= software.keys()
    assert "" not in [*silicon.values(), *software.values()]


def test_the_topology_is_the_same_each_time_and_belongs_to_the_caller() -> None:
    first = topology("numpy")
    want = castore.object_id(castore.encode(first))
    first["silicon"] = {}
    machine.forget()
    assert castore.object_id(castore.encode(topology("numpy"))) == want


def test_auto_falls_back_to_numpy_where_wgpu_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.forget()
    real = machine.describe

    def describe(device: str) -> dict[str, object]:
        if device == "wgpu":
            raise DeviceUnavailableError("wgpu", "no adapter")
        return real(device)

    monkeypatch.setattr(machine, "describe", describe)
    assert machine.chosen("auto") == "numpy"
    machine.forget()


def counted(monkeypatch: pytest.MonkeyPatch, absent: str) -> list[str]:
    """Count what is looked for; one device is absent."""
    machine.forget()
    looked: list[str] = []

    def describe(device: str) -> dict[str, object]:
        looked.append(device)
        if device == absent:
            raise DeviceUnavailableError(device, "no adapter was found")
        return manifest({"device": device}, {})

    monkeypatch.setattr(machine, "describe", describe)
    return looked


def test_a_device_is_looked_for_once_and_auto_remembers_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = counted(monkeypatch, absent="wgpu")
    assert topology() == topology() == topology("numpy")
    assert looked == ["wgpu", "numpy"]
    with pytest.raises(DeviceUnavailableError, match="no adapter was found"):
        topology("wgpu")
    assert looked == ["wgpu", "numpy", "wgpu"]
    machine.forget()


def test_another_environment_may_choose_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = counted(monkeypatch, absent="")
    topology("wgpu")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    topology("wgpu")
    assert looked == ["wgpu"]
    monkeypatch.setenv("VK_ICD_FILENAMES", "/another.json")
    topology("wgpu")
    assert looked == ["wgpu", "wgpu"]
    machine.forget()


def test_auto_says_why_when_there_is_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    machine.forget()

    def describe(device: str) -> dict[str, object]:
        raise DeviceUnavailableError(device, "is broken")

    monkeypatch.setattr(machine, "describe", describe)
    with pytest.raises(DeviceUnavailableError, match="wgpu cannot be used: is broken"):
        topology()


def test_unknown_facts_are_absent_keys() -> None:
    made = manifest({"device": "", "vendor_id": None, "cores": 2}, {"driver": ""})
    assert made["silicon"] == {"cores": 2}
    assert made["software"] == {}


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", "llvmpipe"),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", "AMD Radeon RX 7900 XTX"),
        ("AMD Radeon Graphics (radeonsi, gfx1103_r1, LLVM 17.0.6)", "AMD Radeon Graphics"),
        ("Intel(R) Arc(TM) A770 Graphics (DG2)", "Intel(R) Arc(TM) A770 Graphics (DG2)"),
        ("NVIDIA GeForce RTX 3090/PCIe/SSE2", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("Apple M2  Max", "Apple M2 Max"),
    ],
)  # fmt: skip
def test_a_device_name_keeps_the_hardware_and_loses_the_driver(reported: str, name: str) -> None:
    assert host.device_name(reported) == name


def test_silicon_stays_when_software_changes() -> None:
    one = topology("numpy")
    other = copy.deepcopy(one)
    assert isinstance(other["software"], dict)
    other["software"]["numpy"] = "0.0.1"
    assert silicon_id(one) == silicon_id(other)
    assert differing_fields(one, other) == ("topology.software.numpy",)
    assert castore.encode(one) != castore.encode(other)


def test_what_is_no_topology_has_no_silicon() -> None:
    with pytest.raises(MalformedError, match="silicon"):
        silicon_id({"kind": "topology"})


def test_a_cpu_without_proc_is_described_as_far_as_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_cpuinfo", dict)
    monkeypatch.setattr(host.platform, "processor", lambda: "")
    assert "cpu_model" not in host.cpu_silicon()
    assert "simd" not in host.cpu_silicon()
