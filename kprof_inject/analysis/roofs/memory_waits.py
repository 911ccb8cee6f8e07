"""Launches that wait for other CTAs, GPUs or the host for much of their time."""

from __future__ import annotations

from kprof_inject.analysis.roofs.limits import LIMITING, Limit
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent

MEMORY_WAITS = "waits for memory"
# The rest of the time is then too short for a unit to be the limit.
MIN_SHARE = 1 - LIMITING


def memory_wait_limit(summary: LaunchSummary) -> Limit | None:
    """Return waits until memory changes as the limit; None if they take less than 40 % of the warps' time."""
    spins = [scope for scope in summary.scopes if scope.kind == ScopeKind.SPIN and scope.share]
    share = sum(scope.share or 0.0 for scope in spins)
    if share < MIN_SHARE:
        return None
    longest = max(spins, key=lambda scope: scope.share or 0.0)
    names = longest.distinct_name if len(spins) == 1 else f"{longest.distinct_name} and others"
    text = f"waits for memory to change: {percent(share)} of the warps' time is in {names}"
    return Limit(MEMORY_WAITS, (), text, {})
