"""Launches that are timed back to back are all queued before the device begins the first."""

from __future__ import annotations

import time

from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu

from kprof_inject.runtime.worker import paired_launches


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
