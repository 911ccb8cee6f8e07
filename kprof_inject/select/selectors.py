"""Selectors: the arguments of ``--at``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lark import Token
from lark.exceptions import UnexpectedInput, UnexpectedToken
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.select import targets
from kprof_inject.select.functions import Function
from kprof_inject.select.tags import OPTION, Tag, parse_tags
from kprof_inject.select.targets import SitePattern, SourceLines
from kprof_inject.ttgir.grammar import Grammar

_FORMS = (
    "write [KERNEL/]SITE[=NAME], where SITE is func, func(NAME), loop, iter, spin, op(GLOB), async, parts, "
    "line(57), line(file.py:57-63), partition[0], partition(NAME), default, marker or marker(GLOB); loop and iter may "
    "be followed by [0], [0.2], @57 or @file.py:57"
)
_WORDS = ("func", "loop", "iter", "spin", "op", "async", "parts", "line", "partition", "default", "marker")


class Selector(Struct, frozen=True):
    """``[KERNEL/]SITE[=NAME]``, then any ``--tag NAME=VALUE``; ``kernel`` is a glob, ``name`` empty if omitted."""

    text: str
    kernel: str
    target: SitePattern
    name: str
    tags: tuple[Tag, ...] = ()

    @property
    def site(self) -> str:
        """The SITE part as the user typed it."""
        return self.text.removeprefix(f"{self.kernel}/").partition(f" {OPTION} ")[0].split("=")[0].strip()

    def matches_kernel(self, kernel: str) -> bool:
        """Return whether the selector applies to a kernel of this name."""
        return fnmatchcase(kernel, self.kernel)


def parse_selectors(texts: Sequence[str]) -> list[Selector]:
    """Parse the user's selectors; an empty list means the default, which each module chooses for itself."""
    return [parse_selector(text) for text in texts]


def parse_selector(text: str) -> Selector:
    """Parse one selector with its tags. Raises ``KprofError`` that points at the column of the error."""
    untagged, tags = parse_tags(text)
    try:
        parsed: Selector = _parser().parse(untagged)
    except UnexpectedInput as error:
        # For the end of the text, Lark reports the column of the token before it.
        at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        column = len(untagged) if at_end else error.column - 1
        site = untagged.rsplit("/", 1)[-1]
        word = re.sub(r"\W.*", "", site, flags=re.DOTALL)
        likely = "" if word in _WORDS else did_you_mean(word, _WORDS, 1, lambda close: repr(close + site[len(word) :]))
        what, where = f"cannot read the selector {untagged!r}", Position("--at", 1, column + 1, untagged)
        raise KprofError(what, where=where, hint=likely + _FORMS, exit_code=2) from None
    if any(isinstance(which, SourceLines) and which.first > which.last for which in parsed.target.arguments):
        where = Position("--at", 1, untagged.index("line(") + 1, untagged)
        hint = "write the smaller line first"
        raise KprofError(f"the lines of {untagged!r} are reversed", where=where, hint=hint, exit_code=2)
    return replace(parsed, text=text, tags=tags)


_FOLDER = Path(__file__).parent
SELECTORS = Grammar(_FOLDER, "selector", lambda: (_FOLDER / "selector.lark").read_text("utf-8"), start="selector")


@cache
def _parser() -> Any:
    return SELECTORS.parser(SimpleNamespace(**_RULES))


def _selector(parts: list[Any]) -> Selector:
    texts: dict[str, str] = dict(part for part in parts if isinstance(part, tuple))
    (target,) = (part for part in parts if isinstance(part, SitePattern))
    return Selector("", texts.get("kernel", "*"), target, texts.get("name", ""))


def _lines(tokens: list[Token]) -> SourceLines:
    file = tokens.pop(0).value if tokens[0].type == "FILE" else ""
    return SourceLines(file, int(tokens[0]), int(tokens[-1]))


def _partition(tokens: list[Token]) -> SitePattern:
    if tokens and tokens[0].type == "GLOB":
        return SitePattern(targets.find_partitions, ("*", tokens[0].value.strip()))
    return SitePattern(targets.find_partitions, (f"partition[[]{int(tokens[0])}]" if tokens else "partition*",))


_RULES: dict[str, Callable[[list[Any]], Any]] = {
    "selector": _selector,
    "kernel": lambda tokens: ("kernel", tokens[0].value),
    "name": lambda tokens: ("name", tokens[0].value.strip()),
    "func": lambda _: SitePattern(targets.find_kernel),
    "helper": lambda tokens: SitePattern(targets.find_helper, (tokens[0].value.strip(),)),
    "loop": lambda which: SitePattern(targets.find_loops, (Function.loop_site, *which)),
    "iter": lambda which: SitePattern(targets.find_loops, (Function.iteration_site, *which)),
    "spin": lambda _: SitePattern(targets.find_spins),
    "op": lambda tokens: SitePattern(targets.find_operations, (tokens[0].value.strip(),)),
    "asynchronous": lambda _: SitePattern(targets.find_asynchronous),
    "parts": lambda _: SitePattern(targets.find_parts),
    "lines": lambda tokens: SitePattern(targets.find_lines, (_lines(tokens),)),
    "partition": _partition,
    "default": lambda _: SitePattern(targets.find_partitions, ("default",)),
    "marker": lambda tokens: SitePattern(targets.find_marked, (tokens[0].value.strip() if tokens else "*",)),
    "path": lambda numbers: tuple(map(int, numbers)),
    "line": _lines,
}
"""What each rule of the grammar becomes, from its tokens or from what the rules in it became."""
