"""Comparison of two results, for notebooks, test suites and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

from kprof_inject.analysis.comparison.verdicts import CaptureDiff, KernelDiff, diff_captures
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.quantities import listed
from kprof_inject.results import ALL, Results, load

Verdict = Literal["slower", "faster", "no difference", "the clock", "cannot tell"]
"""Verdict on a kernel; *the clock* means that the GPU's clock explains the change."""

_MAX_NAMES = 12


class Comparison:
    """Comparison of A and B, two results of the same kernels."""

    def __init__(self, compared: CaptureDiff, places: tuple[str, str]) -> None:
        """Hold a comparison of A and B, whose names are ``places``; ``diff`` makes one."""
        self._compared = compared
        self._places = places

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
        """Write the page of ``kprof-inject diff --html``, and return its path.

        Raises ``KprofError`` if the file cannot be written.
        """
        from kprof_inject.report.diff.page import write_diff_page

        try:
            write_diff_page(Path(path), self._compared, self._places)
        except OSError as error:
            raise KprofError(f"cannot write {path}: {error.strerror}", hint="name another file") from None
        return Path(path)

    def to_json(self) -> dict[str, Any]:
        """Return what ``kprof-inject diff --json`` prints, as JSON values."""
        from kprof_inject.report.diff.rows import diff_json

        return diff_json(self._compared)

    @property
    def _first(self) -> KernelDiff:
        return self._compared.kernels[0]  # a comparison has at least one

    def __repr__(self) -> str:
        """Return the answer in a sentence."""
        from kprof_inject.report.diff.wording import first_answer

        return f"<{type(self).__name__}: {'; '.join(first_answer(self._compared))}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the comparison in colours."""
        from kprof_inject.report.diff.terminal import diff_html

        return diff_html(self._compared)


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
        known = list(dict.fromkeys(one.launch.kernel.name for one in timelines[1]))
        chosen = {name for name in known if fnmatchcase(name, kernel)}
        if not chosen:
            hint = did_you_mean(kernel, known) + f"B's kernels are {listed(known, _MAX_NAMES)}"
            raise KprofError(f"no kernel matches {kernel!r}", hint=hint)
        timelines = [
            [one for one in found if names.get(one.launch.kernel.name, one.launch.kernel.name) in chosen]
            for found in timelines
        ]
    compared = diff_captures(*timelines, renamed=names)
    return Comparison(compared, (_place(a, "A"), _place(b, "B")))


def _place(side: Results | str | Path, otherwise: str) -> str:
    return otherwise if isinstance(side, Results) else str(side)
