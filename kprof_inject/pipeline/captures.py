"""The steps that read a capture: open it, decode its launches, and analyse them.

Several processes decode and write launches in parallel, as far as there are cores and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TypeVar

from kprof_inject.analysis.launch import Experiment, ReportLaunch
from kprof_inject.analysis.program import Report
from kprof_inject.capture.buffer_layouts import LaunchHeaders
from kprof_inject.capture.encoding import CAPTURE_AGAIN
from kprof_inject.capture.foreign import NO_DESCRIPTION, BufferDescription, is_saved_array, read_saved_buffer
from kprof_inject.capture.model import Capture, Launch, redacted
from kprof_inject.capture.proton_buffer import is_proton_buffer, read_proton_buffer, read_scope_names
from kprof_inject.capture.reader import is_capture, read_capture
from kprof_inject.capture.saved_launch import names_saved_launch, read_saved_launch
from kprof_inject.errors import KprofError
from kprof_inject.export.formats import ending_of
from kprof_inject.forks import JobRunner, forked, in_turn, usable_cores
from kprof_inject.pipeline import Say
from kprof_inject.quantities import counted, listed
from kprof_inject.timeline.captures import headers_of, timeline_of, timelines_of
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace, read_experiments
from kprof_inject.workspace_folder import DEFAULT_WORKSPACE, is_module, is_workspace, may_be_workspace, where_to_look

T = TypeVar("T")

_MAX_NUMBERS = 20
_FOR_HOST_BUFFER = "--scope-names is for a file with Proton's host_buffer"

# With smaller buffers in all, forks cost more time than they save. The fixed cost of each launch is counted as the
# bytes that take as long to decode.
_MIN_BYTES = 32 << 20
_LAUNCH_BYTES = 1 << 19

# Limits of a batch of launches that are decoded together: larger ones are hardly faster, and take memory.
_MAX_BATCH_LAUNCHES = 128
_MAX_BATCH_BYTES = 2 << 20

_MAX_FORKS = 64  # each fork takes a few files of this process, which may have no more than a thousand

# All processes together may take three times the buffers and _ALLOWED_BYTES. The others are the memory of this process
# and of a fork without its buffers, and the maximum written per scope; measured with benchmarks/decoding.py.
_ALLOWED_BYTES = 100_000_000
_PROCESS_BYTES = 40_000_000
_FORK_BYTES = 28_000_000
_SCOPE_BYTES = 240


def open_capture(
    place: Path,
    names_path: Path | None = None,
    description: BufferDescription = NO_DESCRIPTION,
    *,
    redact: bool = False,
) -> Capture:
    """Open a capture, the last capture of a workspace, or a buffer as a capture.

    A buffer is a file with Proton's ``host_buffer``, whose scope names ``names_path`` may have, or a file of NumPy with
    another profiler's buffer, which ``description`` may describe. ``redact`` removes what others should not see. Raises
    ``KprofError`` for anything else.
    """
    if not (place.exists() or may_be_workspace(place)):
        raise KprofError(f"{place} does not exist", hint=where_to_look(place, _is_readable))
    is_array = is_saved_array(place)
    if description != NO_DESCRIPTION and not is_array:
        raise _not_one(
            place, "--buffer-format and --names are for NumPy's files", "give the .npy file, or leave them out"
        )
    if is_array:
        if names_path is not None:
            raise _not_one(place, _FOR_HOST_BUFFER, "use --names")
        capture = read_saved_buffer(place, description)
    elif is_proton_buffer(place):
        capture = read_proton_buffer(place, read_scope_names(names_path) if names_path else None)
    elif is_module(place):
        raise KprofError(
            f"{place} is TTGIR, which has no times",
            hint="compare it with another .ttgir file: kprof-inject diff A.ttgir B.ttgir; what can be timed in it: "
            f"kprof-inject list {quote(str(place))}",
        )
    elif not may_be_workspace(place):
        if place.suffix == ".py":
            hint = f"to profile a program: kprof-inject profile -- python {quote(str(place))}"
        elif ending_of(place):
            hint = "this file is part of a capture; give the capture or its workspace"
        else:
            hint = "save one: host_buffer.numpy().tofile(PATH); another profiler's goes to a .npy file"
        raise KprofError(f"{place} is not a Proton buffer", hint=hint)
    elif names_path is not None:
        raise _not_one(place, _FOR_HOST_BUFFER, "leave it out: a capture has the names of its scopes")
    else:
        capture = read_capture(place if is_capture(place) else Workspace.open(place).last_capture_folder())
    return redacted(capture) if redact else capture


def _not_one(place: Path, what: str, hint: str) -> KprofError:
    return KprofError(f"{what}, but {place} is not one", hint=hint, exit_code=2)


def _is_readable(place: Path) -> bool:
    if place.is_dir():
        return is_capture(place) or (is_workspace(place) and bool(Workspace(place).capture_folders()))
    return is_saved_array(place) or is_proton_buffer(place)


def with_launch_captured(place: Path, launches: str, say: Say) -> Path:
    """Return a temporary workspace with a capture of the saved launch at ``place``; any other place as it is.

    ``launches`` is as in ``run``. Raises ``KprofError``.
    """
    if not names_saved_launch(place):
        return place
    # Imported here because reading a capture needs none of it.
    from kprof_inject.pipeline.saved_launches import captured

    return captured(read_saved_launch(place), launches, say)


def numbered_capture(place: Path) -> Path:
    """Return the default workspace's capture that a number names; return any other place as it is.

    Raises ``KprofError`` if there is no capture of that number.
    """
    if not (str(place).isascii() and str(place).isdecimal()) or place.exists():
        return place
    if not is_workspace(DEFAULT_WORKSPACE):
        hint = where_to_look(DEFAULT_WORKSPACE, _is_readable)
        raise KprofError(f"there is no capture {place}: {DEFAULT_WORKSPACE} does not exist", hint=hint)
    numbers = {int(folder.name): folder for folder in Workspace.open(DEFAULT_WORKSPACE).capture_folders()}
    if int(str(place)) in numbers:
        return numbers[int(str(place))]
    existing = listed([str(number) for number in numbers], _MAX_NUMBERS) or "none yet"
    raise KprofError(f"{DEFAULT_WORKSPACE} has no capture {place}", hint=f"it has {existing}")


def last_profiled_capture(place: Path, capture: Capture) -> Path | None:
    """Return the folder of the workspace's last capture by ``run`` or ``profile`` if the last of all is another's.

    ``capture`` is the last of all: a command such as ``causal`` may have made it for its own use.
    """
    if not capture.made_by or not is_workspace(place):
        return None
    for folder in reversed(Workspace.open(place).capture_folders()):
        with suppress(KprofError):
            if not read_capture(folder).made_by:
                return folder
    return None


def experiments_at(place: Path, say: Say) -> tuple[Experiment, ...]:
    """Return the last experiments of a workspace, by delays and by edits; none for any other place.

    Edits that cannot be read are left out, as the capture does not depend on them.
    """
    if not is_workspace(place):
        return ()
    workspace = Workspace.open(place)
    experiments: list[Experiment] = []
    for folder in workspace.experiment_folders()[-1:]:
        experiments += (found for _, found in read_experiments(folder))
    for variant in workspace.tried_variants():
        try:
            experiments.append(workspace.edits(variant))
        except KprofError as error:
            say(f"the edits that were tried are left out: {error.what}; {error.hint}")
    return tuple(experiments)


def decode_capture(capture: Capture, say: Say, choice: Choice = EVERYTHING) -> list[Timeline]:
    """Decode every chosen launch; report and skip those whose buffers are damaged.

    Raises ``KprofError`` if none is left.
    """
    launches = choice.wanted(capture.launches)
    timelines = _valid(decode_launches(launches, run_to_decode(launches)), capture, launches, say)
    choice.require_ctas([timeline.ctas for timeline in timelines], [timeline.unrecorded for timeline in timelines])
    parts = [timeline.chosen(choice) for timeline in timelines]
    return [part for part in parts if part.ctas.size or not choice.names_ctas]


def report_on(capture: Capture, experiments: Sequence[Experiment], say: Say, choice: Choice) -> Report:
    """Return the report on the chosen launches; of many launches, only those are decoded whose analysis is used.

    All buffers are checked. Reports and raises the same as ``decode_capture``.
    """
    captured = capture.launches
    launches = choice.wanted(captured)
    if choice.names_ctas:  # only decoding shows which CTAs ran on an SM
        return Report.of(decode_capture(capture, say, choice), experiments, captured)

    def opened(launch: Launch, headers: LaunchHeaders | KprofError | None) -> ReportLaunch | KprofError:
        if isinstance(headers, KprofError):
            return headers
        if headers is not None:
            return ReportLaunch(launch, headers, choice, experiments)
        try:
            return ReportLaunch.of(timeline_of(launch).chosen(choice), experiments)
        except KprofError as error:
            return error

    return Report(_valid(map(opened, launches, headers_of(launches)), capture, launches, say), captured)


def _valid(results: Iterable[T | KprofError], capture: Capture, launches: Sequence[Launch], say: Say) -> list[T]:
    valid: list[T] = []
    failures: list[KprofError] = []
    for result in results:
        if isinstance(result, KprofError):
            failures.append(result)
            say(f"skipped a launch: {result.what}")
        else:
            valid.append(result)
    for process in capture.processes:
        if process.end is None:
            say(f"process {process.pid} ended before its capture was complete; this is what it saved")
        for reason, count in process.end.left_out.items() if process.end else ():
            say(f"left out {counted(count, 'launch')} of process {process.pid}: {reason}")
    for kernel in {launch.kernel.folder: launch.kernel for launch in launches}.values():
        for saved, read in ((kernel.ttgir_crc32, kernel.ttgir), (kernel.sources_crc32, kernel.sources)):
            if saved is not None:
                try:
                    read()
                except KprofError as error:  # reports leave out whatever needs it
                    say(f"ignored a damaged text: {error.what}")
    if failures and not valid:
        raise failures[0]
    if not valid:
        raise KprofError(f"{capture.folder} contains no launches", hint=CAPTURE_AGAIN)
    return valid


def decode_launches(launches: Sequence[Launch], run: JobRunner = in_turn) -> Iterator[Timeline | KprofError]:
    """Yield the timeline of each launch, or the error in its buffer.

    A job of ``run`` decodes a batch of launches.
    """
    decoded = run([partial(timelines_of, batch) for batch in _batches(launches)])
    for launch, result in zip(launches, decoded, strict=True):
        yield result.with_launch(launch) if isinstance(result, Timeline) else result


def _batches(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    batch: list[Launch] = []
    size = 0
    for launch in launches:
        if batch and (size + launch.buffer_bytes > _MAX_BATCH_BYTES or len(batch) == _MAX_BATCH_LAUNCHES):
            yield batch
            batch, size = [], 0
        batch.append(launch)
        size += launch.buffer_bytes
    if batch:
        yield batch


def run_to_decode(launches: Sequence[Launch]) -> JobRunner:
    """Return the runner for jobs that decode these launches: forks, if that is faster."""
    batch_bytes = [sum(launch.buffer_bytes for launch in batch) for batch in _batches(launches)]
    return _job_runner(launches, 0, max(batch_bytes, default=0))


def run_to_write(timelines: Sequence[Timeline]) -> JobRunner:
    """Return the runner for jobs that write these launches: forks, if that is faster.

    A fork holds the whole output of the launches that it gets together in memory.
    """
    max_scopes = max((timeline.scope_count for timeline in timelines), default=0)
    launches = [timeline.launch for timeline in timelines]
    max_bytes = max((launch.buffer_bytes for launch in launches), default=0)
    launch_bytes = max(max_scopes * _SCOPE_BYTES, _MAX_BATCH_BYTES // _MAX_BATCH_LAUNCHES)
    at_once = max(1, _MAX_BATCH_BYTES // launch_bytes)
    return _job_runner(launches, at_once * launch_bytes, max_bytes, at_once)


def _job_runner(launches: Sequence[Launch], result_bytes: int, read_bytes: int, max_at_once: int = 1) -> JobRunner:
    """Run jobs in as many forks as cores and memory allow, or in turn if the launches are small.

    Jobs that a fork gets together return at most ``result_bytes``, which it also pickles. A job reads at most
    ``read_bytes`` of buffers.
    """
    buffers = [launch.buffer_bytes for launch in launches]
    if sum(buffers) + len(launches) * _LAUNCH_BYTES < _MIN_BYTES:
        return in_turn
    room = 3 * sum(buffers) + _ALLOWED_BYTES - _PROCESS_BYTES - result_bytes
    count = min(usable_cores(), room // (_FORK_BYTES + read_bytes + 2 * result_bytes), _MAX_FORKS)
    return forked(max(1, count), max_at_once)
