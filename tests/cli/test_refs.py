"""ls, log, restore and forget."""

import os
import shlex
from pathlib import Path

import pytest

import castore
from castore.store.store import Store

from .conftest import TOPOLOGY, Run

_HOSTILE = "gemm[\u202ek=1]\u200b"
_HOSTILE_SHOWN = "gemm[\\u202ek=1]\\u200b"
_FOREIGN = "cd" * 32


def _fill(store: Store) -> str:
    topology = store.put(TOPOLOGY)
    for kernel in ("affine_f32[n=4]", "matmul_f32[k=1,m=1,n=1]", "matmul_f32[k=2,m=2,n=2]"):
        store.record("tuning", topology, kernel, {"kernel": kernel})
    store.record("certification", topology, "affine_f32[n=4]", 1)
    store.record("tuning", _FOREIGN, "affine_f32[n=4]", 2)
    store.set_name("baseline", topology)
    return topology


def test_ls_shows_every_ref_in_order(store: Store, run: Run) -> None:
    topology = _fill(store)
    lines = run("ls").out.splitlines()
    assert lines[0].split() == ["NAMESPACE", "KERNEL", "TOPOLOGY", "OBJECT", "CHANGED"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["certification", "affine_f32[n=4]", topology[:12]],
        ["names", "baseline", "-"],
        ["topology", "topology", topology[:12]],
        ["tuning", "affine_f32[n=4]", min(topology, _FOREIGN)[:12]],
        ["tuning", "affine_f32[n=4]", max(topology, _FOREIGN)[:12]],
        ["tuning", "matmul_f32[k=1,m=1,n=1]", topology[:12]],
        ["tuning", "matmul_f32[k=2,m=2,n=2]", topology[:12]],
    ]


def test_ls_of_an_empty_store_prints_nothing(store: Store, run: Run) -> None:
    store.put(1)
    assert run("ls").out == ""
    assert run("ls", "--json").document == []


def test_ls_chooses_by_namespace_topology_and_kernel(store: Store, run: Run) -> None:
    topology = _fill(store)

    def kernels(*arguments: str) -> list[str]:
        return [each["kernel"] for each in run("ls", "--json", *arguments).document]

    assert kernels("--namespace", "certification") == ["affine_f32[n=4]"]
    assert kernels("--namespace", "names") == [None]
    assert kernels("--topology", "cdcdcd") == ["affine_f32[n=4]"]
    assert len(kernels("--topology", topology[:6])) == 5
    assert kernels("--kernel", "matmul_f32[k=1,m=1,n=1]") == ["matmul_f32[k=1,m=1,n=1]"]
    assert len(kernels("--kernel", "matmul_f32")) == 2
    assert len(kernels("--kernel", "*_f32[k=?,*")) == 2
    assert kernels("--kernel", "matmul_*[k=1,m=?,n=1]") == ["matmul_f32[k=1,m=1,n=1]"]
    assert kernels("--kernel", "matmul") == []
    for unmet in ("--topology", "0123"), ("--namespace", "none"), ("--kernel", "none"):
        assert (run("ls", *unmet).status, run("ls", *unmet, "--json").document) == (0, [])
    assert run("ls", "--topology", "xyz").status == 2
    assert run("ls", "--namespace", "No/pe").status == 2


def test_ls_shows_what_an_alternate_has(
    store: Store, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with castore.open(tmp_path / "below") as below:
        oid = below.record("tuning", _FOREIGN, "gemm", 1)
    store.put(2)
    monkeypatch.setenv("CASTORE_ALTERNATES", str(tmp_path / "below"))
    [listed] = run("ls", "--json").document
    assert (listed["object"], listed["changed_ns"]) == (oid, None)
    assert run("cat", oid[:6]).out == "1\n"


def test_hostile_text_in_refs_is_shown_escaped(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, _HOSTILE, {"\x1b[31m\n": "a\x9b\nb"}, reason="\u2067why\u200f")
    for arguments in (["ls"], ["log", _HOSTILE], ["why", "affine_f32", "--device", "numpy"]):
        for extra in ([], ["--json"]):
            ended = run(*arguments, *extra)
            for line in (*ended.out.split("\n"), *ended.err.split("\n")):
                assert line.isprintable(), line
    assert _HOSTILE_SHOWN in run("ls").out
    assert "\\u2067why\\u200f" in run("log", _HOSTILE).out
    assert run("ls", "--json").document[0]["kernel"] == _HOSTILE
    shown = run("show", _HOSTILE).out
    assert "\\x1b[31m\\x0a: a\\x9b\\x0ab" in shown
    assert run("cat", _HOSTILE).out.isascii()
    told = run("forget", "--kernel", _HOSTILE).out
    assert _HOSTILE_SHOWN in told


def test_hostile_text_in_an_error_is_shown_escaped(store: Store, run: Run) -> None:
    store.put(1)
    ended = run("cat", "tuning/\x1b[2Jno\nne")
    assert ended.err == "castore: there is no ref tuning/\\x1b[2Jno\\x0ane\n"


def test_hostile_text_in_a_warning_is_shown_escaped(store: Store, run: Run, tmp_path: Path) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    shard = tmp_path / "store" / "refs" / "tuning" / "00"
    shard.mkdir(exist_ok=True)
    (shard / "a\x1b[2Jb\nc").write_text("x")
    ended = run("ls")
    assert ended.status == 0
    assert ended.err.count("\n") == 1
    assert "\\x1b[2Jb\\x0ac" in ended.err


def test_a_log_is_listed_newest_first_and_outlives_its_ref(store: Store, run: Run) -> None:
    old = store.record("tuning", _FOREIGN, "gemm", 1, reason="first")
    new = store.record("tuning", _FOREIGN, "gemm", 2, on_conflict="replace", reason="second")
    store.delete_ref("tuning", _FOREIGN, "gemm", reason="third")
    found = run("log", "gemm", "--json").document
    assert [(each["old"], each["new"], each["reason"]) for each in found] == [
        (new, None, "third"),
        (old, new, "second"),
        (None, old, "first"),
    ]
    lines = run("log", "gemm").out.splitlines()
    assert lines[0] == "tuning/gemm on topology cdcdcdcdcdcd"
    assert len(lines) == 5


def test_restore_brings_back_what_was_replaced_or_removed(store: Store, run: Run) -> None:
    old = store.record("tuning", _FOREIGN, "gemm", 1)
    new = store.record("tuning", _FOREIGN, "gemm", 2, on_conflict="replace")
    assert run("restore", "gemm").status == 0
    assert store.lookup("tuning", _FOREIGN, "gemm") == 1
    assert run("restore", "gemm", "--to", new[:6]).status == 0
    assert store.lookup("tuning", _FOREIGN, "gemm") == 2
    store.delete_ref("tuning", _FOREIGN, "gemm")
    assert run("restore", "tuning/gemm", "--json").document["object"] == new
    assert store.lookup("tuning", _FOREIGN, "gemm") == 2
    assert old != new


def test_restore_of_a_name_and_of_a_key(store: Store, run: Run) -> None:
    oid = store.put(1)
    store.set_name("baseline", oid)
    store.delete_name("baseline")
    store.set_ref("by-key-tuning", key="ab" * 32, id=oid)
    store.delete_ref("by-key-tuning", key="ab" * 32)
    assert run("restore", "names/baseline").status == 0
    assert run("restore", "by-key-tuning/abab").status == 0
    assert store.get_name("baseline") is not None
    assert store.get_ref("by-key-tuning", key="ab" * 32) is not None


def test_restore_without_anything_to_bring_back_says_so(store: Store, run: Run) -> None:
    oid = store.record("tuning", _FOREIGN, "gemm", 1)
    other = store.put(2)
    assert run("restore", "gemm").status == 3
    assert run("restore", "nothing").status == 3
    assert run("restore", "gemm", "--to", other).status == 3
    assert run("restore", "gemm", "--to", oid).status == 0


def test_forget_removes_what_matches_and_only_that(store: Store, run: Run) -> None:
    topology = _fill(store)
    planned = run("forget", "--kernel", "matmul_f32", "--dry-run")
    assert planned.out.splitlines()[-1] == "would remove 2 refs"
    assert len(list(store.refs())) == 6
    ended = run("forget", "--kernel", "matmul_f32", "--topology", topology[:8], "--json")
    assert ended.document["removed"] == 2
    assert {ref.kernel for ref in store.refs("tuning")} == {"affine_f32[n=4]"}
    assert run("forget", "--namespace", "tuning").out.splitlines()[-1] == "removed 2 refs"
    assert [ref.namespace for ref in store.refs()] == ["certification", "topology"]


@pytest.mark.parametrize(
    ("restored", "other"), [("tuning", "certification"), ("certification", "tuning")]
)
def test_restore_tells_of_what_was_removed_together_with_it(
    restored: str, other: str, store: Store, run: Run
) -> None:
    for namespace in ("tuning", "certification"):
        store.record(namespace, _FOREIGN, "gemm[n=4]", namespace)
    run("forget", "--kernel", "gemm")
    ended = run("restore", f"{restored}/gemm")
    assert ended.status == 0
    command = f"castore restore '{other}/gemm[n=4]' --topology {_FOREIGN[:12]}"
    assert ended.err == f"castore: {other} was removed too; to restore it: {command}\n"
    ended = run(*shlex.split(command)[1:])
    assert (ended.status, ended.err) == (0, "")
    assert store.lookup("tuning", _FOREIGN, "gemm[n=4]") == "tuning"
    assert store.lookup("certification", _FOREIGN, "gemm[n=4]") == "certification"


def test_forget_goes_by_age(store: Store, run: Run, tmp_path: Path) -> None:
    store.record("tuning", _FOREIGN, "old", 1)
    store.record("tuning", _FOREIGN, "young", 2)
    ref = store.get_ref("tuning", _FOREIGN, "old")
    assert ref is not None
    os.utime(tmp_path / "store" / ref.name.path, (0, 0))
    assert "tuning/old on" in run("forget", "--older-than", "90d").out
    assert [ref.kernel for ref in store.refs()] == ["young"]


def test_forget_goes_by_use(store: Store, run: Run, tmp_path: Path) -> None:
    for kernel in ("used", "unused"):
        store.record("tuning", _FOREIGN, kernel, 1)
        ref = store.get_ref("tuning", _FOREIGN, kernel)
        assert ref is not None
        os.utime(tmp_path / "store" / ref.name.path, (0, 0))
    os.utime(tmp_path / "store/local/locks/uses-begun", (0, 0))
    store.lookup("tuning", _FOREIGN, "used")
    assert run("forget", "--unused-since", "90d", "-n").out.startswith("would remove tuning/unused")
    assert run("forget", "--unused-since", "90d", "--json").document["removed"] == 1
    assert [ref.kernel for ref in store.refs()] == ["used"]


def test_forget_keeps_the_refs_and_the_newest_lines_of_their_logs(store: Store, run: Run) -> None:
    oids = [
        store.record("tuning", _FOREIGN, "gemm", number, on_conflict="replace")
        for number in range(4)
    ]
    planned = run("forget", "--keep-last", "2", "--dry-run").out.splitlines()
    assert planned[-1] == "would remove 2 log lines"
    assert f"nothing to {oids[0][:12]}" in planned[0]
    assert len(store.ref_log("tuning", _FOREIGN, "gemm")) == 4
    found = run("forget", "--keep-last", "2", "--kernel", "gemm", "--json").document
    assert (found["removed"], found["notes"]) == (2, [])
    assert [(each["old"], each["new"]) for each in found["entries"]] == [
        (None, oids[0]),
        (oids[0], oids[1]),
    ]
    assert [each.new for each in store.ref_log("tuning", _FOREIGN, "gemm")] == [oids[3], oids[2]]
    assert run("forget", "--keep-last", "2").out == "removed 0 log lines\n"
    assert store.lookup("tuning", _FOREIGN, "gemm") == 3
    assert run("forget", "--keep-last", "0").status == 2


def test_forget_without_a_condition_is_refused(store: Store, run: Run) -> None:
    _fill(store)
    ended = run("forget")
    assert ended.status == 2
    assert "--namespace" in ended.err
    assert len(list(store.refs())) == 6


def test_forget_writes_the_reason_into_the_log(store: Store, run: Run) -> None:
    store.record("tuning", _FOREIGN, "gemm", 1)
    run("forget", "--kernel", "gemm", "--reason", "wrong driver")
    assert run("log", "gemm", "--json").document[0]["reason"] == "wrong driver"
