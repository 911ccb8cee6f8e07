"""Captures of several processes and devices, made from a known truth: when, by the host's clock, each kernel ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buffers import Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start

from kprof_inject.capture.capture_files import FILES, ClockRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

BEGIN_NS = 1_764_000_000_000_000_000
KERNEL_NS = 10_000


@dataclass(frozen=True)
class Timer:
    """A device's globaltimer: at host time ``BEGIN_NS`` it shows ``begin_ns``, and it runs ``drift`` too fast."""

    begin_ns: int = BEGIN_NS
    drift: float = 0.0

    def at(self, host_ns: int) -> int:
        return self.begin_ns + (host_ns - BEGIN_NS) + round((host_ns - BEGIN_NS) * self.drift)

    def reading(self, host_ns: int, *, late_ns: int = 0, error_ns: int = 2_000, device: int = 0) -> dict[str, int]:
        """A line of the clock file; the host thinks that it is ``late_ns`` later than it is."""
        return {"device": device, "host_ns": host_ns + late_ns, "device_ns": self.at(host_ns), "error_ns": error_ns}


def save_process(
    folder: Path, name: str, launches: Sequence[tuple[Timer, int]], readings: Sequence[dict[str, int]] = (), **info: Any
) -> None:
    """A process whose kernel ran at these host times, by these devices' timers: a device for each timer."""
    writer = JsonWriter(folder / name, {"pid": 7, "host": "a", "boot_id": "b", "device_names": ["H200"] * 2, **info})
    for reading in readings:
        writer.add_clock_reading(reading)
    devices = list(dict.fromkeys(timer for timer, _ in launches))
    for index, (timer, host_ns) in enumerate(launches):
        begin_ns, end_ns = timer.at(host_ns), timer.at(host_ns + KERNEL_NS)
        cta = Cta([[start(0, 30), end(0, KERNEL_NS - 28)]], 0, begin_ns, end_ns, end_ns + 500)
        words = buffer_words([cta], slots=4)
        writer.add_kernel("v0", kernel_json([Scope("matmul")], words, 1, name="matmul"), "module {}\n", {})
        launch = launch_json(words, index=index, host_ns=host_ns) | {"device": devices.index(timer)}
        writer.add_launch(launch, memoryview(words.tobytes()))
    writer.finish()


def clock_file(folder: Path, name: str) -> Path:
    return folder / name / FILES[ClockRecord]


def decode_all(folder: Path) -> list[Timeline]:
    return [decode_launch(launch) for launch in read_capture(folder).launches]
