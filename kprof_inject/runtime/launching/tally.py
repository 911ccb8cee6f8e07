"""Counts by name what any thread and any signal handler does, where ``+= 1`` would lose some."""

from __future__ import annotations

from itertools import count


class Tally:
    """Takes no lock: an exception in the midst of counting, or a fork, leaves nothing held."""

    def __init__(self) -> None:
        self._counters: dict[str, count[int]] = {}

    def add(self, name: str) -> int:
        """Count one more; returns how many there were before it."""
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters.setdefault(name, count())
        return next(counter)

    def add_many(self, name: str, number: int) -> None:
        for _ in range(number):
            self.add(name)

    def counts(self) -> dict[str, int]:
        """How many there are so far."""
        # A counter tells its next number, and does not take it, by its text alone: ``count(3)``.
        return {name: int(repr(counter)[len("count(") : -1]) for name, counter in self._counters.copy().items()}
