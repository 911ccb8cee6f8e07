"""Launches of many rings, each of which has gone round: decoded exactly, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from buffers import CLOCK_PERIOD, PREAMBLE, Scope, kernel_json, save_launches
from numpy.typing import NDArray
from scratch import scratch_folder

from kprof_inject.capture.model import Launch
from kprof_inject.timeline.timeline import decode_launch

pytestmark = pytest.mark.slow

WARPS, SMS = 4, 132
FUNC, LOOP, ITER = range(3)
SCOPES = [Scope("kernel"), Scope("loop", "loop", FUNC), Scope("iter", "iter", LOOP)]
RINGS_AT = 10 + WARPS
# From one record to the next it takes up to twice as long.
GAP_CYCLES = 50
BEGIN_NS, CYCLES_PER_NS = 1_764_000_000_000_000_000, 2


@dataclass(frozen=True)
class Rings:
    """Of each warp are left its last ``iterations``, and the ends of the loop and the function: ``cycles`` are their
    clock values (CTA, warp, record), and ``written`` is how many records each warp wrote."""

    launch: Launch
    iterations: int
    cycles: NDArray[np.int64]
    written: NDArray[np.int64]


@contextmanager
def rings(ctas: int, slots: int) -> Iterator[Rings]:
    iterations = slots // 2 - 1
    random = np.random.default_rng(6)
    cta = np.arange(ctas)
    written = 4 + 2 * random.integers(iterations, 10 * iterations, (ctas, WARPS))
    place = written[..., None] - slots + np.arange(slots)
    elapsed = place * GAP_CYCLES + random.integers(0, GAP_CYCLES, place.shape)
    cta_cycles = int(elapsed.max()) + 1_000
    begin = cta // SMS * cta_cycles
    # Some counters overflow amid the launch.
    ahead = CLOCK_PERIOD - random.integers(0, 2 * cta_cycles * (ctas // SMS), SMS)
    cycles = (ahead[cta % SMS] + begin)[:, None, None] + elapsed

    words = np.zeros((ctas, RINGS_AT + 2 * WARPS * slots), dtype="<u4")
    words[:, :4] = np.stack((np.full(ctas, PREAMBLE), cta, cta % SMS, np.full(ctas, WARPS * slots * 8)), axis=1)
    init_ns = BEGIN_NS + begin // CYCLES_PER_NS
    done_ns = init_ns + elapsed[..., -1].max(axis=1) // CYCLES_PER_NS + 28
    words[:, 4:10] = np.stack((init_ns, done_ns, done_ns + 300), axis=1).astype("<u8").view("<u4")
    words[:, 10:RINGS_AT] = 2 * written
    clock = cycles % CLOCK_PERIOD
    kinds = np.array([*[ITER << 23, 1 << 31 | ITER << 23] * iterations, 1 << 31 | LOOP << 23, 1 << 31 | FUNC << 23])
    entries = words[:, RINGS_AT:].reshape(ctas, WARPS, slots, 2)
    np.put_along_axis(entries[..., 0], place % slots, (kinds | clock >> 32).astype("<u4"), axis=2)
    np.put_along_axis(entries[..., 1], place % slots, (clock & 0xFFFFFFFF).astype("<u4"), axis=2)
    with scratch_folder() as folder:
        (launch,) = save_launches(Path(folder), kernel_json(SCOPES, words, WARPS), [words])
        del words, entries
        yield Rings(launch, iterations, cycles, written)


def test_a_quarter_of_a_million_rings_that_went_round_decode_exactly() -> None:
    ctas, slots = 62_500, 8
    with rings(ctas, slots) as truth:
        timeline = decode_launch(truth.launch)
        lost = truth.written - slots
        assert timeline.scope_count == ctas * WARPS * truth.iterations
        assert timeline.records_lost == lost.sum()
        assert (timeline.records_damaged, timeline.open_starts.tolist()) == (0, [0, 0, 0])
        assert timeline.stray_ends.tolist() == [ctas * WARPS, ctas * WARPS, 0]
        assert np.array_equal(timeline.incomplete["records_lost"].reshape(-1, WARPS), lost)
        assert (timeline.incomplete["stray_ends"] == 2).all()

        first = 0
        for block in timeline.blocks():
            shaped = block.reshape(-1, WARPS, truth.iterations)
            rows, first = slice(first, first + len(shaped)), first + len(shaped)
            assert (shaped["cta"] == np.arange(rows.start, rows.stop)[:, None, None]).all()
            assert (shaped["warp"] == np.arange(WARPS)[:, None]).all()
            for side, at in (("start", 0), ("end", 1)):
                assert (shaped[f"{side}_cycles"] == truth.cycles[rows, :, at : 2 * truth.iterations : 2]).all()
                assert (shaped[f"{side}_record"] == lost[rows, :, None] + np.arange(at, slots - 2, 2)).all()
            assert (block["scope"] == ITER).all()
            assert not block["depth"].any()
            assert (block["iteration"] == -1).all()
        assert first == ctas


_DECODE = """
import sys
from pathlib import Path
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch
(launch,) = read_capture(Path(sys.argv[1])).launches
print(sum(map(len, decode_launch(launch).blocks())))
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def test_memory_stays_within_three_times_the_buffer_and_100_mb() -> None:
    with rings(60_000, 32) as truth:
        command = [sys.executable, "-c", _DECODE, str(truth.launch.path.parents[1])]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        scopes, _, peak_kib, _ = ended.stdout.split()
        assert int(scopes) == 60_000 * WARPS * truth.iterations
        assert int(peak_kib) * 1024 <= 3 * truth.launch.buffer_bytes + 100_000_000
