"""Bars beside shares, in letters that the terminal has."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

_WIDTH, _NARROW_WIDTH = 16, 8
# Of a share that is computed from another by a ratio of 1.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares, drawn."""

    inner: str
    """Stands for what a scope takes itself."""
    outer: str
    """Stands for the scopes in it."""
    width: int = _WIDTH

    @property
    def title(self) -> str:
        """What is what, as far as there is room to say it."""
        whole = f"{self.inner} self {self.outer} in it"
        return whole if len(whole) <= self.width else f"{self.inner} self"

    def narrow(self) -> Bars:
        return Bars(self.inner, self.outer, _NARROW_WIDTH)

    def drawn(self, share: float, self_share: float) -> str:
        """Draw shares of a whole, from 0 to 1. A share above 0 has a cell; only a scope with others in it has an outer
        one."""
        whole = min(round(share * self.width), self.width)
        if share > 0:
            whole = max(whole, 1)
        has_others = share - self_share > _ROUNDING
        own = min(round(self_share * self.width), whole) if has_others else whole
        return self.inner * own + self.outer * (whole - own)


BLOCKS = Bars("█", "░")
PLAIN = Bars("#", ".")
"""For terminals whose encoding has no blocks."""


def bars_for(console: Console) -> Bars:
    return PLAIN if console.options.ascii_only else BLOCKS
