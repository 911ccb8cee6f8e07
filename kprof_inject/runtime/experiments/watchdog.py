"""End a process whose kernel does not return.

A kernel that waits for others may wait forever when a delay slows it down, and only the end of its process stops it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kprof_inject.runtime.devices.device import Event
from kprof_inject.runtime.faults import say

_LOOKS_PER_S = 4.0


@dataclass(frozen=True, slots=True)
class _Watched:
    event: Event
    until_s: float
    what: str


class Watchdog:
    """Thread that waits for events, and kills the process if one does not happen in time."""

    def __init__(self, give_up: Callable[[str], None]) -> None:
        """Call ``give_up`` with the reason before killing the process."""
        self._give_up = give_up
        self._watched: list[_Watched] = []
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def watch(self, event: Event, seconds: float, what: str) -> None:
        """Expect ``event`` to happen within ``seconds``; ``what`` is the kernel that it follows."""
        self._watched.append(_Watched(event, time.monotonic() + seconds, what))
        if self._thread is None or self._pid != os.getpid():  # a forked child has no such thread
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._look, name="kprof-watchdog", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        while True:
            # Looking at the first is enough: most events are of one stream, where they happen in order.
            first = self._watched[0] if self._watched else None
            if first is not None and _has_happened(first.event):
                self._watched.pop(0)
                continue
            if first is not None and time.monotonic() > first.until_s:
                reason = f"{first.what} did not return, so kprof-inject killed its process"
                self._give_up(reason)
                say(reason)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1 / _LOOKS_PER_S)


def _has_happened(event: Event) -> bool:
    try:
        return event.query()
    except Exception:  # noqa: BLE001 (the error of a failed device, on which the kernel has ended)
        return True


MIN_WATCH_S = 30.0
WATCH_MARGIN = 100.0
"""A kernel has this many times as long as it is expected to take, and at least ``MIN_WATCH_S``."""
