"""Launches in a report of Nsight Compute, with the metrics that we measure too.

NVIDIA's module ``ncu_report`` reads the file: it comes with Nsight Compute (``extras/python``), and is the package
``ncu-report``. Its interface is described in Nsight Compute's documentation, "Python Report Interface".
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.errors import KprofError

_MODULE = "ncu_report"
_ELAPSED = ".pct_of_peak_sustained_elapsed"
_ACTIVE = ".pct_of_peak_sustained_active"
_PERCENT = ".avg" + _ELAPSED

# Other names of the same thing. Sections of Nsight Compute have the cycles and DRAM under these ("GPU Speed Of Light
# Throughput": Elapsed Cycles, DRAM Throughput). A scheduler issues one instruction a cycle, so issue is active in as
# many cycles as instructions were issued.
_SAME: dict[str, tuple[str, ...]] = {
    counters.SM_CYCLES: ("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max"),
    counters.DRAM: ("gpu__dram_throughput" + _PERCENT,),
    counters.ISSUE: ("sm__issue_active" + _PERCENT,),
}
# Active cycles of the units that run with the SMs' clock. With an SM that has work, its L1 counts as active.
_ACTIVE_CYCLES = {
    "sm__": (counters.SM_ACTIVE_CYCLES,),
    "l1tex__": ("l1tex__cycles_active.avg", counters.SM_ACTIVE_CYCLES),
}

_GRID = tuple(f"launch__grid_dim_{axis}" for axis in "xyz")
_BLOCK_THREADS = "launch__block_size"
_REGISTERS = "launch__registers_per_thread"
_PASSES = "profiler__replayer_passes"
_MAX_PASSES = (1 << 16) - 1


class ProfiledLaunch(Struct, frozen=True):
    """Launch in a report of Nsight Compute; None is unknown."""

    kernel: str
    """Name of the function, without parameters."""
    grid: tuple[int, int, int] | None
    """CTAs in each dimension; those of a cluster count singly."""
    block_threads: int | None
    registers: int | None
    """Registers of a thread."""
    counters: CountersRecord
    """Those of our default metrics that the report has, or that follow from what it has."""


def read_report(path: Path) -> tuple[ProfiledLaunch, ...]:
    """Read a report's launches, at least one, in their order.

    Raises ``KprofError`` if the module is missing, or if the file is not a report with launches.
    """
    module = _ncu_report()
    if not path.is_file():
        raise KprofError(f"{path} is not a file" if path.exists() else f"{path} does not exist", hint=_WANTED)
    try:
        # The objects of a report are valid as long as the context is.
        context = module.load_report(str(path))
        launches = tuple(_profiled_launch(action) for action in _actions(context))
    except (OSError, RuntimeError, ValueError) as error:
        raise KprofError(f"{_MODULE} cannot read {path}: {error}", hint=_WANTED) from None
    if not launches:
        # For any other file, the module returns an empty report.
        raise KprofError(f"{path} is not a report of Nsight Compute, or has no launch", hint=_WANTED)
    return launches


_WANTED = (
    "give the .ncu-rep file that ncu -o wrote; if a newer Nsight Compute wrote it, update the reader: "
    "pip install -U ncu-report"
)


def _ncu_report() -> Any:
    try:
        return importlib.import_module(_MODULE)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == _MODULE
        raise KprofError(
            f"reports of Nsight Compute need {_MODULE}, which "
            + ("is not installed" if missing else f"cannot be imported: {error}"),
            hint="pip install ncu-report (NVIDIA's, under its own license), or add the folder extras/python of Nsight "
            "Compute to PYTHONPATH",
        ) from None


def _actions(context: Any) -> Iterator[Any]:
    for number in range(context.num_ranges()):
        found = context.range_by_idx(number)
        for index in range(found.num_actions()):
            yield found.action_by_idx(index)


def _profiled_launch(action: Any) -> ProfiledLaunch:
    def value(name: str) -> float | None:
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_value():
            return None
        number = float(metric.as_double())
        return number if math.isfinite(number) else None

    def integer(name: str) -> int | None:
        number = value(name)
        return None if number is None else round(number)

    x, y, z = map(integer, _GRID)
    metrics = {name: found for name in counters.DEFAULT_METRICS if (found := _metric(name, value)) is not None}
    passes = min(max(integer(_PASSES) or 1, 1), _MAX_PASSES)
    return ProfiledLaunch(
        kernel=action.name(),
        grid=None if x is None or y is None or z is None else (x, y, z),
        block_threads=integer(_BLOCK_THREADS),
        registers=integer(_REGISTERS),
        counters=CountersRecord(metrics=metrics, passes=passes),
    )


def _metric(name: str, value: Callable[[str], float | None]) -> float | None:
    """Return a metric's value, from other metrics if the report does not have it; None if it is unknown."""
    found = _first(value, name, *_SAME.get(name, ()))
    return _of_elapsed_time(name, value) if found is None else found


def _of_elapsed_time(name: str, value: Callable[[str], float | None]) -> float | None:
    """Convert a share of the time in which SMs have work to a share of the launch's time."""
    unit = name[: name.index("__") + 2]
    if not name.endswith(_ELAPSED) or unit not in _ACTIVE_CYCLES:
        return None
    share = value(name.removesuffix(_ELAPSED) + _ACTIVE)
    active = _first(value, *_ACTIVE_CYCLES[unit])
    elapsed = _first(value, counters.SM_CYCLES, *_SAME[counters.SM_CYCLES])
    if share is None or active is None or not elapsed:
        return None
    return share * active / elapsed


def _first(value: Callable[[str], float | None], *names: str) -> float | None:
    """Return the first value that is known."""
    return next((found for name in names if (found := value(name)) is not None), None)
