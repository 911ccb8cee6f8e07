"""How near scopes are to what the units of an SM can do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from programs.child import REPO
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.operation_work import Work
from kprof_inject.analysis.limits.rates import rates_of
from kprof_inject.analysis.limits.speed_of_light import Roof, SpeedOfLight
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline, decode_launch

TEXT = """\
module {
  tt.func public @k(%n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %f = arith.mulf %x, %x : tensor<128xf32, #x>
    scf.for %i = %c0 to %n step %c1  : i32 {
      %d = tt.dot %a, %b, %c : tensor<64x16xf16, #x> * tensor<16x8xf16, #x> -> tensor<64x8xf32, #mma>
      scf.for %j = %c0 to %c4 step %c1  : i32 {
        %e = math.exp2 %x : tensor<160xf32, #x>
      }
      scf.if %p {
        %g = math.exp2 %x : tensor<160xf32, #x>
      }
    }
    scf.for %k = %c0 to %n step %c1  : i32 {
      %h = arith.addf %x, %x : tensor<128xf32, #x>
    }
    tt.return
  }
}
"""
# The lines of the function's body, of the first loop, and of its body.
LINES = {"func": (3, 18), "loop[0]": (7, 14), "iter[0]": (8, 13)}
CTAS, WARPS, ITERATIONS = 3, 2, 5
FLOPS = 2 * 64 * 16 * 8


def launched(folder: Path, text: str = TEXT, target: int = 90, lines: dict[str, tuple[int, int]] = LINES) -> Timeline:
    """CTAs on two SMs, of which the second and the third share one; each takes 10,000 cycles, its loop 8,000 and each
    iteration 1,000."""
    scopes = [Scope("func"), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1)]
    ran, times = [], []
    for cta, (sm, begin) in enumerate(((0, 0), (1, 0), (1, 4_000))):
        for warp in range(WARPS):
            mine = [(0, 0, 10_000), (1, 1_000, 9_000)]
            mine += [(2, 1_000 + 1_600 * number, 2_000 + 1_600 * number) for number in range(ITERATIONS)]
            ran += [Ran(scope, (last - first) // 2, cta, warp, sm) for scope, first, last in mine]
            times += [(begin + first, begin + last) for _, first, last in mine]
    rows = scope_rows(ran)
    rows["start_cycles"], rows["end_cycles"] = np.transpose(times)
    ctas = cta_rows(*((cta, min(cta, 1), 0, 5_000, 5_000) for cta in range(CTAS)))
    made = made_timeline(folder, scopes, [rows], ctas, warps=WARPS)
    table = replace(
        made.table, scopes=tuple(replace(scope, lines=lines.get(scope.name)) for scope in made.table.scopes)
    )
    (made.launch.kernel.folder / "kernel.ttgir").write_text(text)
    kernel = replace(
        made.launch.kernel,
        scopes=table,
        metadata={**made.launch.kernel.metadata, "target": {"backend": "cuda", "arch": target}},
    )
    return replace(made, table=table, launch=replace(made.launch, kernel=kernel, grid=(CTAS, 1, 1)))


def light_of(timeline: Timeline) -> SpeedOfLight:
    return LaunchAnalysis.of(timeline).speed_of_light


def roofs_of(timeline: Timeline) -> dict[str, Roof]:
    return {roof.scope: roof for roof in light_of(timeline).roofs}


def test_work_is_counted_as_often_as_it_was_done(tmp_path: Path) -> None:
    roofs = roofs_of(launched(tmp_path))
    assert {name: roof.executions for name, roof in roofs.items()} == {"func": 3, "loop[0]": 3, "iter[0]": 15}
    for roof in roofs.values():
        assert roof.work.tensor_flops == {"f16": CTAS * ITERATIONS * FLOPS}
        assert roof.work.special == CTAS * ITERATIONS * 4 * 160
    assert roofs["func"].work.multiplications == CTAS * 128
    assert roofs["loop[0]"].work.multiplications == 0


def test_what_nobody_counted_is_left_out_and_told(tmp_path: Path) -> None:
    """That under the condition, and that in the loop whose iterations were not recorded."""
    light = light_of(launched(tmp_path))
    assert light.unknown == 2
    assert light.roofs[0].work.additions == 0


def test_ctas_that_share_an_sm_share_its_units(tmp_path: Path) -> None:
    roofs = roofs_of(launched(tmp_path))
    # One SM has a CTA from 0 to 10,000, the other two from 0 to 14,000; there the loops last from 1,000 to 13,000.
    assert roofs["func"].sm_cycles == 10_000 + 14_000
    assert roofs["loop[0]"].sm_cycles == 8_000 + 12_000
    needed = CTAS * ITERATIONS * 4 * 160 / 16
    assert roofs["loop[0]"].parts["special functions"] == pytest.approx(needed / 20_000)
    assert roofs["loop[0]"].parts["tensor cores"] == pytest.approx(CTAS * ITERATIONS * FLOPS / 4096 / 20_000)
    assert (roofs["loop[0]"].unit, roofs["loop[0]"].part) == ("special functions", needed / 20_000)


@pytest.mark.parametrize(
    ("flops", "part", "impossible"), [(0.99, 0.99, {}), (1.04, 1.0, {}), (1.5, 0.0, {"tensor cores": 1.5})]
)
def test_no_unit_is_busy_for_more_than_all_of_the_time(flops: float, part: float, impossible: dict[str, float]) -> None:
    rates = rates_of("cuda:90")
    assert rates is not None
    made = Roof.of(0, "func", 1, 1000, Work(tensor_flops={"f16": int(flops * 4096 * 1000)}), rates)
    assert (made.parts["tensor cores"], dict(made.impossible)) == (
        pytest.approx(part, abs=1e-3),
        pytest.approx(impossible),
    )


def test_without_iterations_a_loop_of_unknown_length_tells_nothing(tmp_path: Path) -> None:
    timeline = launched(tmp_path, lines={"func": (3, 18)})
    assert list(roofs_of(timeline)) == ["func"]
    assert roofs_of(timeline)["func"].work.tensor_flops == {}
    assert light_of(timeline).unknown == 4


@pytest.mark.parametrize(
    ("changes", "case"),
    [
        ({"target": 75}, "an unknown target"),
        ({"text": "module {}\n"}, "an empty module"),
        ({"text": "// nothing\n"}, "no module"),
    ],
)
def test_what_is_lacking_is_told(tmp_path: Path, changes: dict[str, object], case: str) -> None:
    light = light_of(launched(tmp_path, **changes))  # type: ignore[arg-type]
    assert light.roofs == ()
    check("analysis/unjudged", str(light.missing), case)


def test_where_records_were_lost_the_timers_tell_the_time_of_the_whole_kernel(tmp_path: Path) -> None:
    timeline = replace(launched(tmp_path), records_lost=3, records_written=300)
    light = light_of(timeline)
    check("analysis/unjudged", str(light.missing), "1.0 % of the records lost")
    (whole,) = light.roofs
    # By their timers, the CTAs take 5,000 ns, the two on one SM at once; the iterations that are left are not counted.
    assert (whole.scope, whole.executions) == ("func", CTAS)
    assert whole.sm_cycles == round(2 * 5_000 * timeline.clock.clock_hz / 1e9)
    assert (whole.work.multiplications, whole.work.tensor_flops, light.unknown) == (CTAS * 128, {}, 4)
    limit = LaunchAnalysis.of(timeline).limit
    assert limit.sentence == f"limit not known: {light.missing}"


def test_without_timers_lost_records_leave_nothing_to_reckon_with(tmp_path: Path) -> None:
    timeline = replace(launched(tmp_path), records_lost=3, records_written=300)
    clock = replace(timeline.clock, source=ClockSource.NOMINAL)
    assert light_of(replace(timeline, clock=clock)).roofs == ()


def test_the_demos_matmul() -> None:
    """By hand: 2 x 2048 x 2048 x 1024 flops, of which an SM of an H200 does 4,096 a cycle."""
    (launch,) = read_capture(REPO / "tests/captures/matmul").launches
    timeline = decode_launch(launch)
    roofs = roofs_of(timeline)
    for roof in roofs.values():
        assert roof.work.tensor_flops == {"f16": 2 * 2048 * 2048 * 1024}
        assert roof.parts["tensor cores"] == pytest.approx(2 * 2048 * 2048 * 1024 / 4096 / roof.sm_cycles)
    assert [round(100 * roofs[name].part) for name in ("func", "loop[0]", "iter[0]")] == [75, 86, 89]
    # All CTAs together have the SMs for as long as the timer says, by the clock that was fitted.
    resident_ns = sum(
        int(mine["pre_final_ns"].max() - mine["init_ns"].min())
        for sm in np.unique(timeline.ctas["sm"])
        if len(mine := timeline.ctas[timeline.ctas["sm"] == sm])
    )
    assert roofs["func"].sm_cycles == pytest.approx(resident_ns * timeline.clock.clock_hz / 1e9, rel=0.03)


@pytest.mark.parametrize(
    "place",
    ["interpreter.executions.executed", "interpreter.executions.access_of", "limits.speed_of_light.work_with_integers"],
)
def test_a_kernel_that_cannot_be_evaluated_is_unjudged(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that shows: where operations are evaluated, or where anything is computed of them."""
    made = launched(tmp_path)
    before = LaunchAnalysis.of(made)
    assert before.speed_of_light.roofs

    def fail(*_: object) -> None:
        raise IndexError("no such operand")

    monkeypatch.setattr(f"kprof_inject.analysis.{place}", fail)
    evaluated.cache_clear()
    report = LaunchAnalysis.of(made)
    missing = report.speed_of_light.missing
    assert missing is not None and not report.speed_of_light.roofs
    assert "IndexError: no such operand" in missing.reason
    check("analysis/unjudged", str(missing), "a module that cannot be evaluated")
    assert json_values(report.summary) == json_values(before.summary)
