"""Read the launches of a capture: whole timelines, or the headers of their CTAs alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import LAYOUTS, LaunchHeaders
from kprof_inject.capture.model import Launch
from kprof_inject.errors import KprofError
from kprof_inject.timeline.records import read_raw, recorded_warps

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
