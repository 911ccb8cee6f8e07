"""Shares, drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bars:
    """What bars of ``width`` cells are drawn with: ``inner`` for what a scope takes itself, ``outer`` for those in
    it."""

    inner: str
    outer: str
    width: int = 16

    @property
    def title(self) -> str:
        return f"{self.inner} self {self.outer} in it"

    def drawn(self, share: float, self_share: float) -> str:
        """Of a whole from 0 to 1. What is not nothing has a cell."""
        whole = min(round(share * self.width), self.width)
        if share > 0:
            whole = max(whole, 1)
        own = min(round(self_share * self.width), whole)
        return self.inner * own + self.outer * (whole - own)


BLOCKS = Bars("█", "░")
PLAIN = Bars("#", ".")
"""For terminals whose encoding has no blocks."""
