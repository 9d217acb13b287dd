"""What helps, said where somebody stumbles."""

import errno
import os
from pathlib import Path

import pytest

import castore
from castore import ReadOnlyStoreError
from castore.maintenance import gc
from castore.store.store import Store

from .conftest import Run

_HERE = "ab" * 32
_THERE = "cd" * 32


def _fill(store: Store) -> None:
    for topology in (_HERE, _THERE):
        store.record("tuning", topology, "softmax[n=4]", topology)
    store.record("tuning", _HERE, "gemm[n=4]", 1)
    store.record("tuning", _HERE, "gemm[n=8]", 2)
    store.set_name("baseline", store.put(3))


def test_an_ambiguous_kernel_is_answered_with_the_option_that_chooses(
    store: Store, run: Run
) -> None:
    _fill(store)
    by_topology = run("show", "softmax")
    assert by_topology.status == 2
    assert by_topology.err.endswith("; choose with --topology ID\n")
    assert _HERE[:12] in by_topology.err
    assert _THERE[:12] in by_topology.err
    assert run("cat", "softmax", "--topology", "cdcd").out == f'"{_THERE}"\n'
    by_problem = run("show", "gemm")
    assert by_problem.err.endswith("; give the whole kernel text\n")
    assert run("cat", "gemm[n=8]").out == "2\n"


def test_ambiguous_digits_are_answered_with_the_way_to_choose(store: Store, run: Run) -> None:
    seen: dict[str, int] = {}
    for number in range(3000):
        start = store.put(number)[:4]
        if start in seen:
            break
        seen[start] = number
    ended = run("cat", start)
    assert ended.status == 2
    assert ended.err.endswith("; give more digits\n")


def test_a_topology_that_lacks_the_kernel_is_named_with_those_that_have_it(
    store: Store, run: Run
) -> None:
    _fill(store)
    ended = run("show", "gemm[n=8]", "--topology", "cdcd")
    assert ended.status == 3
    assert ended.err == (
        "castore: there is no ref gemm[n=8] on topology cdcd; "
        f"there is one on topology {_HERE[:12]}\n"
    )
    assert "castore topology --list" in run("ls", "--topology", "0123").err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["show", "sofmax"], "did you mean softmax?"),
        (["log", "tuning/gemn"], "did you mean tuning/gemm?"),
        (["cat", "gemm[n=5]"], "did you mean gemm[n=4], gemm[n=8]?"),
        (["cat", "baselin"], "did you mean baseline?"),
        (["ls", "--kernel", "sofmax"], "no ref matches; did you mean softmax?"),
        (["tune", "afine_f32"], "did you mean affine_f32?"),
        (["tune", "affine_f32[n=7]"], "did you mean affine_f32[n=1048576]?"),
        (["why", "matmul"], "did you mean matmul_f32?"),
        (["shw", "gemm"], "there is no command 'shw'; did you mean show?"),
        (["tune", "--device", "nunpy"], "there is no device 'nunpy'; did you mean numpy?"),
    ],
)
def test_a_misspelt_name_is_answered_with_one_that_there_is(
    typed: list[str], meant: str, store: Store, run: Run
) -> None:
    _fill(store)
    ended = run(*typed)
    assert meant in ended.err
    assert ended.err.count("\n") == 1


def test_ids_may_be_typed_in_upper_case(store: Store, run: Run) -> None:
    _fill(store)
    oid = store.put("ABC")
    store.set_ref("by-key-tuning", key=_HERE, id=oid)
    for typed in (oid[:8].upper(), oid.upper()):
        assert run("cat", typed).out == '"ABC"\n'
        assert run("pin", typed).status == 0
        assert run("pin", "--remove", typed).status == 0
    assert run("cat", "by-key-tuning/ABAB").status == 0
    assert run("cat", "softmax", "--topology", "CDCD").out == f'"{_THERE}"\n'
    assert len(run("ls", "--topology", _THERE.upper(), "--json").document) == 1
    old = store.record("tuning", _HERE, "relu", 1)
    store.record("tuning", _HERE, "relu", 2, on_conflict="replace")
    assert run("restore", "relu", "--to", old[:8].upper(), "--json").document["object"] == old


def test_an_object_that_is_gone_is_unpinned_by_upper_case_digits_too(
    store: Store, run: Run, tmp_path: Path
) -> None:
    oid = store.put("ABC")
    assert run("pin", oid).status == 0
    (tmp_path / "store" / "objects" / oid[:2] / oid[2:]).unlink()
    assert run("pin", "--remove", oid[:8].upper()).status == 0


def test_nothing_to_list_is_said(store: Store, run: Run) -> None:
    assert run("ls").err == (
        "castore: the store has no refs yet; to make some: castore tune --all\n"
    )
    assert "no refs in the namespace tuning" in run("ls", "--namespace", "tuning").err
    assert run("pin").err == "castore: nothing is pinned\n"
    assert run("topology", "--list").err == "castore: the store knows no topology yet\n"
    _fill(store)
    assert run("ls", "--kernel", "zzz").err == "castore: no ref matches\n"
    assert run("ls", "--kernel", "zzz", "--json").err == ""
    assert run("ls", "--kernel", "gemm", "--topology", _THERE).err == "castore: no ref matches\n"
    for log in Path(store.root, "local", "logs").rglob("*"):
        if log.is_file():
            log.unlink()
    assert run("log", "gemm[n=8]").err == "castore: its log has no entries\n"


def test_digits_that_are_too_few_for_an_id_are_told_so(store: Store, run: Run) -> None:
    _fill(store)
    ended = run("show", "abc")
    assert ended.status == 3
    assert ended.err == "castore: there is no ref abc; an id needs 4 digits at least\n"
    assert "digits" not in run("show", "xyz").err


def test_without_a_store_tune_is_named(run: Run, tmp_path: Path) -> None:
    assert "make one with: castore tune --all, or" in run("ls").err
    ended = run("--store", str(tmp_path / "a b"), "ls")
    assert f"make one with: castore --store '{tmp_path}/a b' tune --all, or" in ended.err


def test_results_of_a_kernel_that_is_not_built_in_are_shown_and_pointed_to(
    store: Store, run: Run
) -> None:
    _fill(store)
    assert "softmax[n=4]" in run("ls", "--kernel", "softmax").out
    assert run("show", "gemm[n=8]").status == 0
    ended = run("why", "gemm")
    assert ended.status == 3
    assert "the store has results for it" in ended.err
    assert ended.err.endswith("see: castore ls --kernel gemm\n")


def test_a_link_to_what_is_not_there_is_warned_of(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = store.put(1)
    value = tmp_path / "value.json"
    value.write_text(f'{{"a": {{"$link": "{there}"}}, "b": [{{"$link": "{_HERE}"}}]}}')
    ended = run("put", str(value))
    assert ended.status == 0
    assert ended.err == f"castore: the value links to {_HERE}, which is not in the store\n"
    value.write_text(f'{{"$weak": "{_HERE}"}}')
    assert run("put", str(value)).err == ""


def test_a_missing_input_file_is_named(run: Run, tmp_path: Path) -> None:
    ended = run("put", str(tmp_path / "nothing"))
    assert ended.status == 3
    assert ended.err == f"castore: there is no file {tmp_path}/nothing\n"
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("typed", "help_of"),
    [
        (["bogus"], "castore"),
        (["gc", "--bogus"], "castore gc"),
        (["ls", "extra"], "castore ls"),
        (["cat"], "castore cat"),
        (["tune", "--samples", "0"], "castore tune"),
        (["--bogus", "ls"], "castore"),
    ],
)
def test_wrong_usage_points_to_the_help_of_its_command(
    typed: list[str], help_of: str, run: Run
) -> None:
    assert run(*typed).err.endswith(f"; see: {help_of} --help\n")


def test_a_tilde_is_the_home_folder_wherever_the_shell_left_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run("--store=~/one", "init").status == 0
    assert run("stats", "--store=~/one", "--json").document["store"] == str(tmp_path / "one")
    monkeypatch.setenv("CASTORE_DIR", "~/two")
    assert run("init").status == 0
    assert run("repair", "--from=~/one").status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_folder_that_cannot_be_made_is_named_with_the_ways_to_another(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for command in (["init"], ["tune", "affine_f32"]):
        ended = run("--store", str(tmp_path / "file" / "store"), *command)
        assert ended.status == 1
        assert ended.err.count("\n") == 1
        assert f"{tmp_path}/file" in ended.err
        assert ended.err.endswith("; --store or CASTORE_DIR names another\n")


def test_a_full_disk_is_told_with_the_store_and_the_ways_to_another(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Store, "put", full)
    value = tmp_path / "value.json"
    value.write_text("1")
    ended = run("put", str(value))
    assert ended.status == 1
    assert ended.err == (
        f"castore: No space left on device; the store is {tmp_path}/store; "
        "--store or CASTORE_DIR names another\n"
    )


def test_a_store_without_permission_is_told_with_the_ways_to_another(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("castore.fs.posix.PosixFileSystem.is_writable", lambda _: False)
    value = tmp_path / "value.json"
    value.write_text("1")
    ended = run("put", str(value))
    assert ended.status == 7
    assert ended.err.endswith("; --store or CASTORE_DIR names another\n")


def test_an_object_that_only_a_log_names_and_that_is_damaged_points_to_repair(
    store: Store, run: Run, tmp_path: Path
) -> None:
    old = store.record("tuning", _HERE, "gemm", 1)
    store.record("tuning", _HERE, "gemm", 2, on_conflict="replace")
    path = tmp_path / "store" / "objects" / old[:2] / old[2:]
    path.chmod(0o600)
    path.write_bytes(b"x")
    ended = run("gc")
    assert ended.status == 4
    assert "castore repair" in ended.err
    run("repair")
    assert run("gc").status == 0


def test_gc_plans_for_a_store_that_may_only_be_read_and_removes_nothing(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record("tuning", _HERE, "gemm", 1)
    loose = store.put("nobody needs this")
    young = run("gc", "--dry-run")
    old = run("gc", "--dry-run", "--grace", "0s")
    monkeypatch.setattr("castore.fs.posix.PosixFileSystem.is_writable", lambda _: False)
    monkeypatch.setattr("castore.fs.posix.PosixFileSystem._open_lock", None)
    for arguments, writable in (([], young), (["--grace", "0s"], old)):
        ended = run("gc", "--dry-run", *arguments)
        assert (ended.status, ended.out) == (0, writable.out)
        assert ended.err.startswith("castore: the store is read-only: ")
    assert f"would remove {loose}" in old.out
    refused = run("gc", "--grace", "0s")
    assert refused.status == 7
    assert refused.err.endswith("; --store or CASTORE_DIR names another\n")
    with castore.open(store.root, read_only=True) as reader:
        plan = gc.plan(reader, grace_s=0.0)
        with pytest.raises(ReadOnlyStoreError):
            gc.apply(reader, plan)
    assert store.has(loose)
