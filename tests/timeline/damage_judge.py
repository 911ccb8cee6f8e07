"""What can be said of a launch whose counts and entries were damaged.

A word that became another valid one cannot be told from a sound one:

- a clock value that is the record's no more, but may be another time of the CTA (any, if no timer was read);
- an id or an end flag that makes an entry another record, if it is not the only damage to its warp; or if the warp could
  have made that record there: the ring's oldest may be the start of any scope around it, as the ring may have lost that,
  and of two scopes that cross either may.

Nor can it be told what is sound where half of a CTA or more is not, by count of the records that could be some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from buffers import Entry
from known_launches import KnownLaunch, scope_table
from numpy.typing import NDArray

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Judge:
    """Of the ``words`` that a launch wrote, those behind the headers were ``damaged``."""

    launch: KnownLaunch
    words: Words
    damaged: Words

    def is_untouched(self, cta: int, warp: int) -> bool:
        return not self._has_new_count(cta, warp) and not self._changes(cta, warp)

    def is_clear(self, cta: int, warp: int) -> bool:
        """Whether the damage to a warp does not look like something else that it could have done."""
        changes = self._changes(cta, warp)
        possible = [(old, new) for old, new in changes if new.scope_id < len(self._parents)]
        if any(old.cycles != new.cycles and self._could_be(cta, new.cycles) for old, new in possible):
            return False
        others = [(old, new) for old, new in possible if old.cycles == new.cycles]
        is_alone = len(changes) == 1 and not self._has_new_count(cta, warp)
        return not others or (is_alone and not self._could_be_made(cta, warp, *others[0]))

    def is_mostly_sound(self, cta: int) -> bool:
        """Whether most of a CTA's records, and most ends of its SM's rings, are as they were."""
        mine, of_sm = self.launch.ctas[cta], 0
        assert mine is not None
        wrong = sum(
            len(self._changes(cta, warp)) + self.launch.recording.slots * self._has_new_count(cta, warp)
            for warp in self.launch.recorded
        )
        right = sum(
            min(self._count(words, cta, warp) // 2, self.launch.recording.slots) if not self._has_new_count(cta, warp) else 0
            for warp in self.launch.recorded
            for words in [self.words]
        )
        return right > 2 * wrong

    def _has_new_count(self, cta: int, warp: int) -> bool:
        return self._count(self.words, cta, warp) != self._count(self.damaged, cta, warp)

    def _count(self, words: Words, cta: int, warp: int) -> int:
        return int(words[cta, self.launch.counts_at + warp])
