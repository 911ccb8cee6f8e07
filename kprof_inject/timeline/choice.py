"""Which part of a capture is wanted: kernels, launches, SMs, CTAs, warps and scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.reader import Launch
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.timeline.number_set import NumberSet
from kprof_inject.timeline.raw import recorded_warps

_MOST_NAMES = 12


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

        Raises ``KprofError`` if a part of the choice finds nothing in them, and says what there is."""
        if not launches:
            return ()
        for glob in self.kernels:
            _require_name("--kernel", "kernels", glob, fnmatchcase, [launch.kernel.name for launch in launches])
        left = [launch for launch in launches if self._keeps_kernel(launch)]
        _require_number("--launch", "launches", self.launches, left, _index)
        left = [launch for launch in left if self.launches is None or launch.index in self.launches]
        names = [scope.name for launch in left for scope in launch.kernel.scopes.scopes]
        for glob in self.scopes:
            _require_name("--scope", "scopes", glob, matches_scope, names)
        _require_number("--cta", "CTAs", self.ctas, left, _ctas)
        _require_number("--warp", "recorded warps", self.warps, left, _warps)
        wanted = tuple(launch for launch in left if self.keeps_launch(launch))
        if not wanted:
            raise KprofError(
                "each of these is in a launch, but no launch has them all",
                hint="give fewer of --cta, --warp and --scope at a time",
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
            raise KprofError(f"--sm {self.sms} finds nothing", hint=hint)
        if self.ctas is not None:
            there = _sms([ctas[self.ctas.among(ctas["cta"])] for ctas in ran])
            raise KprofError(
                f"--cta {self.ctas} finds nothing{f' with --sm {self.sms}' if self.sms else ''}",
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
    option: str, what: str, chosen: NumberSet | None, launches: Sequence[Launch], has: Callable[[Launch], NumberSet]
) -> None:
    """Raise if none of the numbers that the launches have is chosen, and say for each kernel which it has."""
    if chosen is None or any(chosen.meets(has(launch)) for launch in launches):
        return
    by_kernel: dict[str, list[NumberSet]] = {}
    for launch in launches:
        by_kernel.setdefault(launch.kernel.name, []).append(has(launch))
    known = [f"{NumberSet.union(sets)} of {kernel}" for kernel, sets in by_kernel.items()]
    raise KprofError(f"{option} {chosen} finds nothing", hint=f"there are {what} {_listed(known)}")


def _require_name(option: str, what: str, glob: str, matches: Callable[[str, str], bool], names: Sequence[str]) -> None:
    """Raise if no name matches, and say which would be near."""
    if any(matches(name, glob) for name in names):
        return
    known = list(dict.fromkeys(names))
    close = get_close_matches(glob, known, 3)
    there = f"there are {what} {_listed(known)}" if known else f"there are no {what}"
    hint = f"did you mean {' or '.join(close)}?" if close else there
    raise KprofError(f"{option} {glob} finds nothing", hint=hint)


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_NAMES} more" if len(words) > _MOST_NAMES else ""
    return ", ".join(words[:_MOST_NAMES]) + more
