"""Selectors: the arguments of ``--at``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from lark import Token, Transformer
from lark.exceptions import UnexpectedInput, UnexpectedToken
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.select.parts import Parts
from kprof_inject.select.tags import OPTION, Tag, parse_tags
from kprof_inject.select.targets import (
    Asynchronous,
    Func,
    Helper,
    Iterations,
    LoopPath,
    Loops,
    Markers,
    Ops,
    OpsOfLines,
    PartitionRegions,
    SitePattern,
    SourceLines,
    Spins,
)
from kprof_inject.ttgir.grammar import Grammar

_FORMS = (
    "write [KERNEL/]SITE[=NAME], where SITE is func, func(NAME), loop, iter, spin, op(GLOB), async, parts, "
    "line(57), line(file.py:57-63), partition[0], partition(NAME), default, marker or marker(GLOB); loop and iter may "
    "be followed by [0], [0.2], @57 or @file.py:57"
)
_WORDS = ("func", "loop", "iter", "spin", "op", "async", "parts", "line", "partition", "default", "marker")


class Selector(Struct, frozen=True):
    """``[KERNEL/]SITE[=NAME]``, followed by any number of ``--tag NAME=VALUE``.

    ``kernel`` is a glob on the kernel's name, ``name`` the scope's name (or empty).
    """

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
    return replace(_parse_untagged(untagged), text=text, tags=tags)


def _parse_untagged(text: str) -> Selector:
    try:
        parsed: Selector = _parser().parse(text)
    except UnexpectedInput as error:
        # For the end of the text, Lark reports the column of the token before it.
        at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        column = len(text) if at_end else error.column - 1
        site = text.rsplit("/", 1)[-1]
        word = re.sub(r"\W.*", "", site, flags=re.DOTALL)
        likely = "" if word in _WORDS else did_you_mean(word, _WORDS, 1, lambda close: repr(close + site[len(word) :]))
        raise KprofError(
            f"cannot read the selector {text!r}",
            where=Position("--at", 1, column + 1, text),
            hint=likely + _FORMS,
            exit_code=2,
        ) from None
    if isinstance(parsed.target, OpsOfLines) and parsed.target.which.first > parsed.target.which.last:
        raise KprofError(
            f"the lines of {text!r} are reversed",
            where=Position("--at", 1, text.index("line(") + 1, text),
            hint="write the smaller line first",
            exit_code=2,
        )
    return parsed


_FOLDER = Path(__file__).parent
SELECTORS = Grammar(
    _FOLDER,
    "selector",
    lambda: (_FOLDER / "selector.lark").read_text(encoding="utf-8"),
    start="selector",
)


@cache
def _parser() -> Any:
    return SELECTORS.parser(_SelectorBuilder(visit_tokens=False))


class _SelectorBuilder(Transformer[Token, Any]):
    """Build selectors; each method has the name of a rule of the grammar."""

    def selector(self, children: list[Any]) -> Selector:
        texts = {child[0]: child[1] for child in children if isinstance(child, tuple)}
        (target,) = (child for child in children if not isinstance(child, tuple))
        return Selector("", texts.get("kernel", "*"), target, texts.get("name", ""))

    def kernel(self, children: list[Token]) -> tuple[str, str]:
        return "kernel", children[0].value

    def name(self, children: list[Token]) -> tuple[str, str]:
        return "name", children[0].value.strip()

    def func(self, _: list[Any]) -> Func:
        return Func()

    def helper(self, children: list[Token]) -> Helper:
        return Helper(children[0].value.strip())

    def loop(self, children: list[Any]) -> Loops:
        return Loops(children[0] if children else LoopPath())

    def iter(self, children: list[Any]) -> Iterations:
        return Iterations(children[0] if children else LoopPath())

    def spin(self, _: list[Any]) -> Spins:
        return Spins()

    def op(self, children: list[Token]) -> Ops:
        return Ops(children[0].value.strip())

    def asynchronous(self, _: list[Any]) -> Asynchronous:
        return Asynchronous()

    def parts(self, _: list[Any]) -> Parts:
        return Parts()

    def lines(self, children: list[Token]) -> OpsOfLines:
        file = children.pop(0).value if children[0].type == "FILE" else ""
        return OpsOfLines(SourceLines(file, int(children[0]), int(children[-1])))

    def partition(self, children: list[Token]) -> PartitionRegions:
        if children and children[0].type == "GLOB":
            return PartitionRegions("*", children[0].value.strip())
        return PartitionRegions(f"partition[[]{int(children[0])}]" if children else "partition*")

    def default(self, _: list[Any]) -> PartitionRegions:
        return PartitionRegions("default")

    def marker(self, children: list[Token]) -> Markers:
        return Markers(children[0].value.strip() if children else "*")

    def path(self, children: list[Token]) -> LoopPath:
        return LoopPath(tuple(int(child) for child in children))

    def line(self, children: list[Token]) -> SourceLines:
        *file, line = children
        return SourceLines(file[0].value if file else "", int(line), int(line))
