"""An explanation as one line of JSON that fits a token budget, and texts cut to fit."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from kprof_inject.errors import KprofError, printable
from kprof_inject.report.explanation.explanation_schema import Explanation

DEFAULT_BUDGET = 2000

_CHARACTERS_IN_TOKEN = 4

# Lists by importance, the most important first. The first item of each list comes before the second of any.
_LISTS = ("waits", "places", "not_judged", "roofs", "scopes", "overlap", "other_kernels")
# Findings come before the items of all other lists, and the first finding is never left out.
_FINDINGS = "findings"

_Item = tuple[str, int]
"""Name of a list, and an index into it."""


def tokens_of(text: str) -> int:
    """Return the estimated tokens of a text and its line end, at four characters a token."""
    return -(-(len(text) + 1) // _CHARACTERS_IN_TOKEN)


def explanation_text(explanation: Explanation, budget: int) -> str:
    """Return as much of the explanation as ``budget`` tokens allow.

    The least important items are left out, and counted. Raises a usage error that names the minimum budget.
    """
    items = _ranked(explanation)

    def tokens(kept: int) -> int:
        return tokens_of(_text(_with(explanation, items[:kept])))

    # An item is longer than its entry in left_out, so the text grows with each item and bisection is valid.
    fitting = bisect_right(range(len(items) + 1), budget, key=tokens)
    if not fitting:
        raise _too_small(budget, tokens(0))
    return _text(_with(explanation, items[: fitting - 1]))


def _text(explanation: Explanation) -> str:
    return msgspec.json.encode(explanation).decode()


def _ranked(explanation: Explanation) -> list[_Item]:
    """Return the items that may be left out, most important first."""
    findings = [(_FINDINGS, number) for number in range(1, len(explanation.findings))]
    other_items = (item for name in _LISTS for item in _items(explanation, name))
    # The sort is stable: the first items of all lists, in the order of the lists, then the second ones.
    return findings + sorted(other_items, key=lambda item: item[1])


def _items(explanation: Explanation, name: str) -> Iterator[_Item]:
    return ((name, number) for number in range(len(getattr(explanation, name))))


def _with(explanation: Explanation, kept: Sequence[_Item]) -> Explanation:
    """Return the explanation with these items alone, and the first finding."""
    counts = {**dict.fromkeys(_LISTS, 0), _FINDINGS: min(len(explanation.findings), 1)}
    for name, _ in kept:
        counts[name] += 1
    lists = {name: getattr(explanation, name)[:count] for name, count in counts.items()}
    left_out = {name: len(getattr(explanation, name)) - count for name, count in counts.items()}
    return msgspec.structs.replace(
        explanation, **lists, left_out={name: count for name, count in left_out.items() if count}
    )


def _too_small(budget: int, required: int) -> KprofError:
    return KprofError(
        f"a budget of {budget} tokens is too small for the required fields",
        hint=f"--budget {required} or more",
        exit_code=2,
    )


# Names that people write, and our own sentences, are shorter.
_MAX_NAME = 100
_MAX_TEXT = 400
_SIGNIFICANT_DIGITS = 4


def short_name(text: str) -> str:
    """Return the name of a kernel or a scope, or a path, with its middle cut out if it is too long."""
    shown = printable(text)
    if len(shown) <= _MAX_NAME:
        return shown
    half = _MAX_NAME // 2
    return f"{shown[: half - 1]}…{shown[-half:]}"


def short_text(text: str) -> str:
    """Return a sentence, with its end cut off if it is too long."""
    shown = printable(text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"


def figure(value: float) -> float:
    """Return a number with four significant digits: no figure here is more exact."""
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def known_figure(value: float | None) -> float | None:
    """Return a number with four significant digits; None if it is missing or not finite."""
    return None if value is None or not math.isfinite(value) else figure(value)


def short_figure(value: float | int | str) -> float | int | str:
    """Return a finding's figure: a count unchanged, a number rounded, a name cut."""
    if isinstance(value, str):
        return short_name(value)
    return figure(value) if isinstance(value, float) else value
