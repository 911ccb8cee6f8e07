"""Kernels whose critical path is known: two sides work for known times, and wait for each other.

``known_slack/*.ttgir`` is what Triton 3.6.0 makes of ``benchmarks/causal/known_slack.py`` for ``cuda:90``; the records
are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from async_launches import Span, launched
from planning import insertion_of
from replacing import replace
from timelines import cta_rows

from kprof_inject.analysis.causal.critical_path import critical_path
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.scopes import ScopeTable

WARPS = ((0, 1, 2, 3), (4,))
ITERATIONS = 20
ARRIVING_NS, WAKING_NS = 10, 20
SLOTS = 2


class Side:
    """The warps of one partition. ``scopes`` are its places: the spin, the arrival and the wait."""

    def __init__(self, warps: Sequence[int], scopes: dict[str, int], spin_ns: int) -> None:
        self.spans: list[Span] = []
        self.now_ns = 100
        self._warps, self._scopes, self._spin_ns = warps, scopes, spin_ns

    def _in(self, name: str, end_ns: int) -> int:
        self.spans += [(self._scopes[name], warp, self.now_ns, end_ns) for warp in self._warps]
        self.now_ns = end_ns
        return end_ns

    def latest(self, most: int) -> Iterator[Span]:
        for warp in self._warps:
            yield from [span for span in self.spans if span[1] == warp][-most:]

    def works(self) -> int:
        """Returns when it has arrived."""
        self._in("asm", self.now_ns + self._spin_ns)
        return self._in("arrive", self.now_ns + ARRIVING_NS)

    def waits_until(self, told_ns: int) -> None:
        self._in("wait", max(self.now_ns, told_ns) + WAKING_NS)


def meet(one: Side, other: Side) -> None:
    for _ in range(ITERATIONS):
        arrived = one.works(), other.works()
        one.waits_until(arrived[1])
        other.waits_until(arrived[0])


def ring(one: Side, other: Side) -> None:
    emptied: list[int] = []
    for number in range(ITERATIONS):
        one.waits_until(emptied[number - SLOTS] if number >= SLOTS else 0)
        other.waits_until(one.works())
        emptied.append(other.works())


KERNELS = {"meet": meet, "ring": ring}


def sides_of(table: ScopeTable, spins_ns: Sequence[int]) -> Iterator[Side]:
    for partition, (warps, spin_ns) in enumerate(zip(WARPS, spins_ns, strict=True)):
        mine = {
            scope.name.split("@")[0]: index for index, scope in enumerate(table.scopes) if scope.partition == partition
        }
        yield Side(warps, mine, spin_ns)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spins_ns", [(3000, 2000), (2000, 3000), (1000, 4000), (2000, 2400)], ids=str)
@pytest.mark.parametrize("kept", [(200, 200), (40, 17), (19, 40)], ids=["all", "more of the first", "more of the last"])
def test_the_path_leads_through_the_slower_side(
    kernel: str, spins_ns: tuple[int, int], kept: tuple[int, int], tmp_path: Path
) -> None:
    """``kept`` is how many of the latest records each warp of a side has left."""
    text = (Path(__file__).parent / "known_slack" / f"{kernel}.ttgir").read_text()
    plan = insertion_of(text, "parts").plan
    table = plan.table
    one, other = sides_of(table, spins_ns)
    KERNELS[kernel](one, other)
    end_ns = max(one.now_ns, other.now_ns)
    latest = [span for side, most in zip((one, other), kept, strict=True) for span in side.latest(most)]
    spans = sorted(latest, key=lambda span: (span[1], span[2]))
    names = {f"{index}": 1 for index in range(len(table.scopes))}
    timeline = launched(tmp_path, text, names, spans)
    lost = np.array([(0,)] if len(latest) < len(one.spans) + len(other.spans) else [], [("cta", "i4")])
    found = critical_path(
        replace(timeline, table=table, incomplete=lost, ctas=cta_rows((0, 0, 0, end_ns, end_ns))),
        evaluated(text, kernel, (1, 1, 1), (None, *spins_ns, ITERATIONS), table),
    )
    assert found is not None
    assert sum(blame.share for blame in found.blames) + found.outside == pytest.approx(1)
    spins = [index for index, scope in enumerate(table.scopes) if scope.name.startswith("asm")]
    shares = [blame.share if (blame := found.of(index)) else 0.0 for index in spins]
    slower = spins_ns.index(max(spins_ns))
    # A ring begins with its producer, and ends with its consumer: of few iterations, either is a larger part.
    assert shares[slower] > (0.87 if lost.size else 0.93)
    assert shares[1 - slower] < (0.12 if lost.size else 0.06)
