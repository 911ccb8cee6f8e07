"""Several launches beside each other, as far as there are cores and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kprof_inject.capture.model import Launch
from kprof_inject.errors import KprofError
from kprof_inject.forks import Run, forked, in_turn, usable_cores
from kprof_inject.timeline.timeline import Timeline, decode_launch

# Forks save less than they take where there is less to do than with such a buffer. A launch takes as long as so many
# bytes, however small it is.
_LEAST_BYTES = 8 << 20
_LAUNCH_BYTES = 1 << 19

# All processes together have room for three times the buffers and this. What each of them takes beside its launch's
# buffer, and what is written of a scope at most, was measured with benchmarks/decoding.py.
_ALLOWED_BYTES = 100_000_000
_OWN_BYTES = 40_000_000
_FORK_BYTES = 28_000_000
_SCOPE_BYTES = 240


def decode_launches(launches: Sequence[Launch], run: Run = in_turn) -> Iterator[Timeline | KprofError]:
    """The timeline of each launch, or what is wrong with its buffer. Launches are ``run``'s jobs."""
    decoded = run([partial(_decoded, launch) for launch in launches])
    for launch, found in zip(launches, decoded, strict=True):
        yield found.with_launch(launch) if isinstance(found, Timeline) else found


def run_to_decode(launches: Sequence[Launch]) -> Run:
    """How to decode these launches: in forks, if it is worth it."""
    return _run(launches, 0)


def run_to_write(timelines: Sequence[Timeline]) -> Run:
    """How to write these launches. A fork has all that it writes of one in memory."""
    most_scopes = max((timeline.scope_count for timeline in timelines), default=0)
    return _run([timeline.launch for timeline in timelines], most_scopes * _SCOPE_BYTES)


def _run(launches: Sequence[Launch], given_bytes: int) -> Run:
    """``given_bytes`` is what a job gives at most."""
    buffers = [launch.buffer_bytes for launch in launches]
    if sum(buffers) + len(launches) * _LAUNCH_BYTES < _LEAST_BYTES:
        return in_turn
    room = 3 * sum(buffers) + _ALLOWED_BYTES - _OWN_BYTES - given_bytes
    return forked(max(1, min(usable_cores(), room // (_FORK_BYTES + max(buffers) + given_bytes))))


def _decoded(launch: Launch) -> Iterator[Timeline | KprofError]:
    try:
        yield decode_launch(launch)
    except KprofError as error:
        yield error
