"""An explanation as one line of JSON that costs its reader no more than so many tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from kprof_inject.errors import KprofError
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
