"""The part of a capture that the user wants: kernels, launches, SMs, CTAs, warps and scopes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.model import Launch
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.quantities import listed
from kprof_inject.timeline.columns import Mask, Rows
from kprof_inject.timeline.records import recorded_warps

_RANGE = re.compile(r"\s*(?P<first>[0-9]{1,9})\s*(?P<to>-\s*(?P<last>[0-9]{1,9})?)?\s*")

_Range = tuple[int, int | None]  # first number of the range, and the first one after it; None if it has no end


class NumberSet(Struct, frozen=True):
    """Set of whole numbers from 0 on, as the user writes them: ``0,4-7,12-``.

    ``bounds`` ascend: a number is in the set if an odd number of them are no greater.
    """

    bounds: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> NumberSet:
        """Return the set of these numbers."""
        return cls._joined((number, number + 1) for number in numbers)

    @classmethod
    def union(cls, sets: Iterable[NumberSet]) -> NumberSet:
        """Return the set of the numbers that are in any of ``sets``."""
        return cls._joined(part for numbers in sets for part in numbers._ranges())

    @classmethod
    def parse(cls, text: str, option: str) -> NumberSet:
        """Parse numbers and ranges, separated by commas; raises a usage error that points into ``option``'s value."""
        ranges = []
        column = 1
        for part in text.split(","):
            ranges.append(_parse_range(part, Position(option, 1, column + len(part) - len(part.lstrip()), text)))
            column += len(part) + 1
        return cls._joined(ranges)

    @classmethod
    def _joined(cls, ranges: Iterable[_Range]) -> NumberSet:
        bounds: list[int] = []
        for first, stop in sorted(ranges, key=lambda ends: ends[0]):
            if len(bounds) % 2:
                break  # the last range has no end, and includes all that follow
            if not bounds or first > bounds[-1]:
                bounds += [first] if stop is None else [first, stop]
            elif stop is None:
                bounds.pop()
            else:
                bounds[-1] = max(bounds[-1], stop)
        return cls(tuple(bounds))

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.bounds, number) % 2 == 1

    def meets(self, other: NumberSet) -> bool:
        """Return whether any number is in both sets."""
        return any(first in other for first in self.bounds[::2]) or any(first in self for first in other.bounds[::2])

    def among(self, numbers: NDArray[np.signedinteger]) -> Mask:
        """Return which of these numbers are in the set."""
        found: Mask = np.searchsorted(np.array(self.bounds), numbers, side="right") % 2 == 1
        return found

    def __str__(self) -> str:
        texts = []
        for first, stop in self._ranges():
            last = "" if stop is None else str(stop - 1)
            texts.append(last if stop == first + 1 else f"{first}-{last}")
        return ",".join(texts)

    def _ranges(self) -> Iterator[_Range]:
        return zip_longest(self.bounds[::2], self.bounds[1::2])


def _parse_range(part: str, where: Position) -> _Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise KprofError(
            f"{part.strip()!r} is neither a number nor a range" if part.strip() else "a number is missing",
            where=where,
            hint="give numbers from 0 and ranges, separated by commas, such as 0,4-7,12-",
            exit_code=2,
        )
    first = int(found["first"])
    if found["to"] is None:
        return first, first + 1
    if found["last"] is None:
        return first, None
    last = int(found["last"])
    if last < first:
        raise KprofError(
            f"{part.strip()} is an empty range",
            where=where,
            hint=f"write the smaller one first: {last}-{first}",
            exit_code=2,
        )
    return first, last + 1


_MAX_NAMES = 12  # number of names that a hint lists


class Choice(Struct, frozen=True):
    """The wanted part of a capture; a field that is None or empty excludes nothing.

    ``launches`` are numbers as in ``Launch.index``. ``kernels`` and ``scopes`` are globs, of which one must match.
    """

    launches: NumberSet | None = None
    kernels: tuple[str, ...] = ()
    sms: NumberSet | None = None
    ctas: NumberSet | None = None
    warps: NumberSet | None = None
    scopes: tuple[str, ...] = ()

    def keep(self, block: Rows, table: ScopeTable) -> Mask:
        """Return which rows of a block (``SCOPE_COLUMNS``) are wanted; ``table`` is that of its launch."""
        kept = self.keep_warps(block)
        return kept & self._keeps_scopes(table)[block["scope"]] if self.scopes else kept

    def keep_warps(self, rows: Rows) -> Mask:
        """Return which rows are wanted of columns with ``cta``, ``sm`` and ``warp``, such as ``INCOMPLETE_COLUMNS``."""
        kept = self.keep_ctas(rows)
        return kept if self.warps is None else kept & self.warps.among(rows["warp"])

    def keep_ctas(self, rows: Rows) -> Mask:
        """Return which rows are wanted of columns with ``cta`` and ``sm``, such as ``CTA_COLUMNS``."""
        kept = np.ones(len(rows), dtype=bool)
        if self.sms is not None:
            kept &= self.sms.among(rows["sm"])
        if self.ctas is not None:
            kept &= self.ctas.among(rows["cta"])
        return kept

    def wanted(self, launches: Sequence[Launch]) -> tuple[Launch, ...]:
        """Return the ``launches`` to decode; raises ``KprofError`` if a part of the choice matches nothing in them."""
        if not launches:
            return ()
        for glob in self.kernels:
            _require_name("--kernel", "kernels", glob, fnmatchcase, [launch.kernel.name for launch in launches])
        left = [one for one in launches if any(fnmatchcase(one.kernel.name, glob) for glob in self.kernels or ("*",))]
        kept = {launch.process.recording.launches for launch in left if launch.process.recording}
        which = (
            "only the last launch was" if kept == {"last"} else f"those of --launches {', '.join(sorted(kept))} were"
        )
        why = f"; {which} kept: capture others with --launches" if kept else ""
        _require_number("--launch", "launches", self.launches, left, lambda launch: NumberSet.of([launch.index]), why)
        left = [launch for launch in left if self.launches is None or launch.index in self.launches]
        names = [scope.name for launch in left for scope in launch.kernel.scopes.scopes]
        for glob in self.scopes:
            _require_name("--scope", "scopes", glob, matches_scope, names)
        _require_number("--cta", "CTAs", self.ctas, left, _ctas)
        _require_number("--warp", "recorded warps", self.warps, left, _warps)
        wanted = tuple(
            launch
            for launch in left
            if (self.ctas is None or self.ctas.meets(_ctas(launch)))
            and (self.warps is None or self.warps.meets(_warps(launch)))
            and (not self.scopes or self._keeps_scopes(launch.kernel.scopes).any())
        )
        if not wanted:
            raise KprofError(
                "no launch has all of these CTAs, warps and scopes; each is in some launch",
                hint="combine fewer of --cta, --warp and --scope",
            )
        return wanted

    @property
    def names_ctas(self) -> bool:
        """True if the choice may exclude every CTA of a launch."""
        return self.sms is not None or self.ctas is not None

    def require_ctas(self, ran: Sequence[Rows], unrecorded: Sequence[Rows] = ()) -> None:
        """Raise ``KprofError`` if the choice excludes every CTA that ran and recorded; ``unrecorded`` ones only ran."""
        if not self.names_ctas or any(self.keep_ctas(ctas).any() for ctas in ran):
            return
        if any(self.keep_ctas(ctas).any() for ctas in unrecorded):
            raise KprofError(
                "only a sample of the CTAs recorded, and none of those chosen",
                hint="record again with --ctas all, or leave --cta and --sm out",
            )
        sms = _sms(ran)
        if self.sms is not None and not self.sms.meets(sms):
            hint = f"there are SMs {sms}" if sms.bounds else "no CTA ran"
            raise KprofError(f"--sm {self.sms} matches nothing", hint=hint)
        if self.ctas is not None:
            sms_of_ctas = _sms([ctas[self.ctas.among(ctas["cta"])] for ctas in ran])
            raise KprofError(
                f"--cta {self.ctas} matches nothing{f' with --sm {self.sms}' if self.sms else ''}",
                hint=f"these CTAs ran on SMs {sms_of_ctas}" if sms_of_ctas.bounds else "these CTAs never ran",
            )

    def _keeps_scopes(self, table: ScopeTable) -> Mask:
        return np.array(
            [any(matches_scope(scope.name, glob) for glob in self.scopes) for scope in table.scopes], dtype=bool
        )


EVERYTHING = Choice()


def matches_scope(name: str, glob: str) -> bool:
    """Return whether the glob, in which only ``*`` and ``?`` are wildcards, matches a scope's name (``loop[0]``)."""
    return name == glob or fnmatchcase(name, glob.replace("[", "[[]"))


def _ctas(launch: Launch) -> NumberSet:
    # Without a sample, the buffer has a row for each.
    rows = launch.buffer_bytes // max(launch.kernel.stride_bytes, 1)
    count = rows if launch.sample is None else launch.sample.ctas
    return NumberSet((0, count) if count else ())


def _warps(launch: Launch) -> NumberSet:
    return NumberSet.of(recorded_warps(launch))


def _sms(ctas: Sequence[Rows]) -> NumberSet:
    return NumberSet.union(NumberSet.of(np.unique(rows["sm"]).tolist()) for rows in ctas)


def _require_number(
    option: str,
    what: str,
    chosen: NumberSet | None,
    launches: Sequence[Launch],
    has: Callable[[Launch], NumberSet],
    why_no_others: str = "",
) -> None:
    if chosen is None or any(chosen.meets(has(launch)) for launch in launches):
        return
    by_kernel: dict[str, list[NumberSet]] = {}
    for launch in launches:
        by_kernel.setdefault(launch.kernel.name, []).append(has(launch))
    known = [f"{NumberSet.union(sets)} of {kernel}" for kernel, sets in by_kernel.items()]
    hint = f"there are {what} {listed(known, _MAX_NAMES)}{why_no_others}"
    raise KprofError(f"{option} {chosen} matches nothing", hint=hint)


def _require_name(option: str, what: str, glob: str, matches: Callable[[str, str], bool], names: Sequence[str]) -> None:
    if any(matches(name, glob) for name in names):
        return
    known = list(dict.fromkeys(names))
    existing = f"there are {what} {listed(known, _MAX_NAMES)}" if known else f"there are no {what}"
    raise KprofError(f"{option} {glob} matches nothing", hint=did_you_mean(glob, known).rstrip() or existing)
