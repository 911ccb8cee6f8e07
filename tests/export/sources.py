"""Launches from every source that can be exported, with all that a trace may have to show of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawn
import numpy as np
from buffers import Cta, Scope, end, save_launch, start, tagged
from foreign_buffers import Mark, flashinfer, triton_distributed
from golden import fixtures, read
from planning import fixture_view
from programs.child import REPO
from specialised import save_specialised
from tabled import decode_ranks

import kprof_inject
from kprof_inject.capture.proton_buffer import read_proton_buffer, read_scope_names
from kprof_inject.capture.reader import read_capture
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.choice import Choice, NumberSet
from kprof_inject.timeline.timeline import Timeline, decode_launch

NAMES = ['whole "kernel"', "load\\", "größe\n", "tick"]
WHOLE, LOAD, MMA, TICK = range(4)

Source = Callable[[Path], list[Timeline]]


def demo(folder: Path) -> list[Timeline]:
    """Some CTAs of a real capture."""
    launches = read_capture(REPO / "tests" / "captures" / "matmul").launches
    return [decode_launch(launch).chosen(Choice(ctas=NumberSet.of(range(4)))) for launch in launches]


def protons_own(folder: Path) -> list[Timeline]:
    """A buffer that stock Proton saved."""
    recorded = REPO / "tests" / "capture" / "recorded_by_proton"
    capture = read_proton_buffer(recorded / "kernel.bin", read_scope_names(recorded / "kernel.ttgir"))
    return [decode_launch(launch) for launch in capture.launches]


def odd_names(folder: Path) -> list[Timeline]:
    return decode_ranks(folder, [None, 3])


def tags(folder: Path) -> list[Timeline]:
    """Tags on some iterations, with negative and missing values."""
    entries = [start(0, 1000)]
    for number, tile in enumerate((7, -3, None, 2_000_000_000)):
        entries += tagged(2, tile) if tile is not None else ()
        entries += [start(1, 1100 + 100 * number), end(1, 1150 + 100 * number)]
    scopes = [Scope("kernel"), Scope("work", "op", 0, tags=("tile \\ 2",))]
    return [decode_launch(save_launch(folder, scopes, [Cta([[*entries, end(0, 1600)]])], 64))]


def partitions(folder: Path) -> list[Timeline]:
    """A warp-specialised kernel."""
    path = next(path for path in fixtures() if "ttg.warp_specialize(" in read(path) and "bare" not in path.name)
    plan = make_plan(fixture_view(read(path)), parse_selectors(("func", "loop", "iter")))
    return [decode_launch(save_specialised(folder, plan))]


def silent_ctas(folder: Path) -> list[Timeline]:
    """A launch one of whose CTAs did not run, and one that recorded nothing."""
    one = [Cta([[start(0, 1100), end(0, 1200)]], 3, 1_000, 1_500, 1_600), None]
    silent = [Cta([[]], 3, 8_000, 8_500, 8_600)]
    launches = [save_launch(folder / str(len(ctas)), [Scope("func")], ctas, 4) for ctas in (one, silent)]
    return [decode_launch(launch) for launch in launches]


def _marks(begin: int) -> list[Mark]:
    """A whole with loads in it, a scope that never ended, an instant, and a stray end."""
    inside = [Mark(LOAD, turn % 2, begin + 32 * turn) for turn in range(4)]
    rest = [Mark(MMA, 0, begin + 160), Mark(TICK, 2, begin + 192), Mark(LOAD, 1, begin + 200)]
    return [Mark(WHOLE, 0, begin), *inside, *rest, Mark(WHOLE, 1, begin + 224)]


def _read(array: Any, format: str, **said: Any) -> list[Timeline]:
    return list(kprof_inject.read_buffer(array, format=format, **{"names": NAMES, **said}).timelines)


def triton_distributeds(folder: Path) -> list[Timeline]:
    """One of whose blocks names no SM that there is."""
    marks = [[[m for m in _marks(2_000 + 64 * block) if m.side < 2] for _ in range(2)] for block in range(3)]
    return _read(triton_distributed(2, marks, [9, 1 << 13, 7]), "triton-distributed")


def flashinfers(folder: Path) -> list[Timeline]:
    return _read(flashinfer(2, [[_marks(2_000 + 64 * block)] * 2 for block in range(3)]), "flashinfer")


def flashinfers_with_sms(folder: Path) -> list[Timeline]:
    marks = [[_marks(2_000 + 64 * block)] * 2 for block in range(3)]
    return _read(flashinfer(2, marks, [131, 0, 5]), "flashinfer")


def flashinfers_instants(folder: Path) -> list[Timeline]:
    """Nothing but instants, which have no argument."""
    return _read(flashinfer(1, [[[Mark(TICK, 2, 2_000 + 64 * block)]] for block in range(3)]), "flashinfer")


def flashinfers_events_of_one_name(folder: Path) -> list[Timeline]:
    """Scopes that overlap their own kind."""
    marks = [[Mark(0, 0, 2_000), Mark(1, 0, 2_100), Mark(0, 1, 2_200), Mark(1, 1, 2_300)]]
    return _read(flashinfer(1, [marks]), "flashinfer", names=["held", "held"])


OF_OTHER_PROFILERS: dict[str, Source] = {
    source.__name__: source
    for source in (
        *(triton_distributeds, flashinfers, flashinfers_with_sms, flashinfers_instants),
        flashinfers_events_of_one_name,
    )
}
OF_PROTONS: dict[str, Source] = {
    **drawn.DRAWN,
    **{one.__name__: one for one in (demo, protons_own, odd_names, tags, partitions, silent_ctas)},
}
SOURCES = {**OF_PROTONS, **OF_OTHER_PROFILERS}
"""By name: each takes a folder for what it saves."""


@kprof_inject.export.scope_args
def some_arguments(launch: Any, scopes: Any) -> dict[str, Any]:
    """Arguments of every type, each on some scopes only."""
    odd = np.arange(len(scopes)) % 2 == 1
    return {
        "share": np.where(odd, scopes["duration_ns"] / 7, np.nan),
        'whose "\\"': np.ma.masked_array(np.where(odd, "a\\", 'b "'), ~odd),
        "large": np.full(len(scopes), -(2**63 - 1)),
    }


@kprof_inject.export.counters(unit="GB/s")
def some_counters(launch: Any) -> dict[str, Any]:
    starts_ns = np.unique(launch.scopes["start_ns"])[:3]
    return {"read": (starts_ns, np.array([0.5, np.inf, 1e-320])[: len(starts_ns)])}


@kprof_inject.export.arrows
def some_arrows(launch: Any) -> Any:
    return ([0], [1]) if len(launch.scopes) > 1 else ([], [])


HOOKS = [some_arguments, some_counters, some_arrows]
