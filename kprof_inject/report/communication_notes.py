"""Sentences on what ranks exchange with their peers' memory, and whether they compute meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.model import place_names
from kprof_inject.quantities import counted, percent, short_time, size_text
from kprof_inject.timeline.overlap import Overlap, median_overlap

if TYPE_CHECKING:
    from kprof_inject.analysis.communication import Communication


_MIN_SHARE = 0.01


class Exchange(Struct, frozen=True):
    """What the launches of a kernel on one place exchange with peers: medians over its ``launches``.

    Whose memory ``unknown`` more operations access is not known. ``overlap`` is None if no launch has it.
    """

    kernel: str
    place: str
    launches: int
    duration_ns: float
    read_bytes: int
    written_bytes: int
    unknown: int
    overlap: Overlap | None

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second in the direction that moves more."""
        return 1e9 * max(self.read_bytes, self.written_bytes) / max(self.duration_ns, 1.0)


def exchanges(reports: Sequence[LaunchAnalysis]) -> list[Exchange]:
    """Return what the kernels of a report exchange with peers, by kernel and place; these launches are decoded."""
    names = place_names(report.launch.place for report in reports)
    groups: dict[tuple[str, str], list[tuple[int, Communication]]] = {}
    for report in reports:
        if (found := report.communication) is not None:
            key = report.launch.kernel.name, names[report.launch.place]
            groups.setdefault(key, []).append((report.duration_ns, found))
    return [_exchange(kernel, place, members) for (kernel, place), members in sorted(groups.items())]


def _exchange(kernel: str, place: str, members: Sequence[tuple[int, Communication]]) -> Exchange:
    found = [one for _, one in members]
    overlaps = [one.overlap for one in found if one.overlap is not None]
    return Exchange(
        kernel=kernel,
        place=place,
        launches=len(members),
        duration_ns=median(duration_ns for duration_ns, _ in members),
        read_bytes=round(median(one.read_bytes for one in found)),
        written_bytes=round(median(one.written_bytes for one in found)),
        unknown=max(one.unknown for one in found),
        overlap=median_overlap(overlaps) if overlaps else None,
    )


def exchange_notes(found: Sequence[Exchange]) -> Iterator[str]:
    """Yield a line on what each place exchanges, and how much of that time it computes."""
    for one in found:
        where = f"{one.kernel}, {one.place}" if one.place else one.kernel
        yield f"{where}: {'; '.join(_parts(one))}"


def _parts(one: Exchange) -> Iterator[str]:
    if (overlap := one.overlap) is not None:
        does = f"transfers {short_time(overlap.transferring_ns)}, waits for peers {short_time(overlap.waiting_ns)}"
        yield f"communicates {short_time(overlap.communicating_ns)} of {short_time(one.duration_ns)} ({does})"
        share = percent(overlap.both_ns / max(overlap.communicating_ns, 1))
        if overlap.ctas:
            ctas = f"{overlap.mean_ctas:.1f} of {counted(overlap.ctas, 'CTA')}"
            yield f"computes in {share} of that, with {ctas} on average"
            yield f"without communication it would take {short_time(overlap.without_ns)}"
        else:
            yield "no scope only computes"
    moved = {"reads": one.read_bytes, "writes": one.written_bytes}
    most = max(moved.values())
    # Atomics on flags read and write some bytes.
    if texts := [f"{does} {size_text(size)}" for does, size in moved.items() if size > _MIN_SHARE * most]:
        yield f"{' and '.join(texts)} of peers' memory ({one.bytes_per_s / 1e9:.1f} GB/s, computed)"
    if one.unknown:
        yield f"whose memory {counted(one.unknown, 'more operation')} access is not known"
