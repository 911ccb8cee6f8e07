"""``benchmarks/record_cost.py``: the cost from launches whose gaps between records are known, and its kernel."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from itertools import accumulate, cycle, islice
from pathlib import Path

import pytest
import triton
from buffers import Cta, Entry, Scope, buffer_words, end, kernel_json, save_launches, start
from programs.child import REPO
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kprof_inject.capture.mode import Mode, RecordCost
from kprof_inject.errors import KprofError
from kprof_inject.insertion import insert_module, view_of
from kprof_inject.runtime.compiling.instrumentation import lower
from kprof_inject.timeline.timeline import Timeline, decode_launch

sys.path.insert(0, str(REPO / "benchmarks"))
import record_cost
from record_cost import MeasuredCost, cost_in

NAMES = ["straight_0", "straight_1", "straight_2", "loop_0", "loop_1", "work_0", "work_1", "work_2"]
STRAIGHT, LOOP, WORK = (0, 1, 2), (3, 4), (5, 6, 7)
# Once and twice a work of 60 cycles: from starts to ends, which takes 4 more, and from ends to starts, which takes 6.
WORK_GAPS = (64, 66, 124, 126, 30)


def records(scopes: Sequence[int], first: int, gaps: Sequence[int]) -> list[Entry]:
    """A start and an end for each scope, beginning at ``first``, with these gaps between, again and again."""
    times = accumulate([first, *islice(cycle(gaps), 2 * len(scopes) - 1)])
    return [(end if number % 2 else start)(scopes[number // 2], time) for number, time in enumerate(times)]


def warp(
    straight: Sequence[int], rounds: Sequence[Sequence[int]], work: Sequence[Sequence[int]] = (WORK_GAPS,)
) -> list[Entry]:
    """The records of a warp of our kernel; a round of a loop takes two thousand cycles."""
    bodies = [*((LOOP, gaps) for gaps in rounds), *((WORK, gaps) for gaps in work)]
    loops = [records(scopes, 1_000 + 2_000 * number, gaps) for number, (scopes, gaps) in enumerate(bodies, 1)]
    return [*records(STRAIGHT, 1_000, straight), *(entry for loop in loops for entry in loop)]


def decoded(folder: Path, *launches: Sequence[Cta]) -> list[Timeline]:
    words = [buffer_words(ctas, 64) for ctas in launches]
    kernel = kernel_json([Scope(name, "mark") for name in NAMES], words[0], 2)
    return [decode_launch(launch) for launch in save_launches(folder, kernel, words)]


def test_what_follows_a_start_and_what_follows_an_end_are_told_apart(tmp_path: Path) -> None:
    # Beside work it is what one takes longer than half of two; some are held up.
    held_up = [(1_000, 66, 124, 126, 30), WORK_GAPS, (64, 900, 124, 126, 700), (64, 66, 800, 126, 30), WORK_GAPS]
    one = warp([31, 41], [[20, 50, 24]] * 4, held_up)
    measured = cost_in(decoded(tmp_path, [Cta([one, one])] * 3))
    # Outside of the loop there are three gaps of 31 and two of 41.
    assert measured == MeasuredCost(36.0, 22.0, 50.0, 4.0, 6.0, 35.0, 0.0, 2 * 3 * (4 * 3 + 5))


def test_without_all_records_there_is_no_cost(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match="records of the kernel are missing"):
        cost_in(decoded(tmp_path, [Cta([[start(3, 1_000)], [start(3, 1_000), end(3, 1_034)]])]))


@pytest.mark.parametrize(
    ("sched_stores", "alone", "beside_work", "cost"),
    [
        (False, (30.5, 30.0), (26.0, 0.0), RecordCost(15.25, 15.25, 15.25)),
        (False, (20.0, 20.0), (20.0, 20.0), RecordCost(20.0, 20.0, 0.0)),
        (True, (4.0, 38.0), (14.0, 15.0), RecordCost(9.0, 26.5, 11.5)),
        (True, (24.0, 2.0), (24.0, 16.0), RecordCost(24.0, 9.0, 7.0)),
    ],
    ids=["whichever kind it is", "the same", "moved, more after a start", "moved, more after an end"],
)
def test_a_record_costs_the_middle_between_the_least_and_the_most(
    sched_stores: bool, alone: tuple[float, float], beside_work: tuple[float, float], cost: RecordCost
) -> None:
    found = MeasuredCost(sum(alone) / 2, *alone, *beside_work, 30.0, 0.5, 6912)
    assert found.record_cost(sched_stores=sched_stores) == cost


OPTIONS = {"num_warps": record_cost.NUM_WARPS}
RECORD_BYTES = 8
TARGETS = [GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)]
STRAIGHT_RECORDS = [f'{kind} "straight_{number}"' for number in range(8) for kind in ("start", "end")]
LOOP_RECORDS = [f'{kind} "loop_{number}"' for number in range(2) for kind in ("start", "end")]
CHAIN = "elementwise_inline_asm"
WORK_RECORDS = [
    *('start "work_0"', CHAIN, 'end "work_0"', CHAIN),
    *('start "work_1"', CHAIN, CHAIN, 'end "work_1"', CHAIN, CHAIN),
    *('start "work_2"', 'end "work_2"'),
]


def with_records(target: GPUTarget) -> str:
    """The kernel's TTGIR with its records."""
    kernel = record_cost.recorded_kernel
    signature, values = {"rounds": "i32", "BACKEND": "constexpr"}, {"BACKEND": target.backend}
    with knobs.compilation.scope():
        # A cached one may name the source file of another checkout.
        knobs.compilation.always_compile = True
        compiled = triton.compile(ASTSource(kernel, signature, values, {}), target=target, options=OPTIONS)
    file = str(inspect.getsourcefile(kernel.fn))
    return insert_module(view_of(compiled.asm["ttgir"], "k.ttgir", {file: Path(file).read_text()}), ()).text


def operation(line: str) -> str:
    """Its name without the dialect; a record's with all that it says."""
    words = re.sub(r"^\s*%\w+ = ", "", line).split()
    return " ".join(words[1:]) if words[0] == "proton.record" else words[0].split(".")[-1]


@pytest.mark.triton
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.backend)
def test_nothing_but_work_stands_between_the_records_of_the_kernel(target: GPUTarget) -> None:
    """Of what the compiler keeps, other than barriers and the begins of loops."""
    body = [operation(line) for line in with_records(target).splitlines() if line.strip()]
    body = body[body.index(STRAIGHT_RECORDS[0]) : body.index('end "around"')]
    first_loop = [*STRAIGHT_RECORDS, "barrier", 'start "around"', "for", *LOOP_RECORDS, "barrier", "}"]
    assert body == [*first_loop, "sitofp", "for", *WORK_RECORDS, "barrier", "yield", "}"]


@pytest.mark.triton
def test_each_chain_is_there_once_and_between_its_records_which_all_have_room() -> None:
    mode = Mode(buffer_bytes=record_cost.BUFFER_BYTES)
    stretches = re.split(r"%clock(?:_lo|64)?;", lower(with_records(TARGETS[0]), TARGETS[0], OPTIONS, mode).assembly)
    chains = [stretch.count("fma.rn.f32") / record_cost.CHAIN_LENGTH for stretch in stretches]
    # Around all of it stand the records of the kernel's body.
    before, last = 1 + len(STRAIGHT_RECORDS) + 1 + len(LOOP_RECORDS), [0, 0, 0]
    assert chains == [0] * (before + 1) + [1, 1, 2, 2, 0] + last
    in_loops = sum(len([one for one in loop if one != CHAIN]) for loop in (LOOP_RECORDS, WORK_RECORDS))
    records = 2 + len(STRAIGHT_RECORDS) + 2 + record_cost.ROUNDS * in_loops
    assert records <= record_cost.BUFFER_BYTES // record_cost.NUM_WARPS // RECORD_BYTES
