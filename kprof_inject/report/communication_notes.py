"""Sentences on the data that ranks exchange, and on its overlap with computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.link_traffic import LinkTrafficRecord, read_link_traffic
from kprof_inject.capture.model import place_names
from kprof_inject.quantities import counted, percent, short_time, size_text
from kprof_inject.timeline.link_traffic import LinkBytes, link_bytes, median_link_bytes
from kprof_inject.timeline.overlap import Overlap, median_overlap

# Atomics on flags read and write some bytes.
_MIN_SHARE = 0.01
# Each takes some tenths of a second.
_MAX_LAUNCHES = 5


class Exchange(Struct, frozen=True):
    """Exchange of a kernel's launches on one place with peers: medians over ``launches`` of them.

    Whose memory ``unknown`` more operations access is not known, nor what ended waits of the part ``unknown_waits`` of
    the CTAs' time. ``overlap`` is None if no launch has it; else all figures are of the launches that have. ``counted``
    has all traffic on the GPU's links meanwhile, by its counters; None unless most launches were sampled.
    """

    kernel: str
    place: str
    launches: int
    duration_ns: float
    read_bytes: int
    written_bytes: int
    unknown: int
    unknown_waits: float
    overlap: Overlap | None
    counted: LinkBytes | None = None

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second in the direction that moves more."""
        return 1e9 * max(self.read_bytes, self.written_bytes) / max(self.duration_ns, 1.0)


def exchanges(reports: Sequence[LaunchAnalysis]) -> list[Exchange]:
    """Return what the kernels of a report exchange with peers, by kernel, variant and place.

    Of each, up to ``_MAX_LAUNCHES`` launches are decoded and evaluated, spread over all.
    """
    names = place_names(report.launch.place for report in reports)
    groups: dict[tuple[str, str, str], list[LaunchAnalysis]] = {}
    for report in reports:
        if report.launch.origin.peer_memory:
            kernel = report.launch.kernel
            groups.setdefault((kernel.name, kernel.program_variant, names[report.launch.place]), []).append(report)
    traffic = _Traffic()
    found = (_exchange(name, place, _spread(own), traffic) for (name, _, place), own in sorted(groups.items()))
    return [one for one in found if one is not None]


def _spread(reports: Sequence[LaunchAnalysis]) -> list[LaunchAnalysis]:
    count = min(len(reports), _MAX_LAUNCHES)
    return [reports[(2 * number + 1) * len(reports) // (2 * count)] for number in range(count)]


class _Traffic:
    """Traffic on links in the captures of a report, each read once."""

    def __init__(self) -> None:
        self._records: dict[Path, LinkTrafficRecord | None] = {}

    def of(self, report: LaunchAnalysis) -> LinkBytes | None:
        """Return what a launch's GPU sent and received; None if that is not known."""
        launch = report.launch
        folder = launch.capture_folder
        if folder is None:
            return None
        if folder not in self._records:
            self._records[folder] = read_link_traffic(folder, launch.process.run if launch.process else "")
        record = self._records[folder]
        uuid = launch.origin.device_uuid(launch.device)
        traffic = next((one for one in record.devices if one.device == uuid), None) if record else None
        if record is None or traffic is None:
            return None
        return link_bytes(traffic, record.interval_ns, report.timeline)


def _exchange(kernel: str, place: str, members: Sequence[LaunchAnalysis], traffic: _Traffic) -> Exchange | None:
    with_overlap = [one for one in members if one.communication and one.communication.overlap]
    members = with_overlap or [one for one in members if one.communication]
    found = [one.communication for one in members if one.communication is not None]
    if not found:
        return None
    seen = [counted for one in members if (counted := traffic.of(one)) is not None]
    return Exchange(
        kernel=kernel,
        place=place,
        launches=len(members),
        duration_ns=median(one.duration_ns for one in members),
        read_bytes=round(median(one.read_bytes for one in found)),
        written_bytes=round(median(one.written_bytes for one in found)),
        unknown=max(one.unknown for one in found),
        unknown_waits=median(one.unknown_waits for one in found),
        overlap=median_overlap([one.overlap for one in found if one.overlap]) if with_overlap else None,
        counted=median_link_bytes(seen) if 2 * len(seen) > len(members) else None,
    )


def exchange_notes(found: Sequence[Exchange]) -> Iterator[str]:
    """Yield a line on what each place exchanges, and how much of that time it computes."""
    for one in found:
        where = f"{one.kernel}, {one.place}" if one.place else one.kernel
        yield f"{where}: {'; '.join(_parts(one))}"


def _misses(one: Exchange, counted: LinkBytes) -> bool:
    """Return whether counters saw much less than must have moved."""
    return counted.sent_bytes < one.written_bytes / 2 or counted.received_bytes < one.read_bytes / 2


def _parts(one: Exchange) -> Iterator[str]:
    if (overlap := one.overlap) is not None:
        does = f"transfers {short_time(overlap.transferring_ns)}, waits for peers {short_time(overlap.waiting_ns)}"
        yield f"communicates {short_time(overlap.communicating_ns)} of {short_time(one.duration_ns)} ({does})"
        share = percent(overlap.both_ns / max(overlap.communicating_ns, 1))
        if overlap.without_ns is not None:
            ctas = f"{overlap.mean_ctas:.1f} of {counted(overlap.ctas, 'CTA')}"
            yield f"computes in {share} of that, with {ctas} on average"
            yield f"without communication it would take about {short_time(overlap.without_ns)}"
        else:
            yield "no scope computes without transferring"
    moved = {"reads": one.read_bytes, "writes": one.written_bytes}
    most = max(moved.values())
    if texts := [f"{does} {size_text(size)}" for does, size in moved.items() if size > _MIN_SHARE * most]:
        yield f"{' and '.join(texts)} of peers' memory ({one.bytes_per_s / 1e9:.1f} GB/s, computed)"
    if one.counted is not None:
        sent, received = size_text(round(one.counted.sent_bytes)), size_text(round(one.counted.received_bytes))
        rate = f"{one.counted.bytes_per_s / 1e9:.1f} GB/s, by counters"
        text = f"meanwhile {sent} are sent and {received} received over NVLink ({rate}"
        yield f"{text}, which miss some)" if _misses(one, one.counted) else f"{text})"
    if one.overlap is None and one.unknown_waits:
        yield f"what ended waits of {percent(one.unknown_waits)} of the CTAs' time is not known"
    if one.unknown:
        yield f"whose memory {counted(one.unknown, 'more operation')} access is not known"
