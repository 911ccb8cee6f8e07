"""What a rule says of a launch: one thing that limits it, with the figures that say so; or why it could not judge."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """``rule`` is the name of the rule that found it, ``scope`` the scope of the table that it is about, if it is about
    one. It explains ``share`` of the launch's time, 0 to 1: what could at most be won by its removal.

    ``text`` is one sentence with its figures, which ``figures`` has as numbers, and ``advice`` what to look at next."""

    rule: str
    scope: str | None
    share: float
    text: str
    advice: str
    figures: dict[str, float | int | str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """``reason`` is what a rule lacks to judge a launch. ``remedy`` says what to do so that it has it; empty if nothing
    helps."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason
