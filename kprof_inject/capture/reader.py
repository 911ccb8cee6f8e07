"""Reads a capture. Needs numpy alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.costs import UNKNOWN_COST, KernelCost, clean_cost, cost_with_records
from kprof_inject.capture.format import (
    CLOCK_FILE,
    END_FILE,
    FORMAT_VERSION,
    KERNEL_FILE,
    KERNELS_FOLDER,
    LAUNCHES_FILE,
    PROCESS_FILE,
    RECORD_COSTS_FILE,
    SOURCES_FILE,
    TTGIR_FILE,
)
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.origin import Origin, Place
from kprof_inject.capture.origin_reader import host_readings, origin_of
from kprof_inject.capture.record_cost import CostKey, MeasuredCost, RecordCost, cost_of, read_costs
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import object_with, read_object, read_text


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled variant: ``name`` is the function's, ``metadata`` Triton's own (``num_warps``, ``shared``,
    ``target``), ``scope_ids`` Proton's table from id to record name, ``sm_clock_hz`` the device's nominal clock.
    ``clean`` and ``with_records`` are what it costs without records and with them, ``record_cost`` what a record of it
    costs, or None if that is unknown; and so is ``sm_count``, how many SMs the device has."""

    variant: str
    name: str
    num_warps: int
    stride_bytes: int
    layout: str
    scope_ids: dict[int, str]
    scopes: ScopeTable
    sm_clock_hz: float
    mode: Mode
    metadata: dict[str, Any]
    folder: Path
    clean: KernelCost = UNKNOWN_COST
    with_records: KernelCost = UNKNOWN_COST
    record_cost: RecordCost | None = None
    sm_count: int | None = None

    def ttgir(self) -> str:
        """The module as the compiler made it, before records were inserted."""
        return read_text(self.folder / TTGIR_FILE)

    def sources(self) -> dict[str, str]:
        """The text of each source file that the module refers to, by the path it is referred to by."""
        return read_object(self.folder / SOURCES_FILE)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch whose buffer was saved. ``index`` counts the launches of its variant in its process.

    The host called it at ``host_ns``, and the call had returned at ``host_end_ns``, which older captures do not tell.
    ``graph`` says that it was captured into a CUDA graph: the buffer is that of the last replay. The buffer
    begins at ``offset_bytes`` of the file at ``path``."""

    kernel: Kernel
    origin: Origin
    index: int
    grid: tuple[int, int, int]
    device: int
    stream: int
    host_ns: int
    path: Path
    buffer_bytes: int
    graph: bool
    host_end_ns: int | None = None
    offset_bytes: int = 0
    process: Mapping[str, Any] | None = None
    """What the process said of itself; None where nothing is known."""

    @property
    def device_name(self) -> str:
        """Empty if it is unknown."""
        return self.origin.device_name(self.device)

    @property
    def place(self) -> Place:
        """The process and the device that it ran on."""
        return Place(self.origin.host, self.origin.rank, self.origin.pid, self.device)

    def words(self) -> NDArray[np.uint32]:
        """The raw buffer as words, one row for each CTA: shape (CTAs, stride_bytes / 4)."""
        try:
            raw = np.fromfile(self.path, dtype="<u4", count=self.buffer_bytes // 4, offset=self.offset_bytes)
        except OSError as error:
            raise KprofError(f"cannot read {self.path}: {error.strerror}") from None
        stride = self.kernel.stride_bytes // 4
        hint = "capture again: kprof-inject run"
        if raw.size * 4 != self.buffer_bytes:
            wrong = f"{raw.size * 4} bytes, where {self.buffer_bytes} were saved"
            raise KprofError(f"{self.path} is damaged: {wrong}", hint=hint)
        if stride == 0 or raw.size % stride:
            wrong = f"{self.buffer_bytes} bytes are no whole number of rows of {self.kernel.stride_bytes}"
            raise KprofError(f"{self.path} is damaged: {wrong}", hint=hint)
        return raw.reshape(-1, stride)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the program. ``ended`` is false if it was killed before it could say what it left out.

    ``damaged_readings`` counts the lines of its clock file that are no readings of the host's clock."""

    origin: Origin
    info: dict[str, Any]
    launches: tuple[Launch, ...]
    ended: bool
    left_out: dict[str, int]
    """Launches seen but not saved, by the reason."""
    damaged_readings: int

    @property
    def pid(self) -> int:
        return self.origin.pid


@dataclass(frozen=True, slots=True)
class Capture:
    """What one ``run`` saved."""

    folder: Path
    processes: tuple[Process, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches of all processes, in the order of the host's clock."""
        launches = [launch for process in self.processes for launch in process.launches]
        return tuple(sorted(launches, key=lambda launch: launch.host_ns))


_LAUNCH_KEYS = ("variant", "index", "grid", "device", "stream", "host_ns", "buffer_bytes", "file")
_KERNEL_KEYS = ("name", "metadata", "layout", "scope_ids", "scope_table", "sm_clock_hz", "mode")


def is_capture(folder: Path) -> bool:
    return any(folder.glob(f"*/{PROCESS_FILE}"))


def seen_launches(folder: Path) -> int:
    """How many launches with records a capture's processes made, kept or not. Those that were killed do not tell."""
    ends = [read_object(path) for path in folder.glob(f"*/{END_FILE}")]
    return sum(count for end in ends for count in end.get("launches", {}).values())


def left_out_launches(folder: Path) -> Counter[str]:
    """How many launches a capture's processes did not save, by the reason."""
    return sum((Counter(read_object(path).get("left_out", {})) for path in folder.glob(f"*/{END_FILE}")), Counter())


def read_capture(folder: Path) -> Capture:
    """Open a capture; buffers are read when they are asked for. Raises ``KprofError`` if it is none."""
    if not is_capture(folder):
        raise KprofError(f"{folder} is no capture", hint="make one: kprof-inject profile -- PROG, or run after insert")
    costs = read_costs(folder / RECORD_COSTS_FILE)
    return Capture(folder, tuple(_process(path.parent, costs) for path in sorted(folder.glob(f"*/{PROCESS_FILE}"))))


def _process(folder: Path, costs: Mapping[CostKey, MeasuredCost]) -> Process:
    info = read_object(folder / PROCESS_FILE, "version", "pid")
    if info.get("version") != FORMAT_VERSION:
        raise KprofError(
            f"{folder} has capture format {info.get('version')}, this program reads {FORMAT_VERSION}",
            hint="capture again with this version, or read it with the version that wrote it",
        )
    end = read_object(folder / END_FILE, "left_out") if (folder / END_FILE).exists() else None
    readings, damaged_readings = host_readings(folder / CLOCK_FILE)
    origin = origin_of(folder, info, readings)
    kernels: dict[tuple[str, str], Kernel] = {}
    launches: dict[str, Launch] = {}
    for line in _complete_lines(folder / LAUNCHES_FILE):
        if "drop" in line:
            launches.pop(line["drop"], None)
            continue
        variant = object_with(_LAUNCH_KEYS, line, folder / LAUNCHES_FILE)["variant"]
        device_name = origin.device_name(line["device"])
        if (variant, device_name) not in kernels:
            kernel = _kernel(folder / KERNELS_FOLDER / variant, variant)
            cost = cost_of(CostKey.of(device_name, str(info.get("triton")), kernel.mode), costs)
            kernels[variant, device_name] = replace(kernel, record_cost=cost)
        launches[line["file"]] = Launch(
            kernels[variant, device_name],
            origin,
            line["index"],
            (line["grid"][0], line["grid"][1], line["grid"][2]),
            line["device"],
            line["stream"],
            line["host_ns"],
            folder / line["file"],
            line["buffer_bytes"],
            bool(line.get("graph")),
            line.get("host_end_ns"),
            process=info,
        )
    left_out = dict(end["left_out"]) if end else {}
    return Process(origin, info, tuple(launches.values()), end is not None, left_out, damaged_readings)


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    """All lines that were written to their end; of a killed program the last may be cut."""
    if not path.exists():
        return []
    lines = read_text(path).split("\n")[:-1]
    try:
        values = [json.loads(line) for line in lines]
    except ValueError as error:
        raise KprofError(f"{path} is damaged: {error}", hint="capture again: kprof-inject run") from None
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise KprofError(f"{path} is damaged: line {number} is no object", hint="capture again: kprof-inject run")
    return values


def _kernel(folder: Path, variant: str) -> Kernel:
    values = read_object(folder / KERNEL_FILE, *_KERNEL_KEYS)
    return Kernel(
        variant,
        values["name"],
        values["metadata"]["num_warps"],
        values["metadata"]["profile_scratch_size"],
        values["layout"],
        {int(scope_id): name for scope_id, name in values["scope_ids"].items()},
        ScopeTable.from_json(values["scope_table"]),
        float(values["sm_clock_hz"]),
        Mode.from_json(values["mode"]),
        values["metadata"],
        folder,
        clean_cost(folder, values),
        cost_with_records(folder, values),
        sm_count=values.get("sm_count") or None,
    )
