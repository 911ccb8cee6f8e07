"""In what two builds of a kernel, and how they were launched and recorded, differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import Kernel
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.kernel_names import CONFIG, told_apart
from kprof_inject.timeline.raw import recorded_warps

_COMPILER = ("triton_version", "target")


@dataclass(frozen=True, slots=True)
class Difference:
    """``what`` is one thing in A and another in B; "-" where it is not known."""

    what: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.what} {self.a} → {self.b}"


def config_of(kernel: Kernel) -> tuple[object, ...]:
    """What an autotuner varies."""
    return tuple(kernel.metadata.get(name) for name in CONFIG)


def distinct_names(side: Sequence[KernelRuns]) -> list[str]:
    """What each is called so that it can be told from the others: the kernel's name, or, of several variants, the
    variant's with what they differ in."""
    alike: dict[str, list[dict[str, str]]] = {}
    for runs in side:
        alike.setdefault(runs.kernel.name, []).append(_facts(runs))
    return [told_apart(runs.kernel, _facts(runs), alike[runs.kernel.name]) for runs in side]


def _facts(runs: KernelRuns) -> dict[str, str]:
    return {name: _SETTINGS[name](runs) for name in (*CONFIG, "grid")}


def grid_text(grid: tuple[int, int, int]) -> str:
    return "x".join(map(str, grid))


def differences(a: KernelRuns, b: KernelRuns) -> tuple[Difference, ...]:
    """What is not the same on both sides, as the reader knows it. What is unknown on either side differs in nothing."""
    texts = [(what, text(a), text(b)) for what, text in _SETTINGS.items()]
    return tuple(Difference(*row) for row in texts if row[1] != row[2] and "" not in row[1:])


def _metadata(name: str) -> Callable[[KernelRuns], str]:
    def text(runs: KernelRuns) -> str:
        value = runs.kernel.metadata.get(name)
        if isinstance(value, dict):
            value = " ".join(str(part) for part in value.values())
        return "" if value is None else str(value)

    return text


def _cost(name: str) -> Callable[[KernelRuns], str]:
    """Without records, where that is known on this side."""

    def text(runs: KernelRuns) -> str:
        value = getattr(runs.kernel.clean, name)
        return "" if value is None else str(value)

    return text


def _mode(mode: Mode) -> str:
    size = f"{mode.buffer_bytes} bytes" if mode.buffer_bytes else "auto"
    stores = ", stores moved" if mode.sched_stores else ""
    return f"{mode.buffer} {size}, clock {mode.clock_bits}{stores}"


def _warps(runs: KernelRuns) -> str:
    return ",".join(map(str, recorded_warps(runs.timelines[0].launch)))


_SETTINGS: dict[str, Callable[[KernelRuns], str]] = {
    "kernel": lambda runs: runs.kernel.name if runs.name else "",
    **{name: _metadata(name) for name in CONFIG},
    "grid": lambda runs: grid_text(runs.grid),
    "registers": _cost("registers"),
    "spills": _cost("spills"),
    "shared bytes": _cost("shared_bytes"),
    "CTAs per SM": _cost("ctas_per_sm"),
    "device": lambda runs: runs.timelines[0].launch.device_name,
    **{name: _metadata(name) for name in _COMPILER},
    "records": lambda runs: _mode(runs.kernel.mode),
    "recorded warps": _warps,
}
