"""Values of compile-time constants, as users write them."""

from __future__ import annotations

from collections.abc import Iterable

from kprof_inject.capture.other_values import MAX_COMBINATIONS, Constant, max_combinations
from kprof_inject.errors import KprofError, Position

_OPTION = "--values"
_FORM = "NAME=VALUE,VALUE: integers, True and False; such as BLOCK_M=64,128"
_WORDS = {"True": True, "False": False}


def parse_values(texts: Iterable[str]) -> dict[str, tuple[Constant, ...]]:
    """Return the values of each constant. Raises ``KprofError``."""
    found: dict[str, tuple[Constant, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name.isidentifier() or not equals:
            raise _error(text, 0, f"cannot read the values {text!r}")
        parsed, offset = [], len(name) + 1
        for word in values.split(","):
            parsed.append(_constant(text, offset, word))
            offset += len(word) + 1
        found[name] = (*found.get(name, ()), *parsed)
    if max_combinations(found) > MAX_COMBINATIONS:
        raise KprofError(
            f"{_OPTION} makes {max_combinations(found)} combinations, and the limit is {MAX_COMBINATIONS}",
            hint="name fewer values, or fewer constants at once",
            exit_code=2,
        )
    return found


def _constant(text: str, offset: int, word: str) -> Constant:
    if word in _WORDS:
        return _WORDS[word]
    if not (word.isascii() and word.removeprefix("-").isdigit()):
        raise _error(text, offset, f"{word!r} is no value of a constant")
    return int(word)


def _error(text: str, offset: int, what: str) -> KprofError:
    return KprofError(what, where=Position(_OPTION, 1, offset + 1, text), hint=_FORM, exit_code=2)
