"""Groups of asynchronous work that were in flight in a launch, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeInfo, ScopeKind
from kprof_inject.select.parts import COPIES
from kprof_inject.ttgir.dialect import traits_of

IN_FLIGHT_COLUMNS = np.dtype(
    [
        ("cta", "i4"),
        ("sm", "i4"),
        ("warp", "i2"),
        ("scope", "i2"),
        ("wait_scope", "i2"),
        ("record", "i4"),
        ("start_cycles", "i8"),
        ("end_cycles", "i8"),
        ("start_ns", "i8"),
        ("known_ns", "i8"),
        ("end_ns", "i8"),
        ("blocked_ns", "i8"),
        ("depth", "i4"),
        ("bytes", "i8"),
    ]
)
"""One group of asynchronous work that was issued and awaited.

``scope`` and ``wait_scope`` index the scope table; ``record`` is the first record of its scope, as in
``SCOPE_COLUMNS``. The group began at ``start_ns``. It was in flight until ``known_ns`` at least, and until ``end_ns``
at most; the two are equal where the wait blocked, for ``blocked_ns``. ``depth`` is how many groups of its kind were in
flight once it had begun, including itself. ``bytes`` are what this warp's part of it moves; for TMA copies, the
CTA's."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """The asynchronous work of a launch.

    ``works`` are the kinds of work that scopes issue. ``unpaired`` gives the reason for each operation whose work could
    not be paired with a wait.
    """

    groups: NDArray[np.void]
    works: Mapping[int, str]
    unpaired: Mapping[str, str]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work, in the order in which they are drawn."""
        return tuple(sorted(set(self.works.values())))


def starts_async(scope: ScopeInfo) -> bool:
    """Return whether a scope covers an operation that issues asynchronous work, or several of these in a row."""
    if scope.kind == ScopeKind.PART:
        return scope.label.partition("@")[0] == COPIES
    return scope.kind == ScopeKind.OPERATION and traits_of(scope.label or scope.name).starts_async
