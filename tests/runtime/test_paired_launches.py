"""Pairs of launches: their order and error, all queued before the device begins, and none that hangs."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from itertools import islice

import pytest
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu
from programs.child import GUARD_S
from snapshots import check

from kprof_inject.runtime.worker import paired_launches
from kprof_inject.runtime.worker.paired_launches import LaunchPairs, rounds
from kprof_inject.runtime.worker.worker import are_precise


def test_each_round_has_all_in_an_order_of_its_own() -> None:
    found = list(islice(rounds(10, "seed"), 50))
    assert all(sorted(order) == list(range(10)) for order in found)
    assert len({tuple(order) for order in found}) > 40
    assert found == list(islice(rounds(10, "seed"), 50)) != list(islice(rounds(10, "other"), 50))


def pairs_of(ratios: list[float]) -> LaunchPairs:
    pairs = LaunchPairs()
    for number, one in enumerate(ratios):
        clean = 1000.0 + 50 * (number % 7)  # a clock that drifts
        pairs.add(one * clean, clean - 20, clean + 20)
    return pairs


def test_the_error_is_that_of_ratios_and_not_of_times() -> None:
    assert pairs_of([1.1] * 30).error == pytest.approx(0, abs=1e-12)
    scattered = pairs_of([1.1 + 0.01 * ((7 * n) % 11 - 5) for n in range(100)])
    assert 0.002 < scattered.error < 0.02


def test_an_outlier_makes_no_difference() -> None:
    assert pairs_of([1.0] * 99 + [50.0]).error == pytest.approx(0, abs=1e-12)


def test_of_few_pairs_nothing_is_known() -> None:
    assert math.isinf(pairs_of([1.0] * 11).error)
    assert math.isinf(LaunchPairs().error)


def test_enough_when_the_shortest_delay_of_each_place_is_known() -> None:
    pairs = [pairs_of([1.0 + 0.0001 * ((7 * n) % 60) for n in range(60)]) for _ in range(3)]
    assert are_precise(pairs, [(0, 0, 0.0), (0, 100, 0.05), (0, 200, 0.1)], 0.05)
    assert not are_precise(pairs, [(0, 0, 0.0), (0, 100, 0.005), (0, 200, 0.5)], 0.05)
    assert not are_precise(pairs, [(0, 0, 0.0), (0, 100, 0.0), (0, 200, 0.0)], 0.05)
    assert not are_precise([], [], 0.05)


# Launches that are timed back to back are all queued before the device begins the first


def test_launches_are_queued_again_where_the_device_had_begun_before_all_were() -> None:
    gpu = FakeGpu()
    gpu.host_ns = paired_launches.MIN_HOLD_NS + 1
    timed = paired_launches.BackToBack(FakeDevice(gpu), 0, None, restores=False)  # type: ignore[arg-type]
    launched = []

    def launch() -> None:
        time.sleep(0.001)
        launched.append(gpu.host_ns)

    timed.queued([launch])
    assert timed.was_held and len(launched) == 2
    gpu.host_ns = 1_000_000_000
    timed.queued([launch])
    assert not timed.was_held


# A process whose kernel does not come back ends, and says why

_HANGING = """
import sys, time
from kprof_inject.runtime.worker.paired_launches import Watchdog

class Never:
    def query(self): return False
class Done:
    def query(self): return True

watchdog = Watchdog()
watchdog.watch(Done(), 0.1, "the first")
watchdog.watch(Never(), 0.3, "the second")
time.sleep(3600)
"""


def test_a_kernel_that_hangs_ends_its_process() -> None:
    ended = subprocess.run([sys.executable, "-c", _HANGING], capture_output=True, text=True, timeout=GUARD_S)
    assert ended.returncode == -signal.SIGKILL
    check("runtime/watchdog", ended.stderr)
