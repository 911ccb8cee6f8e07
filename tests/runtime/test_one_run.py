"""``profile`` runs a program once: kernels get their records when they are compiled, and some launches have none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.captured import launches_in, number_of
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu
from fake_runs import LAUNCHES, FakeRuns
from hypothesis import given
from hypothesis import strategies as st
from programs.child import Ended
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import PairedTimesRecord
from kprof_inject.runtime.launch.timing import EmptyKernel, TurnTimer
from kprof_inject.runtime.versions import installed_version
from kprof_inject.timeline.trust import needs_replay
from kprof_inject.workspace import Workspace

EMPTY = EmptyKernel(128, 0)
Ran = tuple[FakeRuns, Ended]


def profiled(folder: Path, *options: str, program: str = "") -> Ran:
    """Profile the text of a program, or ``LAUNCHES``."""
    runs = FakeRuns(folder, folder / "workspace")
    (folder / "home").mkdir(exist_ok=True)
    (folder / "prog.py").write_text(program)
    path = folder / "prog.py" if program else LAUNCHES
    return runs, runs.kprof("profile", "-o", runs.workspace, "--replay", "none", *options, "--", path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return profiled(tmp_path_factory.mktemp("once"))


def ran_on_device(ended: Ended) -> list[tuple[str, bool]]:
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("{")]
    return [(name, has_records) for name, _, _, has_records in json.loads(line)["ran"]]


def have_records(ended: Ended, kernel: str) -> list[bool]:
    """Tell of each launch of a kernel whether it had records."""
    return [has_records for name, has_records in ran_on_device(ended) if name == kernel]


def timing_of(runs: FakeRuns, kernel: str) -> dict[str, Any]:
    (launch,) = launches_in(runs.capture, kernel)
    return dict(json.loads((launch.kernel.folder / "timing.json").read_text()))


@pytest.mark.triton
def test_the_program_makes_the_same_launches_as_without_us(ran: Ran) -> None:
    runs, ended = ran
    plain = runs.plain()
    assert (ended.exit_code, ended.stdout.splitlines()[: len(plain.stdout.splitlines())]) == (
        0,
        plain.stdout.splitlines(),
    )
    assert [name for name, _ in ran_on_device(ended)] == [name for name, _ in ran_on_device(plain)]


@pytest.mark.triton
def test_one_of_two_launches_has_records_and_the_last_of_these_is_kept(ran: Ran) -> None:
    runs, ended = ran
    scale = have_records(ended, "scale")
    assert scale[:2] == [True, True]
    assert all(sum(scale[place : place + 2]) == 1 for place in range(2, len(scale), 2))
    (launch,) = launches_in(runs.capture, "scale")
    assert launch.index == max(number for number, has_records in enumerate(scale) if has_records)
    assert number_of(launch) == launch.index + 1


TWO_GRIDS = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

for n in range(120):
    ctas = 16 if n % 4 else 64
    x = torch.arange(1, ctas + 1, dtype=torch.float32)
    scale[(ctas,)](x, torch.zeros_like(x), n)
"""


def test_launches_are_counted_and_timed_by_grid(tmp_path: Path) -> None:
    """The kept launch has the grid with most CTAs in all, and its times are of that grid alone."""
    runs, ended = profiled(tmp_path, program=TWO_GRIDS)
    assert ended.exit_code == 0, ended.stderr
    (launch,) = launches_in(runs.capture, "scale")
    assert launch.grid == (64, 1, 1) and launch.index > 100
    assert [(one.grid[0], one.launches) for one in launch.kernel.grids] == [(64, 30), (16, 90)]
    assert all(one.clean_ns for one in launch.kernel.grids), launch.kernel.grids
    in_turn = timing_of(runs, "scale")["in_turn"]["clean_ns"]
    assert 0 < len(in_turn) <= len(launch.kernel.grids[0].clean_ns)


@pytest.mark.triton
def test_what_an_autotuner_tries_has_no_records_and_no_build(ran: Ran) -> None:
    runs, ended = ran
    tuned = have_records(ended, "tuned")
    assert tuned[:12] == [False] * 12 and any(tuned[12:])
    states = json.loads(next((runs.workspace / "reports" / "dump").glob("*.json")).read_text())["kernels"].values()
    assert Counter(state["name"] for state in states if state["state"] == "instrumented")["tuned"] == 1
    assert len([kernel for kernel in Workspace(runs.workspace).kernels() if kernel.name == "tuned"]) == 4


@pytest.mark.triton
def test_launches_without_records_show_what_these_cost(ran: Ran) -> None:
    runs, _ = ran
    times = timing_of(runs, "scale")["in_turn"]
    assert times["clean_ns"] == [19_570.0] * 4, "of five pairs, one warms up"
    assert times["with_records_ns"] == [19_570.0 + 2 * 4 * 200] * 4
    (launch,) = launches_in(runs.capture, "scale")
    assert (launch.kernel.clean.times_ns, launch.kernel.with_records.in_turn) == ((19_570.0,) * 4, True)
    clean = Workspace(runs.workspace).clean_run(launch.kernel.variant)
    assert (clean.times_ns, clean.launches, clean.registers) == ((19_570.0,) * 4, 12, 32)
    (power,), (tuned,) = launches_in(runs.capture, "power"), launches_in(runs.capture, "tuned")
    assert needs_replay(power.kernel) and needs_replay(tuned.kernel), "too few pairs"


def test_what_is_not_chosen_runs_clean_and_is_timed(tmp_path: Path) -> None:
    runs, ended = profiled(tmp_path, "--at", "scale/func", "--launches", "7")
    assert {name for name, has_records in ran_on_device(ended) if has_records} == {"scale"}
    scale = have_records(ended, "scale")
    assert scale[7] and not any(scale[:2]), "what is neither kept nor timed runs clean"
    (launch,) = read_capture(runs.capture).launches
    assert (launch.kernel.name, launch.index, number_of(launch)) == ("scale", 7, 8)
    workspace = Workspace(runs.workspace)
    (power,) = [kernel for kernel in workspace.kernels() if kernel.name == "power"]
    assert workspace.clean_run(power.variant).launches == 3


@given(st.lists(st.integers(0, 2), max_size=300))
def test_of_each_pair_one_has_records_and_no_order_is_preferred(grids: list[int]) -> None:
    timer = TurnTimer(FakeDevice(FakeGpu()), EMPTY)
    turns = [timer.turn((grid, 1, 1)) for grid in grids]
    found = Counter((turn.grid, turn.pair) for turn in turns if turn is not None)
    with_records = Counter((turn.grid, turn.pair) for turn in turns if turn is not None and turn.has_records)
    assert set(found.values()) <= {1, 2}
    assert all(with_records[pair] == 1 for pair, launches in found.items() if launches == 2)


def test_the_times_are_looked_at_however_late_they_come() -> None:
    gpu = FakeGpu()
    timer = TurnTimer(FakeDevice(gpu), EMPTY)
    late = [110_000.0, 100_000.0]
    looks: list[int] = []

    def times(grids: object) -> PairedTimesRecord:
        looks.append(launch)
        count = 0 if launch < 500 else 10
        return PairedTimesRecord(clean_ns=(late[1],) * count, with_records_ns=(late[0],) * count)

    timer.times = times  # type: ignore[method-assign]
    found = []
    for launch in range(2000):  # noqa: B007
        found.append(timer.excess())
    assert len(looks) < 15 and looks[:2] == [8, 14]
    assert [excess for excess in found if excess is not None] == [pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("clean", "with_records", "empty_ns", "expected"),
    [
        ((100.0,) * 2, (116.0, 130.0), None, 0.23),
        ((100.0,) * 2, (114.0, 130.0), None, None),
        ((100.0,), (130.0,), None, None),
        ((100.0,) * 2, (90.0, 90.0), None, None),
        # The first empty launch takes longer than a kernel of 10 µs.
        ((10_000.0,) * 2, (10_300.0,) * 2, 9_700.0, None),
        ((10_000.0,) * 5, (10_300.0,) * 5, 1_000.0, 0.03 / 0.9),
    ],
)
def test_a_large_excess_needs_two_pairs_and_a_small_one_more(
    clean: tuple[float, ...], with_records: tuple[float, ...], empty_ns: float | None, expected: float | None
) -> None:
    timer = TurnTimer(FakeDevice(FakeGpu()), EMPTY)
    found = PairedTimesRecord(
        clean_ns=clean,
        with_records_ns=with_records,
        clean_empty_ns=empty_ns,
        with_records_empty_ns=1_000.0 if empty_ns else None,
    )
    timer.times = lambda grids: found  # type: ignore[method-assign]
    excesses = [excess for _ in range(100) if (excess := timer.excess()) is not None]
    assert excesses == ([] if expected is None else [pytest.approx(expected)])


def test_neither_order_of_a_pair_is_rarer() -> None:
    timer = TurnTimer(FakeDevice(FakeGpu()), EMPTY)
    turns = [timer.turn((1, 1, 1)) for _ in range(2 + 2 * 200)]
    first = [turn.has_records for turn in turns[2::2] if turn is not None]
    assert len(first) == 200 and 80 <= sum(first) <= 120
    # A program that repeats itself every 2, 4 or 8 launches is not seen in one phase alone.
    assert all(
        20 <= 100 * sum(first[place::step]) / len(first[place::step]) <= 80 for step in (2, 4) for place in range(step)
    )


MANY = """
from fake_gpu.program import gpu
import torch
from fake_gpu.kernels import power

x = torch.arange(1, 17, dtype=torch.float32)
for n in range(200):
    power[(16,)](x, out := torch.zeros_like(x), 3)
print(out.tolist(), len(gpu.ran))
"""


def test_a_kernel_that_records_slow_down_is_recorded_with_fewer(tmp_path: Path) -> None:
    """On this GPU, its six records take a quarter of its time, and even two more than a twentieth."""
    runs, ended = profiled(tmp_path, program=MANY)
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.startswith(f"{[float(n**3) for n in range(1, 17)]} 200\n")
    (launch,) = read_capture(runs.capture).launches
    assert [scope.kind for scope in launch.kernel.scopes.scopes] == ["func"]
    assert launch.index == 199
    notes = [line for line in ended.stderr.splitlines() if "are not recorded" in line]
    check("runtime/one_run", "\n".join(notes), "fewer records")
    moved = "power: its records are in shared memory: in global memory, it took 8 % longer"
    assert (moved in ended.stderr) == ("nvidia" in installed_version().global_buffer_on)
    times = launch.kernel.clean.times_ns, launch.kernel.with_records.times_ns
    assert len(times[0] or ()) == len(times[1] or ()) > 40
    assert set(times[1] or ()) == {19_570.0 + 2 * 4 * 200}, "those of the last build alone"


@pytest.mark.skipif(installed_version().offset_bits is None, reason="all CTAs record")
@pytest.mark.parametrize(
    ("ctas", "shift", "buffer", "at_last"),
    [
        ("auto", 2, "global", "150 of its 600 CTAs record: with more, it took 8 % longer"),
        (
            "1/2",
            1,
            "global",
            "its loops are not recorded: with them, it took 16 % longer; to record them, --at func --at loop",
        ),
    ],
)
def test_fewer_ctas_record_if_all_else_fails(tmp_path: Path, ctas: str, shift: int, buffer: str, at_last: str) -> None:
    program = MANY.replace("17", "601").replace("16,", "600,").replace("out.tolist()", "out.tolist()[:4]")
    runs, ended = profiled(tmp_path, "--ctas", ctas, program=program)
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.startswith("[1.0, 8.0, 27.0, 64.0] 200\n")
    (launch,) = read_capture(runs.capture).launches
    assert (launch.sample.shift if launch.sample else 0, launch.kernel.mode.buffer) == (shift, buffer)
    assert [scope.kind for scope in launch.kernel.scopes.scopes] == ["func"]
    notes = [line for line in ended.stderr.splitlines() if "it took" in line]
    assert notes[-1] == f"kprof-inject: power: {at_last}"


SLOW_CTAS = """
from kprof_inject.capture.slowdown import Slowdown
from kprof_inject.runtime.launch import copier
import time

parts = [{part}, 0.0, 0.0, 0.0]
copier.slowdown_of = lambda *_: Slowdown(parts.pop(0), 0.02)
"""


@pytest.mark.skipif(installed_version().offset_bits is None, reason="all CTAs record")
@pytest.mark.parametrize(("part", "took"), [(0.3, "30 % longer"), (-0.3, "30 % less time"), (0.06, "")])
def test_a_kernel_whose_recording_ctas_differ_is_recorded_with_less(tmp_path: Path, part: float, took: str) -> None:
    """The launches are too few to be timed."""
    program = MANY.replace("17", "601").replace("16,", "600,").replace("out.tolist()", "out.tolist()[:4]")
    program = program.replace("\nx = ", f"{SLOW_CTAS.format(part=part)}\nx = ").replace("range(200):", "range(4):")
    runs, ended = profiled(tmp_path, "--ctas", "1/8", program=f"{program.replace(', 3)', ', 3), time.sleep(0.1)')}")
    assert ended.stdout.startswith("[1.0, 8.0, 27.0, 64.0] 4\n"), ended.stderr
    (launch,) = read_capture(runs.capture).launches
    assert len(launch.kernel.scopes.scopes) == (2 if took else 3)
    why = f"power: its iterations are not recorded: with them, CTAs that record took {took} than the others"
    assert (why in ended.stderr) == bool(took)


def test_what_the_user_selects_is_recorded_however_slow(tmp_path: Path) -> None:
    runs, ended = profiled(tmp_path, "--at", "func", "--at", "loop", "--at", "iter", program=MANY)
    (launch,) = read_capture(runs.capture).launches
    assert [scope.kind for scope in launch.kernel.scopes.scopes] == ["func", "loop", "iter"]
    assert "are not recorded" not in ended.stderr


BREAKS = """
from kprof_inject.runtime.launch.{module} import {owner}

def fail(*_, **__):
    raise ValueError("a fault")

{owner}.{name} = fail
"""


@pytest.mark.parametrize("broken", ["timing.TurnTimer.excess", "planned_kernel.PlannedKernel.record_less"])
def test_a_fault_of_ours_never_reaches_the_program(tmp_path: Path, broken: str) -> None:
    breaks = BREAKS.format(**dict(zip(("module", "owner", "name"), broken.split("."), strict=True)))
    _, ended = profiled(tmp_path, program=MANY.replace("\nx = ", f"{breaks}\nx = "))
    assert f"{[float(n**3) for n in range(1, 17)]} 200\n" in ended.stdout, ended.stderr
    assert "Traceback" not in ended.stderr and "a fault" in ended.stderr
