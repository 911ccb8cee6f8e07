"""Which part of a capture is wanted: kernels, launches, SMs, CTAs, warps and scopes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.model import Launch
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.quantities import listed
from kprof_inject.timeline.records import recorded_warps

_RANGE = re.compile(r"\s*(?P<first>[0-9]{1,9})\s*(?P<to>-\s*(?P<last>[0-9]{1,9})?)?\s*")

_Range = tuple[int, int | None]
"""The first number, and the first behind the range; None if it has no end."""


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Whole numbers from 0 on, as the user writes them: ``0,4-7,12-``. ``bounds`` ascend: a number is in the set if an
    odd number of them are no greater."""

    bounds: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> NumberSet:
        return cls._joined((number, number + 1) for number in numbers)

    @classmethod
    def below(cls, count: int) -> NumberSet:
        """0 to ``count`` - 1."""
        return cls((0, count) if count else ())

    @classmethod
    def union(cls, sets: Iterable[NumberSet]) -> NumberSet:
        return cls._joined(part for numbers in sets for part in numbers._ranges())

    @classmethod
    def parse(cls, text: str, option: str) -> NumberSet:
        """Numbers and ranges with commas between; a range has both its ends in it, or no last one. Raises a usage
        error that points into what stands after ``option``."""
        ranges = []
        column = 1
        for part in text.split(","):
            ranges.append(_parse_range(part, Position(option, 1, column + _indent(part), text)))
            column += len(part) + 1
        return cls._joined(ranges)

    @classmethod
    def _joined(cls, ranges: Iterable[_Range]) -> NumberSet:
        bounds: list[int] = []
        for first, behind in sorted(ranges, key=lambda ends: ends[0]):
            if len(bounds) % 2:
                break  # the last has no end, and holds all that follow
            if not bounds or first > bounds[-1]:
                bounds += [first] if behind is None else [first, behind]
            elif behind is None:
                bounds.pop()
            else:
                bounds[-1] = max(bounds[-1], behind)
        return cls(tuple(bounds))

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.bounds, number) % 2 == 1

    def meets(self, other: NumberSet) -> bool:
        """Whether a number is in both."""
        return any(first in other for first in self.bounds[::2]) or any(first in self for first in other.bounds[::2])

    def among(self, numbers: NDArray[np.signedinteger]) -> NDArray[np.bool_]:
        """Which of these are in the set."""
        found: NDArray[np.bool_] = np.searchsorted(np.array(self.bounds), numbers, side="right") % 2 == 1
        return found

    def __str__(self) -> str:
        """As it can be parsed."""
        return ",".join(_range_text(first, behind) for first, behind in self._ranges())

    def _ranges(self) -> Iterator[_Range]:
        return zip_longest(self.bounds[::2], self.bounds[1::2])


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _parse_range(part: str, where: Position) -> _Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise KprofError(
            f"{part.strip()!r} is neither a number nor a range" if part.strip() else "a number is missing",
            where=where,
            hint="numbers from 0 and ranges, separated by commas, such as 0,4-7,12-",
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
            f"no number is in {part.strip()}",
            where=where,
            hint=f"write the smaller one first: {last}-{first}",
            exit_code=2,
        )
    return first, last + 1


def _range_text(first: int, behind: int | None) -> str:
    if behind is None:
        return f"{first}-"
    return str(first) if behind == first + 1 else f"{first}-{behind - 1}"


_MAX_NAMES = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """What is wanted of a capture; what is None or empty narrows nothing.

    ``launches`` are numbers as ``Launch.index`` has them. ``kernels`` and ``scopes`` are globs, of which one must
    match. A scope's name may have brackets (``loop[0]``): in its globs only ``*`` and ``?`` stand for something else.
    """

    launches: NumberSet | None = None
    kernels: tuple[str, ...] = ()
    sms: NumberSet | None = None
    ctas: NumberSet | None = None
    warps: NumberSet | None = None
    scopes: tuple[str, ...] = ()

    def keeps_launch(self, launch: Launch) -> bool:
        """Whether something of the launch is wanted, as far as its metadata tell: it need not be decoded."""
        return (
            self._keeps_kernel(launch)
            and (self.launches is None or launch.index in self.launches)
            and (self.ctas is None or self.ctas.meets(_ctas(launch)))
            and (self.warps is None or self.warps.meets(_warps(launch)))
            and (not self.scopes or bool(self._keeps_scopes(launch.kernel.scopes).any()))
        )

    def keep(self, block: NDArray[np.void], table: ScopeTable) -> NDArray[np.bool_]:
        """Which rows of a block (``SCOPE_COLUMNS``) are wanted; ``table`` is that of its launch."""
        kept = self.keep_warps(block)
        return kept & self._keeps_scopes(table)[block["scope"]] if self.scopes else kept

    def keep_warps(self, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which rows are wanted of columns with ``cta``, ``sm`` and ``warp``, such as ``INCOMPLETE_COLUMNS``."""
        kept = self.keep_ctas(rows)
        return kept if self.warps is None else kept & self.warps.among(rows["warp"])

    def keep_ctas(self, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which rows are wanted of columns with ``cta`` and ``sm``, such as ``CTA_COLUMNS``."""
        kept = np.ones(len(rows), dtype=bool)
        if self.sms is not None:
            kept &= self.sms.among(rows["sm"])
        if self.ctas is not None:
            kept &= self.ctas.among(rows["cta"])
        return kept

    def wanted(self, launches: Sequence[Launch]) -> tuple[Launch, ...]:
        """Those of the ``launches`` that are to be decoded.

        Raises ``KprofError`` if a part of the choice matches nothing in them, and says what there is."""
        if not launches:
            return ()
        for glob in self.kernels:
            _require_name("--kernel", "kernels", glob, fnmatchcase, [launch.kernel.name for launch in launches])
        left = [launch for launch in launches if self._keeps_kernel(launch)]
        _require_number("--launch", "launches", self.launches, left, _index, _how_kept)
        left = [launch for launch in left if self.launches is None or launch.index in self.launches]
        names = [scope.name for launch in left for scope in launch.kernel.scopes.scopes]
        for glob in self.scopes:
            _require_name("--scope", "scopes", glob, matches_scope, names)
        _require_number("--cta", "CTAs", self.ctas, left, _ctas)
        _require_number("--warp", "recorded warps", self.warps, left, _warps)
        wanted = tuple(launch for launch in left if self.keeps_launch(launch))
        if not wanted:
            raise KprofError(
                "some launch has each of these, but no launch has them all",
                hint="combine fewer of --cta, --warp and --scope",
            )
        return wanted

    @property
    def names_ctas(self) -> bool:
        """Whether it narrows which CTAs are wanted, so that a launch may be left with none."""
        return self.sms is not None or self.ctas is not None

    def require_ctas(self, ran: Sequence[NDArray[np.void]]) -> None:
        """Raise ``KprofError`` if CTAs are chosen, and none of those that ran (``CTA_COLUMNS`` of each launch) is
        wanted, and say what there is: only a launch that is decoded tells which SM a CTA ran on."""
        if not self.names_ctas or any(self.keep_ctas(ctas).any() for ctas in ran):
            return
        sms = _sms(ran)
        if self.sms is not None and not self.sms.meets(sms):
            hint = f"there are SMs {sms}" if sms.bounds else "no CTA ran"
            raise KprofError(f"--sm {self.sms} matches nothing", hint=hint)
        if self.ctas is not None:
            there = _sms([ctas[self.ctas.among(ctas["cta"])] for ctas in ran])
            raise KprofError(
                f"--cta {self.ctas} matches nothing{f' with --sm {self.sms}' if self.sms else ''}",
                hint=f"these CTAs ran on SMs {there}" if there.bounds else "these CTAs never ran",
            )

    def _keeps_kernel(self, launch: Launch) -> bool:
        return not self.kernels or any(fnmatchcase(launch.kernel.name, glob) for glob in self.kernels)

    def _keeps_scopes(self, table: ScopeTable) -> NDArray[np.bool_]:
        """By index in the table."""
        return np.array(
            [any(matches_scope(scope.name, glob) for glob in self.scopes) for scope in table.scopes], dtype=bool
        )


EVERYTHING = Choice()


def matches_scope(name: str, glob: str) -> bool:
    """Names may have brackets (``loop[0]``): in their globs only ``*`` and ``?`` stand for something else."""
    return name == glob or fnmatchcase(name, glob.replace("[", "[[]"))


def _index(launch: Launch) -> NumberSet:
    return NumberSet.of([launch.index])


def _ctas(launch: Launch) -> NumberSet:
    """The numbers of a launch's CTAs, those that never ran too: the buffer has a row for each."""
    return NumberSet.below(launch.buffer_bytes // max(launch.kernel.stride_bytes, 1))


def _warps(launch: Launch) -> NumberSet:
    return NumberSet.of(recorded_warps(launch))


def _sms(ctas: Sequence[NDArray[np.void]]) -> NumberSet:
    return NumberSet.union(NumberSet.of(np.unique(rows["sm"]).tolist()) for rows in ctas)


def _require_number(
    option: str,
    what: str,
    chosen: NumberSet | None,
    launches: Sequence[Launch],
    has: Callable[[Launch], NumberSet],
    why: Callable[[Sequence[Launch]], str] = lambda _: "",
) -> None:
    """Raise if none of the numbers that the launches have is chosen, and say for each kernel which it has, and ``why``
    no others."""
    if chosen is None or any(chosen.meets(has(launch)) for launch in launches):
        return
    by_kernel: dict[str, list[NumberSet]] = {}
    for launch in launches:
        by_kernel.setdefault(launch.kernel.name, []).append(has(launch))
    known = [f"{NumberSet.union(sets)} of {kernel}" for kernel, sets in by_kernel.items()]
    hint = f"there are {what} {listed(known, _MAX_NAMES)}{why(launches)}"
    raise KprofError(f"{option} {chosen} matches nothing", hint=hint)


def _how_kept(launches: Sequence[Launch]) -> str:
    """Why others are not there, where the capture tells."""
    kept = {launch.process.launches for launch in launches if launch.process and launch.process.launches}
    if not kept:
        return ""
    which = "only the last launch was" if kept == {"last"} else f"those of --launches {', '.join(sorted(kept))} were"
    return f"; {which} kept: capture others with --launches"


def _require_name(option: str, what: str, glob: str, matches: Callable[[str, str], bool], names: Sequence[str]) -> None:
    """Raise if no name matches, and say which would be near."""
    if any(matches(name, glob) for name in names):
        return
    known = list(dict.fromkeys(names))
    there = f"there are {what} {listed(known, _MAX_NAMES)}" if known else f"there are no {what}"
    raise KprofError(f"{option} {glob} matches nothing", hint=did_you_mean(glob, known).rstrip() or there)
