"""Stall reasons of a launch, of each scope, of lines of its TTGIR and source, for stacked bars.

Samples of a line are shares of all samples of the launch; those of a scope, of the scope's samples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kprof_inject.analysis.evidence.stalls import NOT_STALLED, REASONS, Share, Stalls
from kprof_inject.capture.source_text import SourceLine
from kprof_inject.errors import printable
from kprof_inject.report.html.page_schema import (
    AwaitedLine,
    LaunchStalls,
    ReasonShare,
    StalledLine,
    StalledScope,
    StallReason,
)

# Fewer samples are no reason to look at a line.
_MIN_LINE_SHARE = 0.005
# A smaller share would be rounded to 0.0 %.
_MIN_REASON_SHARE = 0.0005
_MAX_SCOPE_REASONS = 3
_MAX_AWAITED = 3


def launch_stalls(stalls: Stalls, shown_files: Iterable[str]) -> LaunchStalls:
    """Return the stall reasons of a launch and of its scopes; ``shown_files`` are the source files of the page."""
    names, files = _ordered(stalls.reasons), set(shown_files)
    shown = sum(line.samples for line in stalls.lines if line.source and line.source[0] in files)
    return LaunchStalls(
        samples=stalls.samples,
        reasons=[StallReason(printable(name), NOT_STALLED.get(name) or REASONS.get(name, "")) for name in names],
        shares=_shares(stalls.reasons, stalls.samples, names),
        scopes=[
            _scope(stalls, index, counts, names)
            for index, counts in sorted(stalls.scopes.items())
            if any(counts.values())
        ],
        elsewhere=Share.of(stalls.samples - shown, stalls.samples).value,
    )


def stalled_ttgir_lines(stalls: Stalls) -> list[StalledLine]:
    """Return the lines of the TTGIR with a notable share of the samples, in the order of the text."""
    lines = _StalledLines(stalls)
    return [
        lines.made(line.line, line.reasons, lines.awaited(line.reasons, line.awaited))
        for line in sorted(stalls.lines, key=lambda line: line.line)
        if lines.is_notable(line.samples)
    ]


def stalled_source_lines(stalls: Stalls) -> dict[str, list[StalledLine]]:
    """Return the lines of each source file with a notable share of the samples, in the order of the file."""
    reasons: defaultdict[SourceLine, Counter[str]] = defaultdict(Counter)
    awaited: defaultdict[SourceLine, defaultdict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for line in stalls.lines:
        if line.source is not None:
            reasons[line.source].update(line.reasons)
            for reason, found in line.awaited.items():
                awaited[line.source][reason].update(found)
    lines = _StalledLines(stalls)
    files: defaultdict[str, list[StalledLine]] = defaultdict(list)
    for source, counts in sorted(reasons.items()):
        if lines.is_notable(counts.total()):
            path, number = source
            by_source = {reason: lines.merged_by_source(found) for reason, found in awaited[source].items()}
            files[path].append(lines.made(number, counts, lines.awaited(counts, by_source)))
    return dict(files)


def _ordered(reasons: Mapping[str, int]) -> list[str]:
    """Return the names of all reasons in the order of the bars: what warps wait for longest comes first."""
    return sorted(reasons, key=lambda name: (name in NOT_STALLED, -reasons[name]))


def _shares(counts: Mapping[str, int], whole: int, names: Iterable[str]) -> list[ReasonShare]:
    shares = ((name, Share.of(counts.get(name, 0), whole)) for name in names)
    return [_reason_share(name, share) for name, share in shares if share.value >= _MIN_REASON_SHARE]


def _reason_share(name: str, share: Share) -> ReasonShare:
    return ReasonShare(printable(name), share.value, share.error)


def _scope(stalls: Stalls, index: int, counts: Mapping[str, int], names: Iterable[str]) -> StalledScope:
    whole = sum(counts.values())
    return StalledScope(
        scope=index,
        share=Share.of(whole, stalls.samples).value,
        shares=_shares(counts, whole, names),
        longest=[_reason_share(name, share) for name, share in stalls.waiting_in(index)[:_MAX_SCOPE_REASONS]],
    )


class _StalledLines:
    """Makes the records of lines from samples."""

    def __init__(self, stalls: Stalls) -> None:
        self._stalls = stalls
        self._names = _ordered(stalls.reasons)
        self._sources = {line.line: line.source for line in stalls.lines}

    def is_notable(self, samples: int) -> bool:
        return samples > 0 and samples >= _MIN_LINE_SHARE * self._stalls.samples

    def made(self, number: int, reasons: Mapping[str, int], awaited: Iterable[AwaitedLine]) -> StalledLine:
        whole = self._stalls.samples
        share = Share.of(sum(reasons.values()), whole)
        return StalledLine(number, share.value, share.error, _shares(reasons, whole, self._names), list(awaited))

    def merged_by_source(self, counts: Mapping[int, int]) -> dict[int, int]:
        """Return the samples by one line of the TTGIR for each line of the source: that with most samples."""
        merged: dict[SourceLine | int, tuple[int, int]] = {}
        for line, count in sorted(counts.items(), key=lambda entry: -entry[1]):
            first, total = merged.get(self._sources.get(line) or line, (line, 0))
            merged[self._sources.get(line) or line] = first, total + count
        return dict(merged.values())

    def awaited(self, reasons: Mapping[str, int], by_reason: Mapping[str, Mapping[int, int]]) -> Iterator[AwaitedLine]:
        """Yield the lines whose results most samples wait for, by reason."""
        for reason, counts in by_reason.items():
            for line, count in Counter(counts).most_common(_MAX_AWAITED):
                # One sample may count for several results of a line.
                share = Share.of(min(count, reasons.get(reason, 0)), self._stalls.samples).value
                if line and share >= _MIN_REASON_SHARE:
                    source = self._sources.get(line)
                    shown = (printable(source[0]), source[1]) if source else None
                    operation = printable(self._stalls.operations.get(line, ""))
                    yield AwaitedLine(printable(reason), line, shown, operation, share)
