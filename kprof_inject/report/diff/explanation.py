"""How much of a change each scope explains by itself."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.report.diff.matching import Match, ScopeIdentity

_NOWHERE = -1


def explained_shares(
    matches: Sequence[Match], b: Sequence[ScopeIdentity], grown_ns: Sequence[float | None]
) -> list[float | None]:
    """For each match, which part of the change of all outermost scopes is its own: what it grew by, ``grown_ns``,
    without what the matched scopes in it did. They add up to 1. None where a growth is not known, or nothing grew."""
    at = {match.b: number for number, match in enumerate(matches)}
    own = [0.0] * len(matches)
    whole = 0.0
    for number, match in enumerate(matches):
        grown = grown_ns[number]
        if grown is None:
            return [None] * len(matches)
        own[number] += grown
        around = _matched_around(match.b, b, at)
        if around == _NOWHERE:
            whole += grown
        else:
            own[at[around]] -= grown
    return [part / whole for part in own] if whole else [None] * len(matches)


def _matched_around(index: int, scopes: Sequence[ScopeIdentity], matched: dict[int, int]) -> int:
    """The innermost matched scope around one."""
    parent = scopes[index].parent
    while parent != _NOWHERE and parent not in matched:
        parent = scopes[parent].parent
    return parent
