"""Names and versions of the capture format; ``docs/capture-format.md`` is its description."""

from __future__ import annotations

FORMAT_VERSION = 1

PROCESS_FILE = "process.json"
LAUNCHES_FILE = "launches.jsonl"
CLOCK_FILE = "clock.jsonl"
END_FILE = "end.json"
RECORD_COSTS_FILE = "record_costs.json"
KERNELS_FOLDER = "kernels"
KERNEL_FILE = "kernel.json"
TTGIR_FILE = "kernel.ttgir"
SOURCES_FILE = "sources.json"
TIMING_FILE = "timing.json"
