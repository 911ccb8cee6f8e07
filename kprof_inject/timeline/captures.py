"""Read the launches of a capture: whole timelines, or the headers of their CTAs alone.

The headers suffice for durations, and for the size of the buffer that would have kept every record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import ENTRY_BYTES, LAYOUTS, WORDS_PER_ENTRY, LaunchHeaders
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Kernel, Launch
from kprof_inject.capture.ring_sizes import in_whole_rings, keeps_occupancy, row_bytes
from kprof_inject.errors import KprofError
from kprof_inject.timeline.foreign import timeline_of_recorded
from kprof_inject.timeline.records import read_raw, recorded_warps
from kprof_inject.timeline.timeline import Timeline, decode_launch, decode_together


def timeline_of(launch: Launch) -> Timeline:
    """Return the timeline of any launch; raises ``KprofError`` if its buffer is damaged as a whole."""
    return decode_launch(launch) if launch.recorded is None else timeline_of_recorded(launch, launch.recorded)


def timelines_of(launches: Sequence[Launch]) -> Iterator[Timeline | KprofError]:
    """Yield the timelines of several launches, or errors, as ``decode_together`` does."""
    decoded = iter(decode_together([launch for launch in launches if launch.recorded is None]))
    for launch in launches:
        yield next(decoded) if launch.recorded is None else timeline_of_recorded(launch, launch.recorded)


_MAX_HEADER_BYTES = 1 << 20
"""Headers that are held to be evaluated together. More are hardly faster, and take memory."""

_Held = list[tuple[int, NDArray[np.uint32], NDArray[np.uint64]]]
"""Places of launches, the headers of their rows, and the ends that other CTAs left."""


def headers_of(launches: Sequence[Launch]) -> list[LaunchHeaders | KprofError | None]:
    """Return each launch's figures from the headers of its CTAs, without decoding its records.

    The error, if its buffer is damaged as a whole; None if only decoding shows its figures, because no timer was read.
    """
    results: list[LaunchHeaders | KprofError | None] = [None] * len(launches)
    held: defaultdict[tuple[object, ...], _Held] = defaultdict(list)  # by the form of their headers
    held_bytes = 0
    for place, launch in enumerate(launches):
        kernel, layout = launch.kernel, LAYOUTS[launch.kernel.layout]
        if launch.recorded is not None or not layout.has_times:
            continue
        try:
            ends, words = launch.ends_and_words()
        except KprofError as error:
            results[place] = error
            continue
        heads = words[:, : layout.header_words(kernel.num_warps)].copy()
        form = kernel.layout, kernel.num_warps, recorded_warps(launch), launch.sample, words.shape
        held[form].append((place, heads, ends.copy()))
        held_bytes += heads.nbytes + ends.nbytes
        if held_bytes >= _MAX_HEADER_BYTES:
            _evaluate(launches, held, results)
            held.clear()
            held_bytes = 0
    _evaluate(launches, held, results)
    return results


def _evaluate(
    launches: Sequence[Launch],
    held: dict[tuple[object, ...], _Held],
    results: list[LaunchHeaders | KprofError | None],
) -> None:
    for group in held.values():
        first = launches[group[0][0]]
        layout = LAYOUTS[first.kernel.layout]
        places, heads, ends = zip(*group, strict=True)
        ring_words = first.kernel.stride_bytes // 4 - layout.header_words(first.kernel.num_warps)
        found = layout.sound_headers(np.stack(heads), ring_words, recorded_warps(first), first.sample, np.stack(ends))
        for place, headers in zip(places, found, strict=True):
            try:
                results[place] = headers or read_raw(launches[place]).headers
            except KprofError as error:
                results[place] = error


class Need(Struct, frozen=True):
    """Records that the launches of one kernel wrote and lost, summed.

    ``ctas`` is the largest number of CTAs of a launch, ``max_in_warp`` the largest number of records of a warp, and
    ``ring_records`` the capacity of the smallest ring.
    """

    kernel: Kernel
    ctas: int
    written: int
    lost: int
    max_in_warp: int
    ring_records: int

    @property
    def rings(self) -> int:
        """Number of rings of a CTA."""
        return len(self.kernel.mode.recorded_warps(self.kernel.num_warps))

    @property
    def buffer_bytes(self) -> int:
        """Buffer of a CTA that loses nothing: a ring for each recorded warp, as large as the fullest needs."""
        ring_records = 1 << max(self.max_in_warp - 1, 1).bit_length()
        return ring_records * ENTRY_BYTES * self.rings

    def has_room_in_shared(self, buffer_bytes: int) -> bool:
        """Return whether the kernel keeps its records in shared memory, and has room for these bytes there."""
        kernel = self.kernel
        if kernel.mode.buffer != "shared" or kernel.clean.shared_bytes is None:
            return False
        return keeps_occupancy(
            in_whole_rings(buffer_bytes, self.rings),
            kernel.clean.shared_bytes,
            kernel.num_warps,
            kernel.clean.registers,
            kernel.target,
        )

    def launch_bytes(self, buffer_bytes: int) -> int:
        """Return the size of the largest launch's buffer with these bytes for each CTA."""
        return self.ctas * row_bytes(in_whole_rings(buffer_bytes, self.rings), self.kernel.num_warps)

    def combined(self, other: Need) -> Need:
        """Return the need of these launches and of others of the same kernel."""
        return replace(
            self,
            ctas=max(self.ctas, other.ctas),
            written=self.written + other.written,
            lost=self.lost + other.lost,
            max_in_warp=max(self.max_in_warp, other.max_in_warp),
            ring_records=min(self.ring_records, other.ring_records),
        )


class Fit(Struct, frozen=True):
    """Mode that keeps every record of a run that does the same again.

    ``losses`` are the kernels that lost records. ``largest`` is the kernel whose launch then has the largest buffer, of
    ``launch_bytes``.
    """

    mode: Mode
    losses: tuple[Need, ...]
    largest: Need
    launch_bytes: int


def fitted_buffer(launches: Iterable[Launch], mode: Mode) -> Fit | None:
    """Compute the buffer for a second run of a program whose first run made ``launches`` with ``mode``.

    None if no record was lost. The buffer is in shared memory, unless it lacks the room or fewer CTAs would fit on an
    SM. Launches with damaged buffers do not count.
    """
    by_kernel: dict[str, Need] = {}
    for launch in launches:
        try:
            raw = read_raw(launch)
        except KprofError:
            continue
        written = raw.written_words // WORDS_PER_ENTRY
        need = Need(
            launch.kernel,
            launch.sample.rows if launch.sample else len(raw.cta) + raw.never_ran + raw.damaged,
            int(written.sum()),
            int(raw.records_lost.sum()),
            int(written.max(initial=0)),
            raw.entries.shape[2],
        )
        known = by_kernel.get(str(launch.kernel.folder))
        by_kernel[str(launch.kernel.folder)] = known.combined(need) if known else need
    needs = tuple(by_kernel.values())
    losses = tuple(need for need in needs if need.lost)
    if not losses:
        return None
    buffer_bytes = max(need.buffer_bytes for need in needs)
    in_shared = mode.buffer != "global" and all(need.has_room_in_shared(buffer_bytes) for need in needs)
    largest = max(needs, key=lambda need: need.launch_bytes(buffer_bytes))
    return Fit(
        replace(mode, buffer="shared" if in_shared else "global", buffer_bytes=buffer_bytes),
        losses,
        largest,
        largest.launch_bytes(buffer_bytes),
    )
