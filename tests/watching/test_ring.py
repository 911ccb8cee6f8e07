"""The ring keeps captures from all times, the most from the latest."""

from __future__ import annotations

from kprof_inject.watching.ring import KeptCapture, captures_to_drop


def kept_after(count: int, most: int, needed: frozenset[str] = frozenset()) -> list[int]:
    """Make a capture each ten seconds, with room for ``most``; return the numbers of those that are left."""
    left: list[KeptCapture] = []
    for number in range(count):
        left.append(KeptCapture(str(number), 10.0 * number, 100))
        dropped = captures_to_drop(left, 100 * most, needed, 10.0 * number + 5)
        left = [capture for capture in left if capture.name not in dropped]
        assert len(left) <= max(most, len(needed) + 1)
    return [int(capture.name) for capture in left]


def test_they_reach_back_to_the_first_and_are_densest_at_the_end() -> None:
    left = kept_after(2000, 20)
    assert len(left) == 20
    assert (left[0], left[-1]) == (0, 1999)
    newest = [number for number in left if number > 1900]
    assert len(newest) >= 6
    assert len([number for number in left if number < 1000]) >= 2


def test_what_an_alarm_needs_stays() -> None:
    assert {3, 4, 5} <= set(kept_after(500, 8, frozenset({"3", "4", "5"})))


def test_the_latest_stays_even_if_it_is_too_large() -> None:
    captures = [KeptCapture("1", 1.0, 10), KeptCapture("2", 2.0, 1000)]
    assert captures_to_drop(captures, 100, (), 3.0) == ["1"]
    assert captures_to_drop(captures[1:], 100, (), 3.0) == []
