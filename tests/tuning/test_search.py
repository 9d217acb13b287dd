"""The whole tuner over a replay device: the rules of choosing, without any hardware."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import castore
from castore.errors import MalformedError
from castore.store.store import Store
from castore.tuning import (
    CandidateMeasured,
    CandidateRejected,
    CertificationManifest,
    ComparisonReport,
    DeviceUnavailableError,
    Evidence,
    Failure,
    Finished,
    Kernel,
    Missing,
    NothingAcceptableError,
    PythonImplementation,
    Recorded,
    ReplayDevice,
    RoundBegan,
    TuneResult,
    TuningManifest,
    find,
    kernels,
    tune,
)
from castore.tuning.candidates import SKIPPED_MAX
from castore.tuning.errors import KernelChangedError
from castore.tuning.events import Event

DoubleKernel = Callable[..., Kernel]
Topology = dict[str, Any]

SLOW_ENOUGH = 1_000_000
"""Nanoseconds beyond the policy's floor, so that a sample is one dispatch."""


def times(*samples: float) -> Recorded:
    return Recorded(tuple(sample * SLOW_ENOUGH for sample in samples))


def replay(topology: Topology, **answers: Recorded | Failure) -> ReplayDevice:
    """Answer for modes: `m3=times(5)` for the schedule {"mode": 3}."""
    return ReplayDevice(
        topology, "numpy", [({"mode": int(name[1:])}, answer) for name, answer in answers.items()]
    )


def failing(mode: int, reason: str) -> Failure:
    return Failure({"mode": mode}, "oracle", reason)


def test_the_least_median_wins(store: Store, double: DoubleKernel, topology: Topology) -> None:
    device = replay(topology, m0=times(3), m1=times(2, 2, 9, 9, 2), m2=times(4, 1, 4))
    result = tune(store, double(0, 1, 2), device=device)
    assert result.schedule == {"mode": 1}
    assert result.median_ns == 2 * SLOW_ENOUGH
    assert not result.was_stored


def test_equal_medians_are_decided_by_p95(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(2, 2, 2, 2, 8), m1=times(2, 2, 2, 2, 7))
    assert tune(store, double(0, 1), device=device).schedule == {"mode": 1}


def test_all_equal_is_a_tie_that_the_schedule_decides(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m3=times(2), m1=times(2), m2=times(2))
    result = tune(store, double(3, 1, 2, default=3), device=device)
    assert result.schedule == {"mode": 1}
    assert result.tie_set == ({"mode": 1}, {"mode": 2}, {"mode": 3})


def test_the_tie_set_ends_at_the_winners_upper_quartile(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    spread = times(10, 10, 10, 12)
    device = replay(topology, m0=spread, m1=times(12), m2=times(13))
    result = tune(store, double(0, 1, 2), device=device, finalist_samples=12)
    assert result.winner.timing.upper_quartile_ns == 10 * SLOW_ENOUGH
    assert result.tie_set == ({"mode": 0},)
    wider = replay(topology, m0=times(10, 10, 12, 12), m1=times(12), m2=times(13))
    result = tune(store, double(0, 1, 2), device=wider, finalist_samples=12, force=True)
    assert result.tie_set == ({"mode": 0}, {"mode": 1})


def test_a_candidate_that_fails_keeps_its_reason_and_never_wins(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(5), m1=failing(1, "wrong by far"), m2=times(6))
    result = tune(store, double(0, 1, 2), device=device)
    assert result.schedule == {"mode": 0}
    assert result.failures == (failing(1, "wrong by far"),)
    assert (result.manifest.evaluated, result.manifest.failed) == (3, 1)


def test_a_long_reason_is_whole_in_the_evidence_and_short_in_the_manifest(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(5), m1=failing(1, "x" * 1000))
    result = tune(store, double(0, 1), device=device)
    assert len(result.failures[0].reason) == 160
    evidence = Evidence.from_value(store.get(result.manifest.evidence))
    assert evidence.failures[0].reason == "x" * 1000


def test_when_every_candidate_fails_nothing_is_stored(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=failing(0, "off"), m1=failing(1, "off"), m2=failing(2, "lost"))
    with pytest.raises(NothingAcceptableError) as caught:
        tune(store, double(0, 1, 2), device=device)
    assert caught.value.reasons == (("off", 2), ("lost", 1))
    assert caught.value.exit_status == 8
    assert "off (2 times)" in str(caught.value)
    assert list(store.refs()) == []


def test_a_failing_default_is_tried_once(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=failing(0, "off"), m1=failing(1, "lost"))
    with pytest.raises(NothingAcceptableError):
        tune(store, double(0, 1), device=device)
    assert device.asked == [{"mode": 0}, {"mode": 1}]


def test_the_only_candidate_is_told_in_the_singular(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    with pytest.raises(NothingAcceptableError, match=r"the only candidate .* acceptable: off$"):
        tune(store, double(0), device=replay(topology, m0=failing(0, "off")))


def uncompiled(mode: int, reason: str) -> Failure:
    return Failure({"mode": mode}, "compile", reason)


def test_two_that_fail_to_compile_alike_end_the_search(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=uncompiled(0, "line 7: x * 16"), m1=uncompiled(1, "line 7: x * 8"))
    with pytest.raises(NothingAcceptableError) as caught:
        tune(store, double(0, 1, 2, 3), device=device)
    assert len(device.asked) == 2
    assert caught.value.evaluated == 2
    assert caught.value.reasons == (("line 7: x * 16", 1),)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (uncompiled(0, "line 7"), uncompiled(1, "too many registers")),
        (failing(0, "off"), failing(1, "off")),
    ],
    ids=["compile for two reasons", "run"],
)
def test_two_that_fail_otherwise_leave_the_search_to_the_rest(
    store: Store, double: DoubleKernel, topology: Topology, one: Failure, other: Failure
) -> None:
    device = replay(topology, m0=one, m1=other, m2=times(1))
    assert tune(store, double(0, 1, 2), device=device).schedule == {"mode": 2}


def test_a_failed_rerun_leaves_the_old_result(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    before = tune(store, double(0), device=replay(topology, m0=times(5)))
    with pytest.raises(NothingAcceptableError):
        tune(store, double(0), device=replay(topology, m0=failing(0, "off")), force=True)
    after = tune(store, double(0), device=replay(topology))
    assert after.was_stored
    assert after.object == before.object


def test_both_rounds_go_round_by_round(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(1), m1=times(2), m2=times(3))
    tune(store, double(0, 1, 2), device=device, samples=2, finalists=2, finalist_samples=3)
    asked = [schedule["mode"] for schedule in device.asked]
    calibration, first, second = asked[:3], asked[3:9], asked[9:]
    assert calibration == [0, 0, 0]
    assert first == [0, 1, 2, 0, 1, 2]
    assert second == [0, 1, 0, 1, 0, 1]


def test_a_clock_that_slows_down_half_way_does_not_choose_the_winner(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    """Candidate by candidate, whichever came first would win; round by round, the faster does."""
    half = (1.0,) * 6 + (2.0,) * 6
    device = replay(
        topology,
        m0=times(*(1.1 * share for share in half)),
        m1=times(*(1.0 * share for share in half)),
    )
    assert tune(store, double(0, 1), device=device).schedule == {"mode": 1}


def test_bad_samples_are_rejected_and_counted_not_the_run(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(5), m1=times(1, 0, math.nan, 1, -4, math.inf))
    result = tune(store, double(0, 1), device=device, samples=6, finalist_samples=6)
    assert result.schedule == {"mode": 1}
    assert (result.winner.timing.sample_count, result.winner.timing.rejected_count) == (2, 4)


def test_a_candidate_without_one_good_sample_is_out(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(5), m1=times(0, -1, math.nan))
    result = tune(store, double(0, 1), device=device)
    assert result.schedule == {"mode": 0}
    assert [failure.stage for failure in result.failures] == ["timing"]


def test_lucky_and_unlucky_outliers_do_not_choose_the_winner(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(700, *[10] * 20), m1=times(*[11] * 10, 1, *[11] * 10))
    result = tune(store, double(0, 1), device=device, samples=5, finalist_samples=21)
    assert result.schedule == {"mode": 0}


def test_finalists_that_all_fail_make_room_for_the_next(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    """Candidates 0 and 1 are right in the first round only."""
    device = replay(topology, m0=times(1), m1=times(2), m2=times(3), m3=times(4))
    asked = device.asked

    def betray(event: Event) -> None:
        if isinstance(event, RoundBegan) and event.round == 2 and len(asked) < 20:
            for mode in (0, 1):
                device._answers[(("mode", mode),)] = failing(mode, "late")

    result = tune(store, double(0, 1, 2, 3), device=device, finalists=2, progress=betray)
    assert result.schedule == {"mode": 2}
    assert {failure.reason for failure in result.failures} == {"late"}


def test_the_default_is_measured_beside_the_finalists(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(9), m1=times(1), m2=times(3))
    result = tune(store, double(0, 1, 2), device=device, finalists=1)
    assert result.manifest.default is not None
    assert result.speed_against_default == 9.0
    assert result.speed_against_slowest == 9.0
    assert result.manifest.default.timing.sample_count == result.winner.timing.sample_count


def test_both_speeds_are_from_the_round_in_which_all_were_measured(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    # The first three samples of the default decide how often a candidate is repeated.
    device = replay(topology, m0=times(*[4] * 6, *[8] * 11), m1=times(*[2] * 3, *[1] * 11))
    result = tune(store, double(0, 1), device=device)
    assert result.manifest.default is not None
    assert result.manifest.default.timing.median_ns == 8 * SLOW_ENOUGH
    assert result.median_ns == SLOW_ENOUGH
    assert result.speed_against_default == result.speed_against_slowest == 2.0


def test_without_a_working_default_there_is_no_speed_against_it(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    result = tune(store, double(0, 1), device=replay(topology, m0=failing(0, "off"), m1=times(2)))
    assert result.speed_against_default is None
    assert result.winner.timing.median_ns == 2 * SLOW_ENOUGH


def test_short_kernels_are_repeated_within_a_sample(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=Recorded((50_000.0,)), m1=Recorded((40_000.0,)))
    result = tune(store, double(0, 1), device=device)
    assert (result.winner.timing.dispatches, result.median_ns) == (4, 40_000)
    evidence = Evidence.from_value(store.get(result.manifest.evidence))
    assert evidence.trials[0].first_ns == (200_000, 200_000, 200_000)


def test_a_stored_result_is_returned_without_measuring(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    first = tune(store, double(0, 1), device=replay(topology, m0=times(2), m1=times(3)))
    silent = replay(topology)
    again = tune(store, double(0, 1), device=silent)
    assert again.was_stored
    assert (again.object, again.schedule) == (first.object, first.schedule)
    assert silent.asked == []


def test_force_measures_again_and_the_log_keeps_the_old_result(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    kernel = double(0, 1)
    first = tune(store, kernel, device=replay(topology, m0=times(2), m1=times(3)))
    second = tune(store, kernel, device=replay(topology, m0=times(4), m1=times(3)), force=True)
    assert second.schedule == {"mode": 1}
    log = store.ref_log("tuning", second.topology, kernel.text)
    assert (log[0].old, log[0].new) == (first.object, second.object)


def stored(store: Store, double: DoubleKernel, topology: Topology) -> TuneResult:
    return tune(store, double(0, 1), device=replay(topology, m0=times(2), m1=times(3)), seed=7)


def test_a_result_is_stored_with_topology_certification_and_evidence(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    result = stored(store, double, topology)
    assert {(ref.namespace, ref.kernel) for ref in store.refs()} == {
        ("tuning", "double_f32[n=64]"),
        ("certification", "double_f32[n=64]"),
        ("topology", "topology"),
    }
    assert store.get(result.topology) == topology
    certified = CertificationManifest.from_value(
        store.lookup("certification", result.topology, result.kernel)
    )
    assert (certified.seed, certified.schedule) == (7, result.schedule)
    assert certified.evidence == result.manifest.evidence
    assert set(certified.inputs) == {"x"}
    evidence = Evidence.from_value(store.get(certified.evidence))
    assert [len(trial.first_ns) for trial in evidence.trials] == [3, 3]
    assert evidence.timing_source == "synthetic"


def test_stored_evidence_can_be_replayed(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    result = stored(store, double, topology)
    device = ReplayDevice.from_store(store, double(0, 1), topology)
    again = tune(store, double(0, 1), device=device, force=True)
    assert (again.schedule, again.median_ns) == (result.schedule, result.median_ns)


def test_a_replayed_result_is_marked_wherever_it_is_stored(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    result = stored(store, double, topology)
    assert result.manifest.provenance.origin == "replayed"
    certified = store.lookup("certification", result.topology, result.kernel)
    assert CertificationManifest.from_value(certified).level == "replayed"
    assert ReplayDevice({**topology, "software": {}}, "numpy", []).topology() == {
        **topology,
        "software": {"replayed": True},
    }


def test_what_another_tuner_stored_meanwhile_is_the_result(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    first: list[TuneResult] = []

    def other_is_quicker(event: Event) -> None:
        if isinstance(event, Finished) and not first:
            first.append(stored(store, double, topology))

    late = replay(topology, m0=times(9), m1=times(1))
    result = tune(store, double(0, 1), device=late, progress=other_is_quicker)
    assert result.was_stored
    assert (result.object, result.schedule) == (first[0].object, {"mode": 0})
    assert len(store.ref_log("tuning", result.topology, result.kernel)) == 1


def test_of_two_tuners_that_end_in_the_same_moment_the_second_returns_the_first_ones_result(
    store: Store, double: DoubleKernel, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    first: list[TuneResult] = []

    def other_stores_after_the_look(*args: Any, **named: Any) -> object:
        answer = find(*args, **named)
        looked.append(answer)
        if len(looked) == 2:
            first.append(stored(store, double, topology))
        return answer

    monkeypatch.setattr("castore.tuning.tuner.find", other_stores_after_the_look)
    late = replay(topology, m0=times(9), m1=times(1))
    result = tune(store, double(0, 1), device=late)
    assert isinstance(looked[1], Missing)
    assert result.was_stored
    assert (result.object, result.schedule) == (first[0].object, {"mode": 0})


_TUNES = """
import sys
import castore
from castore import tuning
with castore.open(sys.argv[1]) as store:
    kernel = tuning.kernels.affine_f32.sized(n=1024)
    print(tuning.tune(store, kernel, device="numpy", samples=1, finalist_samples=1).object)
"""


def test_processes_that_tune_one_kernel_at_once_agree_on_one_result(tmp_path: Path) -> None:
    root = tmp_path / "store"
    tuners = [
        subprocess.Popen(
            [sys.executable, "-c", _TUNES, str(root)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    objects = {tuner.communicate()[0] for tuner in tuners}
    assert [tuner.returncode for tuner in tuners] == [0, 0]
    with castore.open(root) as store:
        (ref,) = store.refs("tuning")
        assert objects == {f"{ref.object}\n"}
        assert len(store.ref_log("tuning", ref.topology, ref.kernel)) == 1


def test_a_forced_result_replaces_what_another_tuner_stored_meanwhile(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    def other_is_quicker(event: Event) -> None:
        if isinstance(event, Finished):
            stored(store, double, topology)

    late = replay(topology, m0=times(9), m1=times(1))
    result = tune(store, double(0, 1), device=late, force=True, progress=other_is_quicker)
    assert not result.was_stored
    assert result.schedule == {"mode": 1}
    assert len(store.ref_log("tuning", result.topology, result.kernel)) == 2


def test_a_source_that_changes_while_it_is_measured_gives_no_result(
    store: Store,
    double: DoubleKernel,
    topology: Topology,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = tmp_path / "edited.py"
    source.write_text("def double(inputs, output, sizes, schedule): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space = double(0).implementations["numpy"].space
    kernel = double(0, implementations={"numpy": PythonImplementation("edited:double", space)})

    def edit(event: Event) -> None:
        if isinstance(event, RoundBegan):
            source.write_text("def double(inputs, output, sizes, schedule): return 1\n")

    with pytest.raises(KernelChangedError, match="source changed while it was measured"):
        tune(store, kernel, device=replay(topology, m0=times(1)), progress=edit)
    assert list(store.refs()) == []


def test_inside_a_batch_nothing_is_measured_and_what_is_stored_is_found(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(2), m1=times(1))
    with store.batch(), pytest.raises(MalformedError, match="call it outside"):
        tune(store, double(0, 1), device=device)
    assert device.asked == []
    result = tune(store, double(0, 1), device=device)
    with store.batch():
        assert tune(store, double(0, 1), device=device).object == result.object


def test_of_many_schedules_that_break_a_limit_the_first_are_kept_and_all_are_counted(
    store: Store, topology: Topology
) -> None:
    limits = {"max-compute-invocations-per-workgroup": 64}
    software = {**topology["software"], "backend": "Vulkan", "limits": limits}
    kernel = kernels.matmul_f32
    default = kernel.implementations["wgpu"].space.default
    device = ReplayDevice({**topology, "software": software}, "wgpu", [(default, times(1))])
    result = tune(store, kernel, device=device)
    assert result.manifest.skipped > SKIPPED_MAX
    evidence = Evidence.from_value(store.get(result.manifest.evidence))
    assert len(evidence.skipped) == SKIPPED_MAX
    assert "exceeds max-compute-invocations-per-workgroup = 64" in evidence.skipped[0].reason


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, "9", None, True])
def test_a_time_limit_that_no_clock_can_keep_is_refused(
    store: Store, double: DoubleKernel, topology: Topology, seconds: Any
) -> None:
    with pytest.raises(MalformedError, match="time_limit_s"):
        tune(store, double(0), device=replay(topology), time_limit_s=seconds)


def test_replaying_what_is_not_stored_is_refused(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    with pytest.raises(MalformedError, match="no stored result"):
        ReplayDevice.from_store(store, double(0), topology)


def test_the_manifest_stays_below_its_limit_whatever_failed(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    modes = range(60)
    answers = {f"m{mode}": failing(mode, f"{mode} " * 400) for mode in modes}
    answers |= {f"m{mode}": times(5) for mode in range(0, 60, 2)}
    result = tune(
        store,
        double(*modes),
        device=replay(topology, **answers),
        candidates_max=60,
        finalists=30,
    )
    assert len(castore.encode(result.manifest.to_value())) < 8192
    assert (result.manifest.failed, len(result.tie_set)) == (30, 16)
    assert len(Evidence.from_value(store.get(result.manifest.evidence)).failures) == 30


def test_progress_tells_rounds_measurements_rejections_and_the_end(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    events: list[Event] = []
    device = replay(topology, m0=times(2), m1=failing(1, "off"))
    tune(store, double(0, 1), device=device, progress=events.append, samples=2)
    rounds = [event for event in events if isinstance(event, RoundBegan)]
    assert [(began.round, began.candidates, began.steps) for began in rounds] == [
        (1, 2, 4),
        (2, 1, 11),
    ]
    measured = [event for event in events if isinstance(event, CandidateMeasured)]
    assert len(measured) == 2 + 11
    rejected = [event.failure for event in events if isinstance(event, CandidateRejected)]
    assert rejected == [failing(1, "off")]
    assert events[-1] == Finished("double_f32[n=64]", {"mode": 0}, 2 * SLOW_ENOUGH)


def test_the_worst_comparison_is_what_the_manifest_reports(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    report = ComparisonReport(64, 0, None, 0.25, 0.5)
    device = replay(topology, m0=Recorded((float(SLOW_ENOUGH),), report))
    result = tune(store, double(0), device=device)
    assert TuningManifest.from_value(store.get(result.object)).winner.report == report


def test_a_read_only_store_is_refused_before_anything_is_measured(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    device = replay(topology, m0=times(1))
    with (
        castore.open(store.root, read_only=True) as reading,
        pytest.raises(castore.ReadOnlyStoreError),
    ):
        tune(reading, double(0), device=device)
    assert device.asked == []


@pytest.mark.parametrize(
    "bad",
    [
        {"candidates_max": 0},
        {"samples": 0},
        {"finalists": True},
        {"finalist_samples": 1.5},
        {"time_limit_s": 0},
        {"time_limit_s": math.nan},
        {"seed": -1},
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_runs(
    store: Store, double: DoubleKernel, topology: Topology, bad: dict[str, object]
) -> None:
    device = replay(topology, m0=times(1))
    with pytest.raises(MalformedError, match=next(iter(bad))):
        tune(store, double(0), device=device, **bad)
    assert device.asked == []


def test_a_device_that_does_not_run_the_kernel_is_refused(
    store: Store, double: DoubleKernel, topology: Topology
) -> None:
    with pytest.raises(DeviceUnavailableError, match="no implementation"):
        tune(store, double(0), device=ReplayDevice(topology, "wgpu", []))
