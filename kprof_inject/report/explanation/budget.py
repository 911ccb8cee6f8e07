"""An explanation as one line of JSON that costs its reader a limited number of tokens, and texts cut to fit in it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from kprof_inject.errors import KprofError, printable
from kprof_inject.report.explanation.explanation_schema import Explanation

DEFAULT_BUDGET = 2000

_CHARACTERS_IN_TOKEN = 4

# The first of each of these lists matters more than the second of any, and one list more than those that stand behind.
_LISTS = ("waits", "places", "not_judged", "roofs", "scopes", "overlap", "other_kernels")
# All of these matter more than anything of those; the first of them is always told.
_FINDINGS = "findings"

_Item = tuple[str, int]
"""The name of a list, and a number in it."""


def tokens_of(text: str) -> int:
    """What a text costs a model that reads it, with the end of its line: a token has four characters, roughly."""
    return -(-(len(text) + 1) // _CHARACTERS_IN_TOKEN)


def explanation_text(explanation: Explanation, budget: int) -> str:
    """As much of it as ``budget`` tokens have room for. What matters least is left out, and counted. Raises a usage
    error that names the least budget."""
    items = _ranked(explanation)

    def tokens(kept: int) -> int:
        return tokens_of(_text(_with(explanation, items[:kept])))

    # An item is longer than the count of those that are left out: with each more the text grows.
    fitting = bisect_right(range(len(items) + 1), budget, key=tokens)
    if not fitting:
        raise _too_small(budget, tokens(0))
    return _text(_with(explanation, items[: fitting - 1]))


def _text(explanation: Explanation) -> str:
    return msgspec.json.encode(explanation).decode()


def _ranked(explanation: Explanation) -> list[_Item]:
    """What may be left out, that which matters most first."""
    findings = [(_FINDINGS, number) for number in range(1, len(explanation.findings))]
    others = (item for name in _LISTS for item in _items(explanation, name))
    # In each round one of each list, in the order of the lists.
    return findings + sorted(others, key=lambda item: item[1])


def _items(explanation: Explanation, name: str) -> Iterator[_Item]:
    return ((name, number) for number in range(len(getattr(explanation, name))))


def _with(explanation: Explanation, kept: Sequence[_Item]) -> Explanation:
    """The same with these items alone, and the first finding."""
    counts = {**dict.fromkeys(_LISTS, 0), _FINDINGS: min(len(explanation.findings), 1)}
    for name, _ in kept:
        counts[name] += 1
    lists = {name: getattr(explanation, name)[:count] for name, count in counts.items()}
    left_out = {name: len(getattr(explanation, name)) - count for name, count in counts.items()}
    return msgspec.structs.replace(
        explanation, **lists, left_out={name: count for name, count in left_out.items() if count}
    )


def _too_small(budget: int, least: int) -> KprofError:
    return KprofError(
        f"a budget of {budget} tokens is too small for the required fields",
        hint=f"--budget {least} or more",
        exit_code=2,
    )


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
