"""Say why a kernel became slower: a comparison of captures from before and after, in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.encoding import indented
from kprof_inject.files import write_bytes, write_text
from kprof_inject.quantities import listed
from kprof_inject.report.diff.kernel_diff import CaptureDiff, diff_captures
from kprof_inject.report.diff.structure import structure_of
from kprof_inject.report.diff.table import diff_text
from kprof_inject.report.diff.wording import first_sentence
from kprof_inject.report.explanation import explanation
from kprof_inject.report.explanation_schema import DEFAULT_BUDGET, explanation_text
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.watching.history import HistoryRow
from kprof_inject.watching.slowdowns import Slowdown

ALARM_FILE = "alarm.json"
EXPLANATION_FILE = "explanation.json"
COMPARISON_FILE = "comparison.txt"
_MAX_CHANGES = 3


class Evidence(Struct, frozen=True, eq=False):
    """Launches of a kernel from before it became slower and after, and their comparison; None if a side has none."""

    before: tuple[Timeline, ...]
    after: tuple[Timeline, ...]
    diff: CaptureDiff | None

    @classmethod
    def of(cls, before: Sequence[Timeline], after: Sequence[Timeline]) -> Evidence:
        """Compare the launches."""
        return cls(tuple(before), tuple(after), diff_captures(before, after) if before and after else None)


class Alarm(Struct, frozen=True, kw_only=True):
    """A kernel became slower than its own past.

    ``why`` is the answer of ``diff``; empty if no capture from before is left. ``before`` and ``after`` are the names
    of the captures that it compares.
    """

    time_ns: int
    host: str
    rank: int
    kernel: str
    variant: str
    grid: str
    device: str
    usual_ns: float
    recent_ns: float
    since_ns: int
    why: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @classmethod
    def of(cls, row: HistoryRow, slowdown: Slowdown, evidence: Evidence) -> Alarm:
        """Return the alarm of a kernel whose last launch has this ``row``."""
        return cls(
            time_ns=row.time_ns,
            host=row.host,
            rank=row.rank,
            kernel=row.kernel,
            variant=row.variant,
            grid=row.grid,
            device=row.device,
            usual_ns=slowdown.usual_ns,
            recent_ns=slowdown.recent_ns,
            since_ns=slowdown.since_ns,
            why=_why(evidence.diff) if evidence.diff is not None else "",
            before=_captures(evidence.before),
            after=_captures(evidence.after),
        )

    def save(self, folder: Path, evidence: Evidence) -> None:
        """Write the alarm, the comparison, and an explanation of the last launch into a new ``folder``."""
        if evidence.diff is not None:
            write_text(folder / COMPARISON_FILE, diff_text(evidence.diff))
        if evidence.after:
            found = explanation([LaunchAnalysis.of(evidence.after[-1])])
            write_text(folder / EXPLANATION_FILE, f"{explanation_text(found, DEFAULT_BUDGET)}\n")
        write_bytes(folder / ALARM_FILE, indented(self))


def _why(diff: CaptureDiff) -> str:
    """Return the answer of ``diff``, and what else changed: the arguments of the launches, as the code is the same."""
    structures = filter(None, map(structure_of, diff.kernels))
    changes = [change.text for structure in structures for part in structure.parts for change in part.changes]
    changed = f"; changed: {listed(list(dict.fromkeys(changes)), _MAX_CHANGES)}" if changes else ""
    return first_sentence(diff) + changed


def _captures(timelines: Sequence[Timeline]) -> tuple[str, ...]:
    folders = (timeline.launch.capture_folder for timeline in timelines)
    return tuple(dict.fromkeys(folder.name for folder in folders if folder is not None))
