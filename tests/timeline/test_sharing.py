"""What SMs get done with one CTA and with several, in hand-made launches of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.timeline.sharing import Sharing, SharingSums

BEFORE_NS, AFTER_NS = 30, 20


@dataclass(frozen=True)
class Way:
    """A CTA on an SM: its first iteration takes 70 ns, then come those that it is told."""

    sm: int
    iterations_ns: Sequence[int]
    begin_ns: int = 0

    @property
    def end_ns(self) -> int:
        return self.begin_ns + BEFORE_NS + 70 + sum(self.iterations_ns) + AFTER_NS


def sharing_of(folder: Path, ways: Sequence[Way], warps: int = 2) -> Sharing | None:
    rows = []
    for cta, way in enumerate(ways):
        for warp in range(warps):
            start_ns = way.begin_ns + BEFORE_NS
            for duration_ns in (70, *way.iterations_ns):
                rows.append(Ran(1, duration_ns, cta, warp, way.sm, start_ns=start_ns))
                start_ns += duration_ns
    ctas = cta_rows(*[(cta, way.sm, way.begin_ns, way.end_ns, way.end_ns) for cta, way in enumerate(ways)])
    scopes = [Scope("loop[0]", "loop"), Scope("iter[0]", "iter", 0)]
    timeline = made_timeline(folder, scopes, [scope_rows(rows)], ctas, warps=warps)
    sums = SharingSums(timeline)
    for block in timeline.blocks():
        sums.add(block)
    return sums.of(1)


PAIRS = [Way(sm, [190] * 100) for sm in range(4) for _ in range(2)]
# Each ends with the pairs.
LONE = [Way(sm, [100] * 190) for sm in range(4, 8)]


def test_what_two_get_done_is_compared_with_what_one_does(tmp_path: Path) -> None:
    found = sharing_of(tmp_path, [*PAIRS, *LONE])
    assert found is not None
    assert (found.ctas, found.alone, found.shared) == (2, 4 * 190, 8 * 100)
    assert (found.alone_ns, found.shared_ns) == (100, 95)
    outside_ns = 12 * (BEFORE_NS + 70 + AFTER_NS) / (4 * 190 + 8 * 100)
    assert found.outside_ns == pytest.approx(outside_ns)
    assert found.gain == pytest.approx((100 + outside_ns) / 95 - 1)


def test_ctas_may_get_ahead_at_any_rate(tmp_path: Path) -> None:
    """One of two does an iteration in the time of 19 of the other's: together, as many as before."""
    uneven = [Way(sm, iterations) for sm in range(4) for iterations in ([1900] * 10, [100] * 190)]
    found = sharing_of(tmp_path, [*uneven, *LONE])
    assert found is not None
    assert found.shared_ns == pytest.approx(95)


def test_parts_of_iterations_count_as_parts(tmp_path: Path) -> None:
    """The second CTA comes in the midst of an iteration of the first, which takes longer from then on."""
    late = [Way(sm, [190] * 90, begin_ns=1950) for sm in range(4)]
    first = [Way(sm, [100] * 19 + [195] * 88) for sm in range(4)]
    found = sharing_of(tmp_path, [*first, *late, *LONE])
    assert found is not None
    assert found.alone_ns == pytest.approx(100, rel=0.02)
    assert found.shared_ns == pytest.approx(1 / (1 / 190 + 1 / 195), rel=0.01)


@pytest.mark.parametrize(
    ("ways", "why"),
    [
        (PAIRS, "none was alone"),
        (LONE, "all were"),
        ([*PAIRS, *(Way(sm, [100] * 190) for sm in range(4, 6))], "on too few SMs"),
        ([*PAIRS, *(Way(sm, [1500] * 12) for sm in range(4, 8))], "for too few iterations"),
        ([*PAIRS, *(Way(sm, [100] * 190, begin_ns=20_000) for sm in range(4, 8))], "while other SMs were idle"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_told_where_too_little_is_known(ways: list[Way], why: str, tmp_path: Path) -> None:
    assert sharing_of(tmp_path, ways) is None
