"""The steps after a run: a capture is opened, its launches are decoded, and what they hold is written.

Launches are decoded and written beside each other, as far as there are cores and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TypeVar

from kprof_inject.capture.encoding import CAPTURE_AGAIN
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.foreign_buffer import NO_DESCRIPTION, BufferDescription, is_saved_array, read_saved_buffer
from kprof_inject.capture.model import Capture, Launch
from kprof_inject.capture.proton_buffer import read_proton_buffer, read_scope_names
from kprof_inject.capture.proton_header import is_proton_buffer
from kprof_inject.capture.reader import is_capture, read_capture
from kprof_inject.capture.redaction import redacted
from kprof_inject.capture.schema import CLOCK_FILE
from kprof_inject.errors import KprofError
from kprof_inject.export.formats import is_format
from kprof_inject.forks import JobRunner, forked, in_turn, usable_cores
from kprof_inject.quantities import counted, listed
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.foreign import timeline_of, timelines_of
from kprof_inject.timeline.records import read_raw
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import headers_duration_ns, launch_duration_ns
from kprof_inject.workspace import Workspace, read_experiments
from kprof_inject.workspace_paths import DEFAULT_WORKSPACE, is_module, is_workspace, may_be_workspace, where_to_look

T = TypeVar("T")

_MAX_NUMBERS = 20

# A report shows the median launch of each kernel and the ten slowest ones: of so many, a small part.
_MANY_LAUNCHES = 64

# Forks save less than they take where there is less to do than with such a buffer. A launch takes as long as so many
# bytes, however small it is.
_MIN_BYTES = 8 << 20
_LAUNCH_BYTES = 1 << 19

# Limits of what is decoded together: more would hardly be faster, and takes memory.
_MAX_TOGETHER = 128
_MAX_BYTES_TOGETHER = 2 << 20

# All processes together have room for three times the buffers and this. What each of them takes beside its launch's
# buffer, and what is written of a scope at most, was measured with benchmarks/decoding.py.
_ALLOWED_BYTES = 100_000_000
_OWN_BYTES = 40_000_000
_FORK_BYTES = 28_000_000
_SCOPE_BYTES = 240


def open_capture(
    place: Path,
    names_path: Path | None = None,
    said: BufferDescription = NO_DESCRIPTION,
    *,
    redact: bool = False,
) -> Capture:
    """A capture's folder; a workspace: then its last capture; a file with Proton's ``host_buffer``, for which
    ``names_path`` may have the names of its scopes; or another profiler's buffer that NumPy saved, of which something
    may be ``said``. ``redact`` makes it fit for others to see. Raises ``KprofError`` for anything else.
    """
    capture = _opened(place, names_path, said)
    return redacted(capture) if redact else capture


def _opened(place: Path, names_path: Path | None, said: BufferDescription) -> Capture:
    if not (place.exists() or may_be_workspace(place)):
        raise KprofError(f"{place} does not exist", hint=where_to_look(place, _is_read))
    if is_saved_array(place):
        _refuse(names_path, place, "--scope-names is for a file with Proton's host_buffer", "use --names")
        return read_saved_buffer(place, said)
    if said != NO_DESCRIPTION:
        _refuse(
            place,
            place,
            "--buffer-format, --names and --buffer-units (in Python: format, names, units) are for NumPy's files",
            "give the .npy or .npz file, or leave them out",
        )
    if is_proton_buffer(place):
        return read_proton_buffer(place, read_scope_names(names_path) if names_path else None)
    if is_module(place):
        raise KprofError(
            f"{place} is TTGIR, which has no times",
            hint="compare it with another .ttgir file: kprof-inject diff A.ttgir B.ttgir; what can be timed in it: "
            f"kprof-inject list {quote(str(place))}",
        )
    if not may_be_workspace(place):
        raise KprofError(f"{place} is not a Proton buffer", hint=_instead_of(place))
    _refuse(
        names_path,
        place,
        "--scope-names is for a file with Proton's host_buffer",
        "leave it out: a capture has the names of its scopes",
    )
    return read_capture(place if is_capture(place) else Workspace.open(place).last_capture_folder())


def _is_read(place: Path) -> bool:
    if place.is_dir():
        return is_capture(place) or (is_workspace(place) and bool(Workspace(place).capture_folders()))
    return is_saved_array(place) or is_proton_buffer(place)


def numbered_capture(place: Path) -> Path:
    """A capture of the default workspace that was named by its number alone; any other place as it is. Raises
    ``KprofError`` if there is no such capture.
    """
    if not (str(place).isascii() and str(place).isdecimal()) or place.exists():
        return place
    if not is_workspace(DEFAULT_WORKSPACE):
        hint = where_to_look(DEFAULT_WORKSPACE, _is_read)
        raise KprofError(f"there is no capture {place}: {DEFAULT_WORKSPACE} does not exist", hint=hint)
    numbers = {int(folder.name): folder for folder in Workspace.open(DEFAULT_WORKSPACE).capture_folders()}
    if int(str(place)) in numbers:
        return numbers[int(str(place))]
    there = listed([str(number) for number in numbers], _MAX_NUMBERS) or "none yet"
    raise KprofError(f"{DEFAULT_WORKSPACE} has no capture {place}", hint=f"it has {there}")


def _instead_of(place: Path) -> str:
    if place.suffix == ".py":
        return f"to profile a program: kprof-inject profile -- python {quote(str(place))}"
    if is_format(place):
        return "this file is part of a capture; give the capture or its workspace"
    return "save one: host_buffer.numpy().tofile(PATH); another profiler's goes to a .npy file"


def _refuse(given: object, place: Path, what: str, hint: str) -> None:
    """Raises ``KprofError`` if something was ``given`` that is for other places."""
    if given is not None:
        raise KprofError(f"{what}, but {place} is not one", hint=hint, exit_code=2)


def passed_over(place: Path, capture: Capture) -> Path | None:
    """The last capture of a workspace that was made to be read, where its last one, ``capture``, was not. None if there
    is none, or ``place`` is no workspace.
    """
    if not capture.made_by or not is_workspace(place):
        return None
    for folder in reversed(Workspace.open(place).capture_folders()):
        with suppress(KprofError):
            if not read_capture(folder).made_by:
                return folder
    return None


def experiments_at(place: Path) -> tuple[ExperimentRecord, ...]:
    """The last of a workspace; none of anything else."""
    if not is_workspace(place):
        return ()
    folders = Workspace.open(place).experiment_folders()[-1:]
    return tuple(found for folder in folders for _, found in read_experiments(folder))


@dataclass(frozen=True, slots=True)
class ReadLaunch:
    """A launch whose buffer is sound."""

    launch: Launch
    duration_ns: int
    """``launch_duration_ns``."""
    decode: Callable[[], Timeline]

    @classmethod
    def decoded(cls, timeline: Timeline) -> ReadLaunch:
        return cls(timeline.launch, launch_duration_ns(timeline), lambda: timeline)


def decode_capture(capture: Capture, say: Callable[[str], None], choice: Choice = EVERYTHING) -> list[Timeline]:
    """Decode every launch that is chosen. One whose buffer is damaged is told of and passed over. Raises ``KprofError``
    if none is left.
    """
    launches = choice.wanted(capture.launches)
    timelines = _sound(decode_launches(launches, run_to_decode(launches)), capture, launches, say)
    choice.require_ctas([timeline.ctas for timeline in timelines])
    if choice == EVERYTHING:
        return timelines
    parts = [timeline.chosen(choice) for timeline in timelines]
    return [part for part in parts if part.ctas.size or not choice.names_ctas]


def read_launches(capture: Capture, say: Callable[[str], None], choice: Choice = EVERYTHING) -> list[ReadLaunch]:
    """Check the buffers of all launches that are chosen, to decode few of them. Says and raises what ``decode_capture``
    does.
    """
    launches = choice.wanted(capture.launches)
    kernels = {launch.kernel.folder for launch in launches}
    # Which CTAs there are of an SM, only decoding tells.
    if choice.names_ctas or len(launches) < _MANY_LAUNCHES * len(kernels):
        return [ReadLaunch.decoded(timeline) for timeline in decode_capture(capture, say, choice)]
    return _sound((_read(launch, choice) for launch in launches), capture, launches, say)


def _read(launch: Launch, choice: Choice) -> ReadLaunch | KprofError:
    try:
        duration_ns = None if launch.recorded is not None else headers_duration_ns(read_raw(launch))
        if duration_ns is None:
            return ReadLaunch.decoded(_chosen(timeline_of(launch), choice))
    except KprofError as error:
        return error
    return ReadLaunch(launch, duration_ns, lambda: _chosen(timeline_of(launch), choice))


def _chosen(timeline: Timeline, choice: Choice) -> Timeline:
    return timeline if choice == EVERYTHING else timeline.chosen(choice)


def _sound(
    found: Iterable[T | KprofError], capture: Capture, launches: Sequence[Launch], say: Callable[[str], None]
) -> list[T]:
    """Return what was ``found`` of the launches; say which are damaged, and what else the capture lacks."""
    sound: list[T] = []
    failures: list[KprofError] = []
    for one in found:
        if isinstance(one, KprofError):
            failures.append(one)
            say(f"skipped a launch: {one.what}")
        else:
            sound.append(one)
    for line in (*_missing(capture), *_damaged_texts(launches)):
        say(line)
    if failures and not sound:
        raise failures[0]
    if not sound:
        raise KprofError(f"{capture.folder} contains no launches", hint=CAPTURE_AGAIN)
    return sound


def _missing(capture: Capture) -> Iterator[str]:
    """What the program's processes could not save."""
    for process in capture.processes:
        for reason, count in process.left_out.items():
            yield f"left out {counted(count, 'launch')} of process {process.pid}: {reason}"
        if process.damaged_readings:
            damaged = counted(process.damaged_readings, "damaged line")
            yield f"skipped {damaged} of {CLOCK_FILE} of process {process.pid}"
        if not process.ended:
            yield f"process {process.pid} ended before it could finish its capture; this is what it saved"


def _damaged_texts(launches: Sequence[Launch]) -> Iterator[str]:
    """Name the modules and sources that are not what was saved: reports leave out what they would have said of them."""
    for kernel in {launch.kernel.folder: launch.kernel for launch in launches}.values():
        for saved, read in zip(kernel.checksums, (kernel.ttgir, kernel.sources), strict=True):
            if saved is not None:
                try:
                    read()
                except KprofError as error:
                    yield f"goes on without a text: {error.what}"


def decode_launches(launches: Sequence[Launch], run: JobRunner = in_turn) -> Iterator[Timeline | KprofError]:
    """The timeline of each launch, or what is wrong with its buffer. Launches that are decoded together are a job of
    ``run``.
    """
    decoded = run([partial(timelines_of, together) for together in _together(launches)])
    for launch, found in zip(launches, decoded, strict=True):
        yield found.with_launch(launch) if isinstance(found, Timeline) else found


def _together(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    """Yield lots of launches in their order: several where their buffers are small."""
    together: list[Launch] = []
    size = 0
    for launch in launches:
        if together and (size + launch.buffer_bytes > _MAX_BYTES_TOGETHER or len(together) == _MAX_TOGETHER):
            yield together
            together, size = [], 0
        together.append(launch)
        size += launch.buffer_bytes
    if together:
        yield together


def run_to_decode(launches: Sequence[Launch]) -> JobRunner:
    """How to decode these launches: in forks, if it is worth it."""
    return _run(launches, 0, max((sum(one.buffer_bytes for one in some) for some in _together(launches)), default=0))


def run_to_write(timelines: Sequence[Timeline]) -> JobRunner:
    """How to write these launches. A fork has all that it writes of one in memory."""
    most_scopes = max((timeline.scope_count for timeline in timelines), default=0)
    launches = [timeline.launch for timeline in timelines]
    most_bytes = max((launch.buffer_bytes for launch in launches), default=0)
    return _run(launches, most_scopes * _SCOPE_BYTES, most_bytes)


def _run(launches: Sequence[Launch], given_bytes: int, read_bytes: int) -> JobRunner:
    """``given_bytes`` is what a job gives at most, ``read_bytes`` what it has of buffers."""
    buffers = [launch.buffer_bytes for launch in launches]
    if sum(buffers) + len(launches) * _LAUNCH_BYTES < _MIN_BYTES:
        return in_turn
    room = 3 * sum(buffers) + _ALLOWED_BYTES - _OWN_BYTES - given_bytes
    return forked(max(1, min(usable_cores(), room // (_FORK_BYTES + read_bytes + given_bytes))))
