"""Analyses of launches with some parts replaced, for tests of what is printed of them."""

from __future__ import annotations

import copy
from typing import Any

from msgspec.structs import replace

from kprof_inject.analysis.launch import LaunchAnalysis

_PARTS = (
    "timeline",
    "summary",
    "verdict",
    "executed",
    "speed_of_light",
    "slopes",
    "edits",
    "judgements",
    "limit",
    "in_flight",
    "flights",
)


def altered(analysis: LaunchAnalysis, **parts: Any) -> LaunchAnalysis:
    """Return a copy with these parts. All others are what they are in ``analysis``."""
    for name in _PARTS:
        getattr(analysis, name)
    made = copy.copy(analysis)
    made.__dict__.update(parts)
    made.launch = made.timeline.launch
    made.headers = replace(made.headers, duration_ns=made.summary.duration_ns)
    return made
