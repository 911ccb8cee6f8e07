"""What the user writes after ``--at``: parsing, and what each kind of selector finds in a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Protocol

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, UnexpectedToken

from kprof_inject.errors import KprofError, Position
from kprof_inject.select.functions import Function, Loop
from kprof_inject.select.sites import Site
from kprof_inject.ttgir.locations import SourcePoint


class Target(Protocol):
    """The SITE part of a selector: one class for each kind."""

    def find(self, function: Function) -> Iterator[Site]:
        """The sites of this kind in one function, in the order of the text."""
        ...


class LoopFilter(Protocol):
    """Which loops a subscript means."""

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class EveryLoop:
    """No subscript: all loops."""

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class LoopPath:
    """``[0.2]``: the third loop inside the first."""

    path: tuple[int, ...]

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool:
        return loop.path == self.path


@dataclass(frozen=True, slots=True)
class SourceLine:
    """``@file.py:57``: written on that line. ``file`` may be the end of a path; empty means any file."""

    file: str
    line: int

    def accepts(self, loop: Loop, source: SourcePoint | None) -> bool:
        if source is None or source.line != self.line:
            return False
        return not self.file or f"/{source.file}".endswith(f"/{self.file.lstrip('/')}")


@dataclass(frozen=True, slots=True)
class Func:
    """``func``: the kernel function's whole body."""

    def find(self, function: Function) -> Iterator[Site]:
        if function.is_public:
            yield function.body_site()


@dataclass(frozen=True, slots=True)
class Loops:
    """``loop…``: around loops."""

    which: LoopFilter

    def find(self, function: Function) -> Iterator[Site]:
        for loop in function.loops():
            site = function.loop_site(loop)
            if self.which.accepts(loop, site.source):
                yield site


@dataclass(frozen=True, slots=True)
class Iterations:
    """``iter…``: each iteration of loops."""

    which: LoopFilter

    def find(self, function: Function) -> Iterator[Site]:
        for loop in function.loops():
            site = function.iteration_site(loop)
            if self.which.accepts(loop, site.source):
                yield site


@dataclass(frozen=True, slots=True)
class Selector:
    """``[KERNEL/]SITE[=NAME]``. ``kernel`` is a glob on the kernel's name, ``name`` the scope's (or empty).

    ``is_required`` says that finding nothing is an error."""

    text: str
    kernel: str
    target: Target
    name: str
    is_required: bool = True

    def matches_kernel(self, kernel: str) -> bool:
        return fnmatchcase(kernel, self.kernel)


def parse_selectors(texts: Sequence[str]) -> list[Selector]:
    """The user's selectors, or without any the default: the function, and its loops if it has some."""
    if texts:
        return [parse_selector(text) for text in texts]
    loops = [replace(parse_selector(text), is_required=False) for text in ("loop", "iter")]
    return [parse_selector("func"), *loops]


def parse_selector(text: str) -> Selector:
    """Parse one selector. Raises ``KprofError`` that points at the column where it went wrong."""
    try:
        parsed: Selector = _parser().parse(text)
    except UnexpectedInput as error:
        # Lark gives the end of the text the column of the token before it.
        at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        column = len(text) if at_end else error.column - 1
        raise KprofError(
            f"cannot read the selector {text!r}",
            where=Position("--at", 1, column + 1, text),
            hint="[KERNEL/]SITE[=NAME], where SITE is func, loop or iter; loop and iter may be followed by "
            "[0], [0.2], @57 or @file.py:57",
            exit_code=2,
        ) from None
    return replace(parsed, text=text)


@cache
def _parser() -> Any:
    return Lark.open(
        "selector.lark",
        rel_to=__file__,
        start="selector",
        parser="lalr",
        lexer="contextual",
        transformer=_Builder(visit_tokens=False),
    )


class _Builder(Transformer[Token, Any]):
    """Builds selectors; the methods bear the names of the grammar's rules."""

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

    def loop(self, children: list[Any]) -> Loops:
        return Loops(children[0] if children else EveryLoop())

    def iter(self, children: list[Any]) -> Iterations:
        return Iterations(children[0] if children else EveryLoop())

    def path(self, children: list[Token]) -> LoopPath:
        return LoopPath(tuple(int(child) for child in children))

    def line(self, children: list[Token]) -> SourceLine:
        *file, line = children
        return SourceLine(file[0].value if file else "", int(line))
