"""Analyses of launches with some parts replaced, for tests of what is printed of them."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

from kprof_inject.analysis.launch import LaunchAnalysis

_PARTS = ("timeline", "summary", "verdict", "limit", "in_flight", "flights", "_evaluated")


def altered(analysis: LaunchAnalysis, **parts: Any) -> LaunchAnalysis:
    """Return a copy with these parts. All others are what they are in ``analysis``."""
    for name in _PARTS:
        getattr(analysis, name)
    made = copy.copy(analysis)
    judged = {name: parts.pop(name) for name in {field.name for field in fields(analysis._evaluated)} & parts.keys()}
    made.__dict__["_evaluated"] = replace(analysis._evaluated, **judged)
    made.__dict__.update(parts)
    made.launch, made.duration_ns = made.timeline.launch, made.summary.duration_ns
    return made
