"""A process whose kernel does not come back ends, and says why."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from programs.child import GUARD_S
from snapshots import check

from kprof_inject.runtime.worker.paired_launches import Watchdog

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


@dataclass
class Event:
    asked: int = 0

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 2

    def elapsed_time(self, end: object) -> float:
        return 0.0


def test_one_that_comes_back_in_time_does_not() -> None:
    watchdog = Watchdog()
    events = [Event() for _ in range(3)]
    for event in events:
        watchdog.watch(event, 10 * GUARD_S, "a kernel")
    deadline = time.monotonic() + GUARD_S
    while not all(event.asked > 2 for event in events) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(event.asked > 2 for event in events)
