"""Judge whether a variant of a kernel leaves the same results in memory as the unchanged kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

OTHER_RESULTS = "its results differ from those of the unchanged kernel"

Digests = tuple[int, ...] | None


class Results(Protocol):
    """Judge of the results of variants, which are in memory when it is called."""

    def note(self, digest: Digests) -> None:
        """Note what the unchanged kernel has left in memory. It is called after each of its first launches."""

    def refusal_of(self, place: int, digest: Digests) -> str:
        """Return why the results of a variant are refused; empty if they are accepted."""


@dataclass(slots=True)
class SameResults:
    """Accept the same bytes alone; everything if the unchanged kernel's results differ from launch to launch."""

    _noted: list[Digests] = field(default_factory=list)

    def note(self, digest: Digests) -> None:
        """Note a digest."""
        self._noted.append(digest)

    def refusal_of(self, place: int, digest: Digests) -> str:
        """Compare the digests."""
        first = self._noted[0]
        is_repeatable = first is not None and len(set(self._noted)) == 1
        return OTHER_RESULTS if is_repeatable and digest != first else ""
