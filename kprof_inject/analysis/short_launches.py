"""A program's short launches: what launching them takes together, and which follow each other on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kprof_inject.analysis.findings.evidence import launch_times
from kprof_inject.analysis.launch import ReportLaunch
from kprof_inject.timeline.clock import ClockSource

SHORT_NS = 12_000
_MIN_SHARE = 0.02  # less of the time of all launches is not worth a line
# Between two launches of one stream that are so close, hardly a third one ran: with its pauses, it takes longer.
_MAX_PAUSE_NS = 2_000


class ShortLaunches(Struct, frozen=True):
    """The ``launches`` of at most 12 µs, of the program's ``of_launches``; they take ``whole_ns`` with launching.

    The kernels in ``row`` follow each other, and take ``row_ns`` from the begin of the first to the end of the last.
    """

    launches: int
    of_launches: int
    whole_ns: float
    launching_ns: float
    row: tuple[str, ...]
    row_ns: int


def short_launches(middles: Sequence[ReportLaunch], of_launches: int) -> ShortLaunches | None:
    """Sum up the short launches, given the median launch of each variant of each kernel, and the number of all.

    Returns None where launching them takes too little of the launches' time to matter.
    """
    timed = [(one, one.launch.kernel.launches or 0, launch_times(one.launch.kernel.clean)) for one in middles]
    known = [(one, launches, *times_ns) for one, launches, times_ns in timed if times_ns is not None]
    short = [row for row in known if row[2] <= SHORT_NS]
    launching_ns = sum(launches * min(empty_ns, launch_ns) for _, launches, launch_ns, empty_ns in short)
    if not launching_ns or launching_ns < _MIN_SHARE * sum(launches * launch_ns for _, launches, launch_ns, _ in known):
        return None
    rows = (row for row in _rows([one for one, *_ in short]) if len({one.launch.kernel.name for one in row}) > 1)
    row = max(rows, key=len, default=[])
    return ShortLaunches(
        launches=sum(launches for _, launches, *_ in short),
        of_launches=of_launches,
        whole_ns=sum(launches * launch_ns for _, launches, launch_ns, _ in short),
        launching_ns=launching_ns,
        row=tuple(dict.fromkeys(one.launch.kernel.name for one in row)),
        row_ns=row[-1].analysis.timeline.last_ns - row[0].analysis.timeline.first_ns if row else 0,
    )


def _rows(launches: Sequence[ReportLaunch]) -> Iterator[list[ReportLaunch]]:
    """Yield launches that follow each other, two or more at a time."""
    sources = (ClockSource.FITTED, ClockSource.ASSUMED)
    timed = [one for one in launches if one.known_analysis and one.analysis.timeline.clock.source in sources]
    timed.sort(key=lambda one: (str(one.launch.place), one.launch.stream, one.analysis.timeline.first_ns))
    row: list[ReportLaunch] = []
    for one in timed:
        if row and not _follows(one, row[-1]):
            if len(row) > 1:
                yield row
            row = []
        row.append(one)
    if len(row) > 1:
        yield row


def _follows(one: ReportLaunch, former: ReportLaunch) -> bool:
    pause_ns = one.analysis.timeline.first_ns - former.analysis.timeline.last_ns
    is_same = (one.launch.place, one.launch.stream) == (former.launch.place, former.launch.stream)
    return is_same and 0 <= pause_ns <= _MAX_PAUSE_NS
