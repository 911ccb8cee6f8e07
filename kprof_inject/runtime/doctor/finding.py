"""What ``doctor`` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Without what is ``missing``, and beside a ``problem``, ``run`` or decoding do not work here."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    PROBLEM = "problem"

    @property
    def is_fatal(self) -> bool:
        return self in (Status.MISSING, Status.PROBLEM)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about one thing, and what to do about it if there is something to do."""

    what: str
    status: Status
    fact: str
    advice: str = ""
