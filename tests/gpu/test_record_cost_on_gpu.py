"""What a record costs on this GPU in each mode, and how true that is of records among work. Prints the figures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_support import ROOT

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

import kprof_inject  # noqa: E402
from kprof_inject import Mode  # noqa: E402
from kprof_inject.capture.mode import cost_of  # noqa: E402

sys.path.insert(0, str(ROOT / "benchmarks"))

from record_cost import cost_in, costs_next_to_work, record  # noqa: E402

pytestmark = pytest.mark.alone
# scripts/record-costs has all of them; here is each part once.
MODES = [Mode(), Mode(clock_bits=32), Mode("global"), Mode(sched_stores=True), Mode(warps=(0,))]
PLAUSIBLE_CYCLES = (5, 200)
PLAUSIBLE_BESIDE_WORK_CYCLES = (-2, 60)
REPEATS_WITHIN = 0.1
ROUNDS = 16
CTAS = 8
CHAIN = tl.constexpr("mov.f32 $0, $1; " + 64 * "fma.rn.f32 $0, $0, 0f3F000000, 0f3F000000; ")


def words(mode: Mode) -> str:
    parts = [mode.buffer, f"clock {mode.clock_bits}", *(["some warps"] * bool(mode.warps))]
    return ", ".join([*parts, *(["sched stores"] * mode.sched_stores)])


@pytest.mark.parametrize("mode", MODES, ids=words)
def test_a_record_costs_the_same_each_time_and_what_is_shipped(tmp_path: Path, mode: Mode) -> None:
    """Beside work it costs little. A little less than nothing is taken for nothing: here it is as it came out."""
    recorded = [record(tmp_path / str(number), mode) for number in range(2)]
    costs = [cost_in(timelines) for timelines in recorded]
    after_start, after_end = costs_next_to_work(recorded[0])
    print(f"{words(mode)}: {costs}; beside work {after_start} after a start, {after_end} after an end")
    cycles = [cost.cycles for cost in costs]
    assert all(PLAUSIBLE_CYCLES[0] <= one <= PLAUSIBLE_CYCLES[1] for one in cycles)
    assert max(cycles) - min(cycles) <= REPEATS_WITHIN * min(cycles)
    least, most = PLAUSIBLE_BESIDE_WORK_CYCLES
    assert least <= after_start <= most
    assert least <= after_end <= most
    if shipped := cost_of(torch.cuda.get_device_name(), triton.__version__, mode):
        expected = costs[0].record_cost(sched_stores=mode.sched_stores)
        assert abs(shipped.cycles - expected.cycles) <= REPEATS_WITHIN * costs[0].cycles


@triton.jit
def chain(value):
    """Multiplications that wait for each other, and that the compiler leaves where they are."""
    return tl.inline_asm_elementwise(CHAIN, "=&f,f", [value], dtype=tl.float32, is_pure=False, pack=1)


@triton.jit(do_not_specialize=["rounds"])
def work_kernel(out_ptr, rounds):
    pid = tl.program_id(0)
    value = pid.to(tl.float32)
    # kprof: begin bare
    for _ in range(rounds):
        value = chain(value)
    # kprof: end bare
    # kprof: begin recorded
    for _ in range(rounds):
        # kprof: begin one
        value = chain(value)
        # kprof: end one
    # kprof: end recorded
    for _ in range(rounds):
        # kprof: begin two
        value = chain(value)
        value = chain(value)
        # kprof: end two
    tl.store(out_ptr + pid, value)


@pytest.mark.parametrize("mode", MODES, ids=words)
def test_a_record_among_work_costs_about_as_much(mode: Mode) -> None:
    """A scope around work is too long by what it is longer than half of one around twice as much; one around a loop by
    what it is longer than the same loop without records."""
    out = torch.empty(CTAS, device="cuda")
    recorded = Mode(mode.buffer, 4096, mode.clock_bits, mode.warps and (0, 1, 2, 3), mode.sched_stores)
    with kprof_inject.profile(["marker"], launches="all", mode=recorded, replay=0) as prof:
        for _ in range(8):
            work_kernel[(CTAS,)](out, ROUNDS, num_warps=4)
    cycles: dict[str, list[np.ndarray]] = {}
    for timeline in prof.timelines[2:]:
        scopes = timeline.scopes
        for index, info in enumerate(timeline.table.scopes):
            mine = scopes[scopes["scope"] == index]
            cycles.setdefault(info.name, []).append(mine["end_cycles"] - mine["start_cycles"])
    median = {name: float(np.median(np.concatenate(parts))) for name, parts in cycles.items()}
    around = 2 * median["one"] - median["two"]
    among = (median["recorded"] - median["bare"]) / (2 * ROUNDS)
    print(f"{words(mode)}: around work {around}, among work {among}; {median}")
    assert -10 <= around <= PLAUSIBLE_CYCLES[1]
    assert -10 <= among <= PLAUSIBLE_CYCLES[1]
