"""Results of launches for notebooks, test suites and scripts: the report, the page, a trace; and their comparison."""

from __future__ import annotations

import html
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from kprof_inject.analysis.comparison.verdicts import CaptureDiff, diff_captures
from kprof_inject.analysis.launch import Experiment
from kprof_inject.analysis.program import KernelFinding, Report
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.capture.foreign import BufferDescription, BufferFormat, read_buffer_array
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.export import tables
from kprof_inject.export.formats import TraceFile
from kprof_inject.export.hooks import Hook, hooks_of
from kprof_inject.pipeline.captures import decode_capture, experiments_at, open_capture
from kprof_inject.quantities import counted, listed
from kprof_inject.report.facts import Answer, Answers
from kprof_inject.report.json_text import brief_text, whole_text
from kprof_inject.timeline.timeline import Timeline

if TYPE_CHECKING:
    import pandas
    import pyarrow

ALL = "*"  # the glob for every kernel

_REPORT_WIDTH = 110
_MAX_NAMES = 12


class Results:
    """Launches in the order in which they were made, and everything that can be learnt from them."""

    def __init__(self, timelines: Sequence[Timeline] = (), experiments: Sequence[Experiment] = ()) -> None:
        self._timelines = list(timelines)
        self._experiments = tuple(experiments)

    @property
    def timelines(self) -> list[Timeline]:
        """The launches."""
        return list(self._timelines)

    @property
    def timeline(self) -> Timeline:
        """The last launch. Raises ``KprofError``, with the reason, if there is none."""
        return self._kept()[-1]

    def answers(self, *, kernel: str = ALL) -> list[Answer]:
        """Return an answer for each kernel that matches the glob ``kernel``, the largest possible gain first.

        An answer has ``limit``, ``advice``, ``trust``, ``findings``, ``times``, ``scopes`` and more, of the launch of
        median duration. Raises ``KprofError`` if there are launches, but none of these kernels.
        """
        report = self._report(_of_kernels(self.timelines, kernel))
        answers = Answers(report)
        return [answers.on(one.middle) for one in report.program.kernels]

    def summary(self) -> list[LaunchSummary]:
        """Return the statistics of each launch."""
        return [summarise(timeline) for timeline in self.timelines]

    def findings(self, *, kernel: str = ALL) -> list[KernelFinding]:
        """Return the findings on the kernels that match the glob ``kernel``.

        They are those of ``answers``, sorted by the largest possible gain of the program. Raises ``KprofError`` if
        there are launches, but none of these kernels.
        """
        return self._report(_of_kernels(self.timelines, kernel)).findings()

    def report(self, *, kernel: str = ALL) -> str:
        """Return the output of ``kprof-inject report`` for kernels that match a glob; raise ``KprofError`` for none."""
        from kprof_inject.report.terminal.screens import answers_text

        return answers_text(self._report(_of_kernels(self._kept(), kernel)), _REPORT_WIDTH)

    def json(self, budget: int | None = None, *, kernel: str = ALL) -> str:
        """Return the output of ``kprof-inject report --json``, with a budget at most so many tokens.

        ``kernel`` is a glob. Raises ``KprofError`` if there is no launch of such a kernel, or if the budget is too
        small or no integer.
        """
        report = self._report(_of_kernels(self._kept(), kernel))
        if budget is None:
            return "".join(whole_text(report))
        if not isinstance(budget, int):
            raise KprofError(f"the budget must be a whole number of tokens, not {budget!r}", hint="such as budget=1000")
        return brief_text(report, budget)

    def html(self, path: str | Path, *, kernel: str = ALL) -> Path:
        """Write the page of ``kprof-inject report --html``, which any browser opens; return its path.

        ``kernel`` is a glob. Raises ``KprofError`` if there is no launch of such a kernel, or if the file cannot be
        written.
        """
        from kprof_inject.report.html.document import write_html

        report = self._report(_of_kernels(self._kept(), kernel))
        return _written(Path(path), lambda file: write_html(file, report))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each scope that ran; texts are categories.

        Raises ``KprofError`` without pandas.
        """
        return tables.to_pandas(self.timelines)

    def to_arrow(self) -> pyarrow.Table:
        """Return the same as an Arrow table, whose texts are dictionaries; raise ``KprofError`` without pyarrow."""
        return tables.to_arrow(self.timelines)

    def export(self, path: str | Path, hooks: Hook | Sequence[Hook] = ()) -> Path:
        """Write a trace of all launches and return its path, whose ending determines the format.

        ``hooks`` are functions of yours that add to the trace, with the decorators of ``kprof_inject.export``. Raises
        ``KprofError`` if there is no launch.
        """
        trace = TraceFile.at(Path(path), hooks=hooks_of(hooks))
        trace.write(self._kept())
        return trace.path

    def _report(self, timelines: Sequence[Timeline]) -> Report:
        captured = [timeline.launch for timeline in self._timelines]
        return Report.of(timelines, self._experiments, captured)

    def _kept(self) -> list[Timeline]:
        timelines = self.timelines
        if not timelines:
            raise self._nothing_kept()
        return timelines

    def _nothing_kept(self) -> KprofError:
        return KprofError("there is no launch", hint="capture again")

    def __repr__(self) -> str:
        timelines = self.timelines
        kernels = ", ".join(_kernels_of(timelines)) or "no kernel"
        return f"<{type(self).__name__}: {counted(len(timelines), 'launch')} of {kernels}>"

    def _repr_html_(self) -> str:
        timelines = self.timelines
        if not timelines:
            return f"<pre>{html.escape(repr(self))}</pre>"
        from kprof_inject.report.terminal.screens import answers_html

        return answers_html(self._report(timelines))


def _written(path: Path, write: Callable[[Path], object]) -> Path:
    try:
        write(path)
    except OSError as error:
        raise KprofError(f"cannot write {path}: {error.strerror}", hint="name another file") from None
    return path


def _of_kernels(timelines: Sequence[Timeline], glob: str, whose: str = "the") -> list[Timeline]:
    chosen = [timeline for timeline in timelines if fnmatchcase(timeline.launch.kernel.name, glob)]
    if timelines and not chosen:
        known = _kernels_of(timelines)
        hint = did_you_mean(glob, known) + f"{whose} kernels are {listed(known, _MAX_NAMES)}"
        raise KprofError(f"no kernel matches {glob!r}", hint=hint)
    return chosen


def _kernels_of(timelines: Sequence[Timeline]) -> list[str]:
    return list(dict.fromkeys(timeline.launch.kernel.name for timeline in timelines))


def load(path: str | Path) -> Results:
    """Load results from a path.

    It may be a workspace, for its last capture; a capture's folder; or a file with Proton's ``host_buffer``.
    Raises ``KprofError`` for anything else. A launch whose buffer is damaged is skipped with a warning.
    """
    place = Path(path)
    if place.exists():  # buffers are read later, and the program may change its current folder before that
        place = place.absolute()

    def say(message: str) -> None:
        warnings.warn(message, stacklevel=3)

    return Results(decode_capture(open_capture(place), say), experiments_at(place, say))


def read_buffer(
    buffer: Any, *, format: BufferFormat | None = None, names: str | Sequence[str] | None = None
) -> Results:
    """Load what another profiler recorded in one launch, from its buffer.

    ``buffer`` is an array on the host, or the path of one that NumPy saved. ``format`` is ``flashinfer`` or
    ``triton-distributed``. ``names`` are its events' names in the order of their numbers, or one text with commas.
    Raises ``KprofError`` for anything else.
    """
    description = BufferDescription.of(format, names or ())
    if isinstance(buffer, str | Path):
        capture = open_capture(Path(buffer).absolute(), description=description)
    else:
        capture = read_buffer_array(buffer, description)
    return Results(decode_capture(capture, lambda message: None))


Verdict = Literal["slower", "faster", "no difference", "the clock", "cannot tell"]
"""Verdict on a kernel; *the clock* means that the GPU's clock explains the change."""


class Comparison:
    """Comparison of A and B, two results of the same kernels."""

    def __init__(self, compared: CaptureDiff, places: tuple[str, str]) -> None:
        """Hold a comparison of A and B, whose names are ``places``; ``diff`` makes one."""
        self._compared = compared
        self._places = places
        self._first = compared.kernels[0]  # a comparison has at least one

    @property
    def faster(self) -> bool:
        """True if B is certainly faster, by the kernel whose change weighs most in the program."""
        return self.verdict == "faster"

    @property
    def slower(self) -> bool:
        """True if B is certainly slower, by that kernel."""
        return self.verdict == "slower"

    @property
    def verdict(self) -> Verdict:
        """Verdict on that kernel."""
        return cast(Verdict, self._first.launch.verdict.value)

    @property
    def percent(self) -> tuple[float, float, float] | None:
        """Change of that kernel's time in per cent, and its 95 % interval: (-35.5, -38.1, -32.8).

        None if a side has too few launches to know it.
        """
        change = self._first.launch.change
        return None if change is None else (change.percent, change.low_percent, change.high_percent)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdict on each kernel that both sides have; of several variants or grids, on the one that weighs most."""
        found: dict[str, Verdict] = {}
        for kernel in self._compared.kernels:
            found.setdefault(kernel.b.kernel.name, cast(Verdict, kernel.launch.verdict.value))
        return found

    def report(self) -> str:
        """Return the output of ``kprof-inject diff``."""
        from kprof_inject.report.diff.terminal import diff_text

        return diff_text(self._compared)

    def html(self, path: str | Path) -> Path:
        """Write the page of ``kprof-inject diff --html``; return its path, or raise ``KprofError``."""
        from kprof_inject.report.diff.page import write_diff_page

        return _written(Path(path), lambda file: write_diff_page(file, self._compared, self._places))

    def to_json(self) -> dict[str, Any]:
        """Return the output of ``kprof-inject diff --json`` as JSON values."""
        from kprof_inject.report.diff.rows import diff_json

        return diff_json(self._compared)

    def __repr__(self) -> str:
        from kprof_inject.report.diff.wording import first_answer

        return f"<{type(self).__name__}: {'; '.join(first_answer(self._compared))}>"

    def _repr_html_(self) -> str:
        from kprof_inject.report.diff.terminal import print_diff_tables
        from kprof_inject.report.terminal.tables import html_of

        return html_of(lambda console: print_diff_tables(self._compared, console))


def diff(
    a: Results | str | Path, b: Results | str | Path, *, kernel: str = ALL, renamed: Mapping[str, str] | None = None
) -> Comparison:
    """Compare two results, or the places that ``load`` reads: A before a change, B after it.

    ``kernel`` is a glob of B's names. ``renamed`` maps the names of kernels in A to their names in B. A verdict needs
    at least five launches on each side. Raises ``KprofError`` if a side has no launch, or none of such a kernel, and if
    no kernel is on both sides.

        before = kprof_inject.load("kprof_out")
        assert not kprof_inject.diff(before, prof).slower
    """
    names = dict(renamed or {})
    sides = [side if isinstance(side, Results) else load(side) for side in (a, b)]
    timelines = [side.timelines for side in sides]
    for side, found in zip("AB", timelines, strict=True):
        if not found:
            raise KprofError(f"{side} has no launch", hint="capture again")
    if kernel != ALL:
        chosen = _kernels_of(_of_kernels(timelines[1], kernel, "B's"))
        timelines = [
            [one for one in found if names.get(one.launch.kernel.name, one.launch.kernel.name) in chosen]
            for found in timelines
        ]
    compared = diff_captures(*timelines, renamed=names)
    place_a, place_b = (name if isinstance(side, Results) else str(side) for name, side in (("A", a), ("B", b)))
    return Comparison(compared, (place_a, place_b))
