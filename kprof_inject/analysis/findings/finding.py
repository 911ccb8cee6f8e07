"""What a rule says of a launch: one thing that limits it, with the figures that say so."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

MIN_SHARE = 0.10
"""Part of a launch's time from which most rules report a loss. Other causes, and noise, cost up to as much: with ten
waves, one CTA more than fits makes an eleventh; of 132 SMs, a grid of 128 CTAs leaves 3 % idle; the SMs of a healthy
matmul of one wave end as far apart as 6 % of it (H200)."""

Figures = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    """The name of the rule that found it."""
    scope: str | None
    """The name of the scope that it is about, if it is about one."""
    share: float
    """The part of the launch's time that it explains, 0 to 1: what could at most be won by its removal."""
    text: str
    """One sentence with its figures."""
    advice: str
    """What to look at next."""
    figures: Figures
    """Those of the text, as numbers."""
    index: int | None = field(default=None, kw_only=True)
    """That scope's in the launch's table: others may have its name."""
    doubt: str = field(default="", kw_only=True)
    """What is missing of the records that it rests on, so that it may be off; empty if nothing is."""

    @property
    def sentence(self) -> str:
        """The text, and what makes it doubtful."""
        return f"{self.text} (doubtful: {self.doubt})" if self.doubt else self.text

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
