"""What ``doctor`` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """``missing`` is what ``run`` on this machine, or decoding, cannot do without."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about one thing, and what to do about it if there is something to do."""

    what: str
    status: Status
    fact: str
    advice: str = ""
