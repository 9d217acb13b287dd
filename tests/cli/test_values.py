"""put, cat and show."""

import io
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings

import castore
from castore.cli.main import main
from castore.cli.tagged import to_json
from castore.store.store import Store
from castore.tuning import TuneResult

from .conftest import Run
from .test_tagged import _VALUES


def _as_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_put_prints_the_id_and_makes_the_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "value.json").write_text('{"kind": "note", "schema": 1}')
    ended = run("put", str(tmp_path / "value.json"))
    assert ended.status == 0
    with castore.open(tmp_path / "store", create=False) as store:
        assert store.get(ended.out.strip()) == {"kind": "note", "schema": 1}


def test_put_reads_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_stdin(monkeypatch, b"[1, 1.0]")
    oid = castore.object_id(castore.encode([1, 1.0]))
    assert run("--json", "put").document == {"object": oid}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_VALUES)
def test_what_cat_prints_put_takes_with_the_same_id(
    store: Store, run: Run, tmp_path: Path, value: object
) -> None:
    oid = store.put(value)
    (tmp_path / "printed.json").write_text(run("cat", oid).out)
    assert run("put", str(tmp_path / "printed.json")).out == f"{oid}\n"


def test_put_takes_msgpack_that_is_not_canonical(run: Run, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(msgpack.packb({"b": 1, "a": 2}))
    oid = castore.object_id(castore.encode({"a": 2, "b": 1}))
    assert run("put", "--format", "msgpack", str(tmp_path / "value")).out == f"{oid}\n"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x82\xa1a\x01\xa1a\x02", "'a' stands twice"),
        (b"\x81\x01\x02", "castore:"),
        (b"\xc1", "castore:"),
        (b"\x01\x01", "castore:"),
    ],
)
def test_put_refuses_msgpack_that_no_object_can_hold(
    run: Run, tmp_path: Path, data: bytes, told: str
) -> None:
    (tmp_path / "value").write_bytes(data)
    ended = run("put", "--format", "msgpack", str(tmp_path / "value"))
    assert ended.status == 2
    assert told in ended.err


@pytest.mark.parametrize("data", [b"{", b'{"a": 1, "a": 1}', b"\xff", b"18446744073709551616"])
def test_put_refuses_what_is_no_value(run: Run, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "value").write_bytes(data)
    ended = run("put", str(tmp_path / "value"))
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_cat_prints_the_canonical_bytes(
    store: Store, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    value = {"x": [1.5, b"\x00"]}
    oid = store.put(value)
    assert main(["cat", "--format", "msgpack", oid]) == 0
    assert capfdbinary.readouterr().out == castore.encode(value)


def test_cat_takes_an_abbreviation_and_every_kind_of_ref(store: Store, run: Run) -> None:
    topology = store.put({"kind": "topology", "schema": 1, "silicon": {}, "software": {}})
    oid = store.record("tuning", topology, "gemm[k=1]", {"kind": "x", "schema": 1})
    store.set_ref("by-key-tuning", key="ab" * 32, id=oid)
    store.set_name("baseline", oid)
    wanted = to_json({"kind": "x", "schema": 1}) + "\n"
    for text in (
        oid,
        oid[:8],
        "baseline",
        "names/baseline",
        "gemm",
        "gemm[k=1]",
        "tuning/gemm[k=1]",
        "tuning/ge?m*",
        "by-key-tuning/abab",
    ):
        assert run("cat", text).out == wanted, text


def test_a_kernel_made_of_hex_digits_is_found_by_its_name(store: Store, run: Run) -> None:
    store.record("tuning", "ab" * 32, "decade[n=1]", 5)
    assert run("cat", "decade").out == "5\n"


def test_an_ambiguous_abbreviation_names_the_candidates(store: Store, run: Run) -> None:
    ids: dict[str, list[str]] = {}
    for number in range(2000):
        oid = castore.object_id(castore.encode(number))
        ids.setdefault(oid[:4], []).append(oid)
    pairs = {prefix: found for prefix, found in ids.items() if len(found) > 1}
    prefix, (one, other, *_) = next(iter(pairs.items()))
    for number in range(2000):
        if castore.object_id(castore.encode(number)) in (one, other):
            store.put(number)
    ended = run("cat", prefix)
    assert ended.status == 2
    assert one in ended.err
    assert other in ended.err
    longer = next(n for n in range(4, 64) if one[:n] != other[:n])
    assert run("cat", one[:longer]).status == 0


def test_a_kernel_on_two_topologies_needs_the_topology(store: Store, run: Run) -> None:
    for number, topology in enumerate(("aaaa" + "0" * 60, "bbbb" + "0" * 60)):
        store.record("tuning", topology, "gemm[k=1]", number)
    ended = run("cat", "gemm")
    assert ended.status == 2
    assert "aaaa00000000" in ended.err
    assert "bbbb00000000" in ended.err
    assert run("cat", "gemm", "--topology", "bbbb").out == "1\n"


@pytest.mark.parametrize("text", ["ab" * 32, "abcd", "nothing", "tuning/nothing", "names/nothing"])
def test_cat_of_what_is_not_there_says_so(store: Store, run: Run, text: str) -> None:
    store.put(1)
    ended = run("cat", text)
    assert ended.status == 3
    assert text in ended.err


def test_cat_of_a_damaged_object_says_so(store: Store, run: Run, tmp_path: Path) -> None:
    oid = store.put("whole")
    path = tmp_path / "store" / "objects" / oid[:2] / oid[2:]
    path.chmod(0o600)
    path.write_bytes(b"junk")
    ended = run("cat", oid)
    assert ended.status == 4
    assert "run: castore repair" in ended.err


def test_show_explains_a_tuning_result(tuned: TuneResult, run: Run) -> None:
    shown = run("show", "affine_f32").out
    assert shown.startswith(f"object {tuned.object}\ntuning result for affine_f32[")
    assert "median 1.20 us" in shown
    assert "tie set" in shown
    then = tuned.manifest.fastest_first_ns
    assert f"round 1     the winner took {then / 1000:.2f} us\n" in shown
    against = f"4.00 us in round 1; the winner was {tuned.speed_against_default:.2f}x as fast then"
    assert shown.count(against) == 2  # the default is the slowest
    listed = shown.partition("tie set")[2].partition("failures:")[0].splitlines()[1:]
    assert len(listed) == len(tuned.tie_set) - 1 == 1
    assert "ties        1 other schedule\n" in shown
    assert "failures:" in shown
    assert f"{tuned.failures[0].stage}: {tuned.failures[0].reason}" in shown
    assert f"and {tuned.manifest.failed - len(tuned.failures)} more" in shown
    assert tuned.manifest.evidence in shown
    sizes = "n=1048576: coefficients float32[2], x float32[1048576] -> y float32[1048576]"
    assert f"problem    {sizes}\n" in shown


@pytest.mark.parametrize("namespace", ["tuning", "certification"])
def test_show_tells_the_hardware_of_a_result(
    namespace: str, tuned: TuneResult, store: Store, run: Run
) -> None:
    told = (
        f"on this hardware:\n  topology  {tuned.topology[:12]}\n"
        "  device    numpy: Recorded CPU\n  backend   numpy\n"
    )
    assert run("show", f"{namespace}/affine_f32").out.endswith(told)
    assert run("show", f"{namespace}/affine_f32", "--json").document["topologies"] == [
        tuned.topology
    ]
    oid = run("ls", "--namespace", namespace, "--json").document[0]["object"]
    run("forget", "--kernel", "affine_f32")
    assert run("show", oid).out.endswith(told)  # by the log, as by the ref before


def test_show_tells_of_an_adapter_its_driver_and_whether_it_is_the_cpu(
    tuned: TuneResult, store: Store, run: Run
) -> None:
    topology = {
        "kind": "topology",
        "schema": 1,
        "silicon": {"device": "llvmpipe", "adapter_type": "cpu"},
        "software": {"backend": "Vulkan", "driver": "llvmpipe", "driver_version": "Mesa 25.0"},
    }
    store.delete_ref("tuning", tuned.topology, tuned.manifest.kernel)
    store.set_ref("tuning", topology, tuned.manifest.kernel, tuned.object)
    shown = run("show", "affine_f32").out
    assert "device    wgpu: llvmpipe, a software adapter that runs on the CPU\n" in shown
    assert "driver    Mesa 25.0\n" in shown
    store.delete_ref("tuning", castore.object_id(castore.encode(topology)), tuned.manifest.kernel)
    store.set_ref("tuning", "ab" * 32, tuned.manifest.kernel, tuned.object)
    assert "unknown: the topology is not in this store" in run("show", "affine_f32").out


def test_show_explains_evidence_and_certification(tuned: TuneResult, run: Run) -> None:
    evidence = run("show", tuned.manifest.evidence).out
    assert "accepted by the oracle" in evidence
    certified = run("show", "certification/affine_f32").out
    assert "evidence, not proof" in certified


def test_show_gives_the_whole_value_as_json(tuned: TuneResult, run: Run) -> None:
    document = run("show", "affine_f32", "--json").document
    assert document["object"] == tuned.object
    assert document["value"]["kind"] == "tuning"
    assert document["value"]["evidence"] == {"$weak": tuned.manifest.evidence}


def test_show_prints_other_kinds_as_a_tree(store: Store, run: Run) -> None:
    value = {
        "kind": "tuning",
        "schema": 1,
        "shape": [1, 2.0],
        "empty": [],
        "link": castore.Link(store.put(1)),
        "bytes": b"\x00" * 20,
        "many": [{"n": n} for n in range(60)],
    }
    shown = run("show", store.put(value)).out
    assert "not a manifest of its kind" in shown
    assert "shape: [1, 2.0]\n" in shown
    assert "empty: []\n" in shown
    assert f"link: link to {store.put(1)}\n" in shown
    assert "20 bytes: 0000" in shown
    assert "and 20 more" in shown
