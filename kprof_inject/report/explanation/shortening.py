"""Texts and figures of a capture, so short that none of them fills a budget by itself."""

from __future__ import annotations

import math

from kprof_inject.errors import printable

# Names that people write are shorter; sentences of ours are, too.
_LONGEST_NAME = 100
_LONGEST_TEXT = 400
_SIGNIFICANT_DIGITS = 4


def short_name(text: str) -> str:
    """A kernel's name, a scope's or a path: its begin and its end where it is too long."""
    shown = printable(text)
    if len(shown) <= _LONGEST_NAME:
        return shown
    half = _LONGEST_NAME // 2
    return f"{shown[: half - 1]}…{shown[-half:]}"


def short_text(text: str) -> str:
    """A sentence: its begin where it is too long."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[: _LONGEST_TEXT - 1]}…"


def figure(value: float) -> float:
    """With four significant digits: no figure here is known any better."""
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def known_figure(value: float | None) -> float | None:
    """None where there is no number."""
    return None if value is None or not math.isfinite(value) else figure(value)


def short_figure(value: float | int | str) -> float | int | str:
    """One of a finding's: a count as it is, a name cut."""
    if isinstance(value, str):
        return short_name(value)
    return figure(value) if isinstance(value, float) else value
