"""Two captures whose truth is known: what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Scope
from figures_in import figures_in
from known_sides import HEAD_NS, ITER, ITER_NS, ITERATIONS, SCOPES, around, rows_of, side, usual, with_rows
from numpy.typing import NDArray
from replacing import replace
from snapshots import check
from timelines import cta_rows

from kprof_inject.analysis.comparison.causes import Remedy, explained_by
from kprof_inject.analysis.comparison.runs import Both
from kprof_inject.analysis.comparison.verdicts import ChangeVerdict, KernelDiff, ScopeChange, diff_captures
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.resources import KernelResources
from kprof_inject.errors import KprofError
from kprof_inject.report.diff.rows import diff_json
from kprof_inject.report.diff.wording import change_words, first_answer, kernel_answer, kernel_notes
from kprof_inject.timeline.comparison import Change
from kprof_inject.timeline.timeline import Timeline


def compared(a: list[Timeline], b: list[Timeline]) -> KernelDiff:
    (kernel,) = diff_captures(a, b).kernels
    return kernel


def scope_of(kernel: KernelDiff, name: str) -> ScopeChange:
    (scope,) = (scope for scope in kernel.scopes if scope.b.info.name == name)
    return scope


def verdicts(kernel: KernelDiff) -> dict[str, ChangeVerdict | None]:
    return {scope.b.info.name: scope.judged.verdict if scope.judged else None for scope in kernel.scopes}


def answer_of(kernel: KernelDiff) -> str:
    return "\n".join(kernel_answer(kernel))


def notes_of(kernel: KernelDiff) -> str:
    return "\n".join(kernel_notes(kernel))


def check_diff(kernel: KernelDiff, case: str) -> None:
    """Check all sentences about a kernel."""
    check("report/diff", f"{answer_of(kernel)}\n\n{notes_of(kernel)}", case)


def error_of(a: list[Timeline], b: list[Timeline], case: str, **options: Any) -> KprofError:
    with pytest.raises(KprofError) as failed:
        diff_captures(a, b, **options)
    check("report/diff-errors", failed.value.render(), case)
    return failed.value


SAME, FASTER, SLOWER = ChangeVerdict.SAME, ChangeVerdict.FASTER, ChangeVerdict.SLOWER
CLOCK, UNKNOWN = ChangeVerdict.CLOCK, ChangeVerdict.UNKNOWN
RATE = 1.75 / 1.59
# As long as usual, but for what is in it.
INSIDE = {"head_ns": HEAD_NS - 0.1 * ITERATIONS * ITER_NS, "iter_ns": 1.1 * ITER_NS}


@pytest.mark.parametrize(
    ("case", "a", "b", "launch", "scopes"),
    [
        ("the same kernel twice", {}, {}, SAME, [SAME] * 3),
        ("slower before the loop", {}, {"head_ns": 2 * HEAD_NS}, SLOWER, [SLOWER, SAME, SAME]),
        ("a scope changes, the launch not", {}, INSIDE, SAME, [SAME, SLOWER, SLOWER]),
        (
            "another clock",
            {"clock_ghz": 1.75},
            {"clock_ghz": 1.59, "head_ns": HEAD_NS * RATE, "iter_ns": ITER_NS * RATE},
            CLOCK,
            [CLOCK] * 3,
        ),
        (
            "a change beyond the clock's",
            {"clock_ghz": 1.75},
            {"clock_ghz": 1.59, "head_ns": HEAD_NS * RATE, "iter_ns": 1.3 * ITER_NS * RATE},
            SLOWER,
            [SLOWER] * 3,
        ),
        (
            "a scope beyond the clock's change",
            {"clock_ghz": 1.8},
            {"clock_ghz": 1.5, **{name: 1.2 * ns for name, ns in INSIDE.items()}},
            CLOCK,
            [CLOCK, SLOWER, SLOWER],
        ),
        ("a change that the clock hides", {"clock_ghz": 1.6}, {"clock_ghz": 1.9}, SAME, [SAME] * 3),
        ("one launch each", {"launches": 1}, {"launches": 1, "iter_ns": 2 * ITER_NS}, UNKNOWN, [UNKNOWN] * 3),
        ("four launches each", {"launches": 4}, {"launches": 4, "iter_ns": 2 * ITER_NS}, UNKNOWN, [UNKNOWN] * 3),
        ("6 and 60 launches", {"launches": 6}, {"launches": 60, "iter_ns": 1.2 * ITER_NS}, SLOWER, [SLOWER] * 3),
        ("more warps", {}, {"warps": 4}, SAME, [SAME] * 3),
        ("another grid", {}, {"ctas": 3}, SAME, [SLOWER] * 3),
    ],
)
def test_verdicts_and_what_is_said(
    tmp_path: Path,
    case: str,
    a: dict[str, Any],
    b: dict[str, Any],
    launch: ChangeVerdict,
    scopes: list[ChangeVerdict],
) -> None:
    kernel = compared(usual(tmp_path / "a", 1, **a), usual(tmp_path / "b", 2, **b))
    assert kernel.launch.verdict is launch
    assert list(verdicts(kernel).values()) == scopes
    check_diff(kernel, case)


FASTER_CLEAN, USUAL_CLEAN, SLOWER_CLEAN = around(150_000, 6, 100), around(170_000, 5, 100), around(187_000, 6, 100)


@pytest.mark.parametrize(
    ("case", "clean_ns", "b", "launch"),
    [
        ("times without records", SLOWER_CLEAN, {"head_ns": HEAD_NS + 19_000}, SLOWER),
        ("times that contradict each other", FASTER_CLEAN, {"head_ns": 2 * HEAD_NS}, FASTER),
        (
            "times without records at another clock",
            SLOWER_CLEAN,
            {"head_ns": HEAD_NS * 1.1, "iter_ns": ITER_NS * 1.1, "clock_ghz": 2.0 / 1.1},
            CLOCK,
        ),
        ("both sides of one dump", USUAL_CLEAN, {}, None),
    ],
)
def test_times_without_records_are_what_the_answer_goes_by(
    tmp_path: Path, case: str, clean_ns: NDArray[np.float64], b: dict[str, Any], launch: ChangeVerdict | None
) -> None:
    kernel = compared(usual(tmp_path / "a", 1, clean_ns=USUAL_CLEAN), usual(tmp_path / "b", 2, clean_ns=clean_ns, **b))
    assert (kernel.launch.verdict if kernel.by_clean_times else None) is launch
    check_diff(kernel, case)


def test_where_nobody_can_tell_what_records_cost_a_side_that_is_said(tmp_path: Path) -> None:
    times_ns = tuple(190_000 * (1 + 0.3 * np.random.default_rng(0).uniform(-1, 1, 20)))
    costs = dict.fromkeys(("clean", "with_records"), KernelResources(times_ns=times_ns))
    kernel = compared(usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, kernel=costs))
    assert "trust in A" not in notes_of(kernel) and "trust in B: " in notes_of(kernel)
    check_diff(kernel, "unknown cost of records in B")


def test_no_difference_holds_over_many_repeats(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1)
    kernels = [compared(a, usual(tmp_path / str(seed), seed)) for seed in range(2, 32)]
    assert {kernel.launch.verdict for kernel in kernels} == {ChangeVerdict.SAME}
    assert {verdict for kernel in kernels for verdict in verdicts(kernel).values()} == {ChangeVerdict.SAME}


def test_a_faster_iteration_is_named_as_what_explains_the_launch(tmp_path: Path) -> None:
    kernel = compared(usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, iter_ns=0.8 * ITER_NS))
    assert verdicts(kernel) == dict.fromkeys(("func", "loop[0]", "iter[0]"), ChangeVerdict.FASTER)
    iteration = scope_of(kernel, "iter[0]")
    assert iteration.judged is not None and iteration.judged.change is not None
    assert iteration.judged.change.low_percent < -20 < iteration.judged.change.high_percent
    assert explained_by(kernel, iteration) == pytest.approx(1.0, abs=0.02)
    assert explained_by(kernel, scope_of(kernel, "func")) == pytest.approx(0.0, abs=0.02)
    # 30 of 190 µs.
    assert figures_in(answer_of(kernel))[0] == "15.8"
    check_diff(kernel, "a faster iteration")


def test_the_change_is_what_the_times_beside_it_give(tmp_path: Path) -> None:
    # Six of ten launches of B take as long as those of A, which is the median; the mean is not.
    slow = [170_000.0] * 6 + [180_000.0] * 4
    kernel = compared(usual(tmp_path / "a", 1, clean_ns=[170_000.0] * 10), usual(tmp_path / "b", 2, clean_ns=slow))
    assert any("+0.0 % [" in note and " 170 µs " in note for note in kernel_notes(kernel))
    check_diff(kernel, "four slow launches of ten")


def test_of_several_processes_too(tmp_path: Path) -> None:
    a = [usual(tmp_path / f"a{n}", n, clean_ns=around(170_000, n, 20)) for n in range(3)]
    b = [
        usual(tmp_path / f"b{n}", 10 + n, clean_ns=around(ns, 10 + n, 20)) for n, ns in enumerate((150e3, 160e3, 190e3))
    ]
    kernel = compared([one for side in a for one in side], [one for side in b for one in side])
    for judged, times in ((kernel.clean, kernel.clean_ns), (kernel.recorded, kernel.sides.duration_ns)):
        assert judged is not None and judged.change is not None and times.a and times.b
        assert judged.change.percent == pytest.approx(100 * (times.b / times.a - 1), abs=1e-9)
    for scope in kernel.scopes:
        assert scope.judged and scope.judged.change and scope.compared_ns.a and scope.compared_ns.b
        given = 100 * (scope.compared_ns.b / scope.compared_ns.a - 1)
        assert scope.judged.change.percent == pytest.approx(given, abs=1e-9)


def test_of_one_launch_each_the_change_in_cycles_is_an_estimate(tmp_path: Path) -> None:
    clean = around(170_000, 5, 100), around(187_000, 6, 100)
    a = side(tmp_path / "a", [HEAD_NS], [ITER_NS], clock_ghz=2.0, clean_ns=clean[0])
    b = side(tmp_path / "b", [1.1 * HEAD_NS], [1.1 * ITER_NS], clock_ghz=1.6, clean_ns=clean[1])
    kernel = compared(a, b)
    assert kernel.recorded.cycles is None
    assert figures_in(answer_of(kernel))[0] == "10.1"
    assert " -12.0 % [?]" in answer_of(kernel) and " -12.0 % [?]" in notes_of(kernel)
    check_diff(kernel, "cycles of one launch each")
    cycles = diff_json(diff_captures(a, b))["kernels"][0]["with_records"]["median_cycles"]
    assert cycles["b"] / cycles["a"] == pytest.approx(0.88, abs=0.001)


@pytest.mark.parametrize(
    ("launches", "case"), [(8, "launches that scatter widely"), (20, "many launches that scatter widely")]
)
def test_whoever_has_many_launches_is_not_told_to_capture_more_of_them(
    tmp_path: Path, launches: int, case: str
) -> None:
    wide = np.random.default_rng(0).normal(0, 0.8, (2, launches))
    a, b = (
        side(tmp_path / str(n), around(HEAD_NS, n, launches), ITER_NS * np.exp(logs)) for n, logs in enumerate(wide)
    )
    kernel = compared(a, b)
    assert ("--launches" in answer_of(kernel)) == (launches == 8)
    check_diff(kernel, case)


def test_of_launches_shorter_than_a_step_of_the_timer_that_is_said(tmp_path: Path) -> None:
    def short(timelines: list[Timeline]) -> list[Timeline]:
        return [replace(one, ctas=cta_rows((0, 0, 1_000_000, 1_000_000, 1_000_000))) for one in timelines]

    kernel = compared(short(usual(tmp_path / "a", 1)), short(usual(tmp_path / "b", 2)))
    sentence = answer_of(kernel)
    assert sentence.startswith("cannot tell: ") and "--launches" not in sentence
    assert figures_in(sentence)[:4] == ["40", "40", "0", "32"]
    check_diff(kernel, "launches within a timer step")


def test_a_first_launch_is_left_out(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2)
    slow = with_rows(replace(a[0], launch=replace(a[0].launch, index=0)), rows_of(10 * HEAD_NS, 10 * ITER_NS))
    kernel = compared([slow, *a], b)
    assert len(kernel.sides.a) == len(a) and len(kernel.all_launches.a) == len(a) + 1
    check_diff(kernel, "a first launch")


def test_repeated_captures_of_a_side_show_what_captures_differ_by(tmp_path: Path) -> None:
    """Each is three per cent off; one beside one looks like a change."""
    offs = (0.97, 1.03, 1.0, 0.96, 1.04)
    captures = [usual(tmp_path / str(n), n, HEAD_NS * off, ITER_NS * off) for n, off in enumerate(offs)]
    assert compared(captures[0], captures[1]).launch.verdict is ChangeVerdict.SLOWER
    a = [timeline for capture in captures[:1] + captures[2:] for timeline in capture]
    # The processes are told apart by their folders.
    assert compared(a, captures[1]).launch.verdict is ChangeVerdict.SAME


def test_a_renamed_scope_is_the_same_and_a_missing_one_is_named(tmp_path: Path) -> None:
    scopes = [SCOPES[0], SCOPES[1], replace(SCOPES[2], name="step")]
    kernel = compared(usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, scopes=scopes))
    # Nothing tells of these captures what the lines say.
    assert list(verdicts(kernel)) == ["func", "loop[0]"]
    assert [one.scope.info.name for one in kernel.matching.only_a] == ["iter[0]"]
    assert "only in B: step (matmul.py:15)" in notes_of(kernel)
    check_diff(kernel, "a renamed scope")
    # What is only on one side is its parent's.
    assert scope_of(kernel, "loop[0]").judged is not None


def test_lost_records_leave_the_means_to_compare(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, records_lost=12)
    half = [with_rows(one, one.scopes[: one.scopes.size // 2]) for one in b]
    kernel = compared(a, half)
    assert {scope.basis.name for scope in kernel.scopes} == {"mean"}
    assert set(verdicts(kernel).values()) == {ChangeVerdict.SAME}
    notes = notes_of(kernel)
    assert "lost: 240 " in notes and " means" in notes
    check_diff(kernel, "lost records")
    assert explained_by(kernel, kernel.scopes[ITER]) is None


def test_a_record_without_its_other_half_makes_that_scope_a_mean(tmp_path: Path) -> None:
    alone = np.array([0, 0, 1])
    kernel = compared(usual(tmp_path / "a", 1, open_starts=alone), usual(tmp_path / "b", 2))
    assert [scope.basis.name for scope in kernel.scopes] == ["total", "total", "mean"]


def test_warps_that_one_side_recorded_alone_are_left_out(tmp_path: Path) -> None:
    mode = {"mode": Mode(warps=(1,)), "num_warps": 2}
    b = usual(tmp_path / "b", 2, kernel=mode)
    only_one = [with_rows(one, one.scopes[one.scopes["warp"] == 1]) for one in b]
    kernel = compared(usual(tmp_path / "a", 1), only_one)
    assert kernel.warps == (1,)
    assert scope_of(kernel, "iter[0]").both(lambda scope: scope.count) == Both(ITERATIONS, ITERATIONS)
    assert set(verdicts(kernel).values()) == {ChangeVerdict.SAME}
    check_diff(kernel, "warps that one side recorded alone")


def test_an_unmeasured_clock_is_told(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2)
    untimed = [replace(one, clock=replace(one.clock, source="nominal")) for one in b]
    kernel = compared(a, untimed)
    assert "clock rate not measured" in notes_of(kernel)
    check_diff(kernel, "a clock that was not measured")


def test_a_scope_that_never_ran_has_no_verdict(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("tail", "loop", 0)]
    kernel = compared(usual(tmp_path / "a", 1, scopes=scopes), usual(tmp_path / "b", 2, scopes=scopes))
    assert scope_of(kernel, "tail").judged is None


def test_launches_without_any_scope_are_compared_as_a_whole(tmp_path: Path) -> None:
    a, b = ([with_rows(one, one.scopes[:0]) for one in usual(tmp_path / str(n), n)] for n in (1, 2))
    kernel = compared(a, b)
    assert kernel.launch.verdict is ChangeVerdict.SAME
    assert set(verdicts(kernel).values()) == {None}


def test_scopes_can_be_chosen_by_name(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2)
    (chosen,) = diff_captures(a, b, scopes=["iter[0]"]).kernels
    assert [scope.b.info.name for scope in chosen.scopes] == ["iter[0]"]
    # What is asked about one is answered more sharply than about three.
    of_three = scope_of(compared(a, b), "iter[0]").judged
    assert chosen.scopes[0].judged is not None and of_three is not None
    assert chosen.scopes[0].judged.change is not None and of_three.change is not None
    assert chosen.scopes[0].judged.change.log_error < of_three.change.log_error
    error = error_of(a, b, "a scope that neither side has", scopes=["dot"])
    assert error.what.startswith("--scope dot ") and "func, loop[0], iter[0]" in error.hint


def test_each_glob_finds_something_by_itself(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1)
    b = usual(tmp_path / "b", 2, scopes=[*SCOPES[:2], replace(SCOPES[2], name="step")])
    assert error_of(a, b, "one of two globs", scopes=["loop*", "dot"]).what.startswith("--scope dot ")
    error = error_of(a, b, "a scope that one side has", scopes=["loop*", "iter*"])
    assert error.what.startswith("--scope iter* ") and "iter[0]; " in error.hint and "func, loop[0]" in error.hint


def test_an_interval_that_bounds_nothing_is_called_one() -> None:
    assert change_words(Change(0.03, 5.0)) == "+3.0 % [?]"
    assert change_words(Change(0.03, 0.5)) == "+3.0 % [-37.5, +69.9]"
    assert change_words(Change(2.5, 0.5)) == "+1118.2 % [+638.9, +1908.6]"


def of_two(
    folder: Path, seed: int, add_ns: tuple[float, float], mul_ns: tuple[float, float], **changes: Any
) -> list[Timeline]:
    """Launches of ``add`` and of ``mul``, each with the time before its loop and that of an iteration."""
    return [
        timeline
        for name, (head_ns, iter_ns) in {"add": add_ns, "mul": mul_ns}.items()
        for timeline in usual(
            folder / name, seed + len(name), head_ns, iter_ns, kernel={"name": name, "variant": name}, **changes
        )
    ]


USUAL, LATER = (HEAD_NS, ITER_NS), (1.1 * HEAD_NS, 1.1 * ITER_NS)


@pytest.mark.parametrize(
    ("case", "ghz", "seed", "add", "mul", "changes", "changed"),
    [
        ("one of two changed", 1.75, 3, USUAL, (HEAD_NS, 1.5 * ITER_NS), {}, [SLOWER, SAME]),
        ("none of two changed", 1.75, 5, USUAL, USUAL, {}, [SAME, SAME]),
        ("the clock of both", 1.75, 3, LATER, LATER, {"clock_ghz": 1.75 / 1.1}, [CLOCK, CLOCK]),
        ("the clock of one", 1.75, 5, LATER, (HEAD_NS, 2 * ITER_NS), {"clock_ghz": 1.75 / 1.1}, [SLOWER, CLOCK]),
        ("a scope of one", 1.6, 3, USUAL, (*INSIDE.values(),), {}, [SAME, SAME]),
        ("changes that the clock hides", 1.6, 5, USUAL, USUAL, {"clock_ghz": 1.9}, [SAME, SAME]),
        ("grids of both", 1.6, 7, USUAL, USUAL, {"ctas": 3}, [SAME, SAME]),
    ],
)
def test_several_kernels_have_one_answer(
    tmp_path: Path,
    case: str,
    ghz: float,
    seed: int,
    add: tuple[float, float],
    mul: tuple[float, float],
    changes: dict[str, Any],
    changed: list[ChangeVerdict],
) -> None:
    a = of_two(tmp_path / "a", 1, USUAL, USUAL, clock_ghz=ghz)
    diff = diff_captures(a, of_two(tmp_path / "b", seed, add, mul, **{"clock_ghz": ghz, **changes}))
    assert [kernel.launch.verdict for kernel in diff.kernels] == changed
    check("report/diff-of-several", "\n".join(first_answer(diff)), case)


def test_of_several_kernels_that_cannot_be_told_each_remedy_stands_once(tmp_path: Path) -> None:
    a, b = (of_two(tmp_path / name, seed, USUAL, USUAL, launches=1) for seed, name in ((1, "a"), (3, "b")))
    few = "\n".join(first_answer(diff_captures(a, b)))
    assert few.startswith("cannot tell ") and few.endswith(f"\n{Remedy.MORE_LAUNCHES.value}")
    check("report/diff-of-several", few, "too few launches of both")
    short = replace(b[1], ctas=cta_rows((0, 0, 1_000, 1_000, 1_000)))
    check(
        "report/diff-of-several",
        "\n".join(first_answer(diff_captures(a, [b[0], short]))),
        "too few launches, one short",
    )
