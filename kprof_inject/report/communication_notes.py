"""Sentences on the data that ranks exchange, and on its overlap with computation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.link_traffic import read_link_traffic
from kprof_inject.capture.model import place_names
from kprof_inject.quantities import counted, percent, short_time, size_text
from kprof_inject.timeline.link_traffic import LinkBytes, link_bytes, median_link_bytes
from kprof_inject.timeline.overlap import Overlap, median_overlap

_MIN_SHARE = 0.01


class Exchange(Struct, frozen=True):
    """Exchange of a kernel's launches on one place with peers: medians over its ``launches``.

    Whose memory ``unknown`` more operations access is not known. ``overlap`` is None if no launch has it. ``counted``
    has all traffic on the GPU's links meanwhile, by its counters; None if they were not sampled.
    """

    kernel: str
    place: str
    launches: int
    duration_ns: float
    read_bytes: int
    written_bytes: int
    unknown: int
    overlap: Overlap | None
    counted: LinkBytes | None = None

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second in the direction that moves more."""
        return 1e9 * max(self.read_bytes, self.written_bytes) / max(self.duration_ns, 1.0)


def exchanges(reports: Sequence[LaunchAnalysis]) -> list[Exchange]:
    """Return what the kernels of a report exchange with peers, by kernel and place; these launches are decoded."""
    names = place_names(report.launch.place for report in reports)
    groups: dict[tuple[str, str], list[LaunchAnalysis]] = {}
    for report in reports:
        if report.communication is not None:
            groups.setdefault((report.launch.kernel.name, names[report.launch.place]), []).append(report)
    counted = _counted([report for members in groups.values() for report in members])
    return [_exchange(kernel, place, members, counted) for (kernel, place), members in sorted(groups.items())]


def _counted(reports: Sequence[LaunchAnalysis]) -> dict[int, LinkBytes]:
    """Return what the counters of the links saw during each launch, by the ``id`` of its analysis."""
    launch = reports[0].launch if reports else None
    if launch is None or launch.capture_folder is None:
        return {}
    record = read_link_traffic(launch.capture_folder, launch.process.run if launch.process else "")
    found: dict[int, LinkBytes] = {}
    for traffic in record.devices if record else ():
        own = [one for one in reports if one.launch.origin.device_uuid(one.launch.device) == traffic.device]
        spans = [(one.timeline.first_ns, one.timeline.last_ns) for one in own]
        in_each = link_bytes(traffic, record.interval_ns, spans) if record else None
        found |= {id(one): in_one for one, in_one in zip(own, in_each or (), strict=False)}
    return found


def _exchange(kernel: str, place: str, members: Sequence[LaunchAnalysis], counted: Mapping[int, LinkBytes]) -> Exchange:
    found = [one.communication for one in members if one.communication is not None]
    seen = [counted[id(one)] for one in members if id(one) in counted]
    overlaps = [one.overlap for one in found if one.overlap is not None]
    return Exchange(
        kernel=kernel,
        place=place,
        launches=len(members),
        duration_ns=median(one.duration_ns for one in members),
        read_bytes=round(median(one.read_bytes for one in found)),
        written_bytes=round(median(one.written_bytes for one in found)),
        unknown=max(one.unknown for one in found),
        overlap=median_overlap(overlaps) if overlaps else None,
        counted=median_link_bytes(seen) if seen else None,
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
    if one.counted is not None:
        sent, received = one.counted.sent_bytes, one.counted.received_bytes
        per_s = 1e9 * max(sent, received) / max(one.duration_ns, 1.0)
        both = f"{size_text(round(sent))} sent and {size_text(round(received))} received"
        yield f"over NVLink, {both} ({per_s / 1e9:.1f} GB/s, by counters)"
    if one.unknown:
        yield f"whose memory {counted(one.unknown, 'more operation')} access is not known"
