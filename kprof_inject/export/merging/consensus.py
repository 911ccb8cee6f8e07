"""By how much one clock is ahead of another, when each of many pairs says that it lies in an interval.

A pair is an option: of those of one item, one at most is true. The true shift is where the most items agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """If ``item`` is paired with ``choice``, the shift is from ``least_ns`` to ``most_ns``. There is none if that is
    the greater one; by how much is how far the pair is from fitting."""

    item: int
    choice: int
    least_ns: int
    most_ns: int

    def outside_ns(self, shift_ns: int) -> int:
        """How much further the interval has to reach for this shift to lie in it."""
        return max(self.least_ns - shift_ns, shift_ns - self.most_ns, 0)

    def fits(self, shift_ns: int, slack_ns: int) -> bool:
        return self.outside_ns(shift_ns) <= slack_ns


@dataclass(frozen=True, slots=True)
class Agreement:
    """From ``least_ns`` to ``most_ns`` the same ``items`` agree, and no more on either side."""

    items: int
    least_ns: int
    most_ns: int

    @property
    def shift_ns(self) -> int:
        return (self.least_ns + self.most_ns) // 2


def agreements(options: Sequence[Option], slack_ns: int) -> list[Agreement]:
    """Where more items agree than to either side, if each interval reaches ``slack_ns`` further at both ends: those on
    which most agree first, then by shift."""
    found = _peaks(options, slack_ns)
    return sorted(found, key=lambda agreement: (-agreement.items, agreement.least_ns))


def _peaks(options: Sequence[Option], slack_ns: int) -> Iterator[Agreement]:
    edges: list[tuple[int, int, int]] = []
    for option in options:
        least_ns, most_ns = option.least_ns - slack_ns, option.most_ns + slack_ns
        if least_ns <= most_ns:
            # At equal times what begins comes first: an interval holds its ends.
            edges += [(least_ns, 0, option.item), (most_ns, 1, option.item)]
    edges.sort()
    open_options: Counter[int] = Counter()
    rose_at_ns: int | None = None
    for at_ns, is_end, item in edges:
        if is_end:
            if rose_at_ns is not None:
                yield Agreement(len(open_options), rose_at_ns, at_ns)
                rose_at_ns = None
            open_options[item] -= 1
            if not open_options[item]:
                del open_options[item]
        else:
            if item not in open_options:
                rose_at_ns = at_ns
            open_options[item] += 1
