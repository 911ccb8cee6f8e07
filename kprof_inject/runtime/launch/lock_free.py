"""Values that launches share between threads without a lock.

Nothing that a launch does may take a lock. A signal handler may launch in the middle of another launch, and would wait
for a lock that its own thread holds. Ctrl-C, or what a handler raises, may end a launch between any two bytecodes, and
a forked child lacks the threads of its parent: either leaves a lock held for good.

Instead, each step that changes something here is one call of a built-in type that runs no Python code: other threads
and handlers run before it or after it.
"""

from __future__ import annotations

import operator
import sys
from typing import Generic, TypeVar

T = TypeVar("T")

_MAX_COUNT = sys.maxsize  # more than any process counts: 292 years of one every nanosecond


class AtomicCounter:
    """Counter that loses no increment, where ``+= 1`` would: it reads, adds and writes in three steps."""

    def __init__(self) -> None:
        # An iterator over a range takes its next number in one step, and its length hint is how many are left.
        self._numbers = iter(range(_MAX_COUNT))

    def add(self) -> int:
        """Count one more, and return how many there were before it."""
        return next(self._numbers)

    @property
    def value(self) -> int:
        """How many were counted so far."""
        return _MAX_COUNT - operator.length_hint(self._numbers)


class AtomicCounts:
    """Counters by name."""

    def __init__(self) -> None:
        self._counters: dict[str, AtomicCounter] = {}

    def add(self, name: str) -> int:
        """Count one more, and return how many there were before it."""
        counter = self._counters.get(name)
        if counter is None:
            # If another thread has made one meanwhile, that one counts.
            counter = self._counters.setdefault(name, AtomicCounter())
        return counter.add()

    def add_many(self, name: str, number: int) -> None:
        """Count ``number`` more."""
        for _ in range(number):
            self.add(name)

    def counts(self) -> dict[str, int]:
        """Return how many were counted so far."""
        return {name: counter.value for name, counter in self._counters.copy().items()}


class SetOnce(Generic[T]):
    """Value that is set once: if several threads or signal handlers set it, the first wins."""

    def __init__(self) -> None:
        self._values: list[T] = []

    def set(self, value: T) -> T:
        """Set the value unless it is set, and return the one that counts."""
        self._values.append(value)  # one step; whatever is appended later comes after the first
        return self._values[0]

    def get(self) -> T | None:
        """Return the value, None before it is set."""
        return self._values[0] if self._values else None
