"""What a histogram has to do at least, by how the version of Triton lowers it that compiled the kernel.

For NVIDIA, Triton up to 3.7 has the lanes of a warp vote on each bit of an element's bin. Then, for each element that
it has, a lane combines the votes for each of its bins, and counts them: a lane has every 32nd bin. This was read from
the PTX that Triton 3.5.1, 3.6.0 and 3.7.1 make: for 1024 elements on 128 threads, 8 ``popc`` in each thread with up to
32 bins, 64 with 256, 256 with 1024. Triton 3.8 adds each element in shared memory, unless it is in no bin: of that,
nothing is certain. Population counts are done by the special function units: CUDA C++ Programming Guide, "Throughput of
Native Arithmetic Instructions".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from kprof_inject.analysis.roofs.work import NO_WORK, Work
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import types_of

_HISTOGRAM = "tt.histogram"
_VERSION = re.compile(r"(\d+)\.(\d+)")
_FIRST_WITHOUT_VOTES = (3, 8)
_LANES = 32


@lru_cache(maxsize=4)  # the launches of a kernel come together
def work_of_histograms(module: Module, target: str, triton_version: str) -> Mapping[Operation, Work]:
    """Of one execution by a CTA, of each histogram of which anything is certain."""
    version = _VERSION.match(triton_version)
    votes = version is not None and (int(version[1]), int(version[2])) < _FIRST_WITHOUT_VOTES
    if not votes or not target.startswith("cuda:"):
        return {}
    histograms = [one for one in module.walk() if one.name == _HISTOGRAM]
    return {one: work for one in histograms if (work := _by_votes(one)) != NO_WORK}


def _by_votes(histogram: Operation) -> Work:
    types = types_of(histogram)
    if len(types) < 2:
        return NO_WORK
    counts = types[0].elements * max(types[-1].elements // _LANES, 1)
    return Work(special=counts, logic=counts)
