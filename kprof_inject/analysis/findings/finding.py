"""A finding, which is one cause that limits a launch."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kprof_inject.capture.encoding import json_values

MIN_SHARE = 0.10
"""Part of a launch's time from which most rules report a loss. Other causes, and noise, cost up to as much: with ten
waves, one CTA more than fits adds an eleventh; a grid of 128 CTAs leaves 3 % of 132 SMs idle; the SMs of a healthy
matmul of one wave finish up to 6 % apart (H200)."""

Figures = dict[str, float | int | str]


class Finding(Struct, frozen=True):
    """A cause that limits a launch."""

    rule: str
    """Name of the rule that found it."""
    scope: str | None
    """Name of the scope concerned, if any."""
    share: float
    """The part of the launch's time that it explains, 0 to 1: an upper bound of the gain from removing it."""
    text: str
    """One sentence with its figures."""
    advice: str
    """What to look at next."""
    figures: Figures
    """The numbers in ``text``."""
    index: int | None = None
    """Index of ``scope`` in the launch's table, as names need not be unique."""
    lines: tuple[int, ...] = ()
    """First lines, in the TTGIR, of the operations that it concerns; empty if it is about the whole launch."""
    doubt: str = ""
    """Which records are missing, so that the figures may be off; empty if none are."""
    likely: float | None = None
    """The gain to expect if ``share`` is a loose bound: findings are sorted by it. None if it equals ``share``,
    0 for a note on how the launch ran, which is no advice on the kernel."""

    @property
    def cause(self) -> tuple[str, int | None]:
        """The rule and the scope: what findings in launches of one variant have in common."""
        return self.rule, self.index

    @property
    def expected(self) -> float:
        """The gain to expect."""
        return self.share if self.likely is None else self.likely

    @property
    def sentence(self) -> str:
        """``text``, with the reason for doubt if there is one."""
        return f"{self.text} (doubtful: {self.doubt})" if self.doubt else self.text

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return json_values(self)
