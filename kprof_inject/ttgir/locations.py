"""Where in the user's source an operation comes from.

MLIR's location attributes: https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import LarkError

from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.strings import unquote


@dataclass(frozen=True, slots=True)
class Unknown:
    """``loc(unknown)``, and whatever cannot be read."""


@dataclass(frozen=True, slots=True)
class SourcePoint:
    """``"file.py":12:5``; line and column count from 1 (Triton prints column 0 for a whole function)."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Named:
    """``"acc"(#loc3)``: the name of the variable that the value was assigned to, and where."""

    name: str
    child: Location


@dataclass(frozen=True, slots=True)
class CallSite:
    """``callsite(#loc1 at #loc2)``: code of an inlined function, and the place that called it."""

    callee: Location
    caller: Location


@dataclass(frozen=True, slots=True)
class Fused:
    """``fused[#loc1, #loc2]``: one operation made from several."""

    children: tuple[Location, ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """``#loc3``, before it is looked up."""

    name: str


Location = Unknown | SourcePoint | Named | CallSite | Fused | Alias

Chain = tuple[SourcePoint, ...]
"""Where code was written, then the call that inlined it there, then that one's call: innermost first."""


class LocationTable:
    """Looks up locations of one module; each alias is parsed once, when it is first asked for."""

    def __init__(self, module: Module) -> None:
        self._aliases = module.aliases
        self._resolved: dict[str, Location] = {}
        self._chains: dict[str, tuple[Chain, ...]] = {}

    def of(self, operation: Operation) -> Location:
        """The operation's location with every alias replaced by what it stands for."""
        return self._look_up(operation.location_text)

    def chains_of(self, operation: Operation) -> tuple[Chain, ...]:
        """The source lines that the operation comes from, each with the calls that lead to it (see ``chains``)."""
        text = operation.location_text
        if text not in self._chains:
            self._chains[text] = chains(self._look_up(text))
        return self._chains[text]

    def _look_up(self, text: str) -> Location:
        try:
            return self.resolve(_parse(text))
        except RecursionError:  # no compiler nests calls this deep
            return Unknown()

    def resolve(self, location: Location) -> Location:
        match location:
            case Alias(name):
                if name not in self._resolved:
                    # An alias that names itself is no valid MLIR; it must not hang us either.
                    self._resolved[name] = Unknown()
                    self._resolved[name] = self.resolve(_parse(self._aliases.get(name, "")))
                return self._resolved[name]
            case Named(name, child):
                return Named(name, self.resolve(child))
            case CallSite(callee, caller):
                return CallSite(self.resolve(callee), self.resolve(caller))
            case Fused(children):
                return Fused(tuple(self.resolve(child) for child in children))
        return location


def chains(location: Location) -> tuple[Chain, ...]:
    """The chains of a location: none if it is unknown, several if one operation was made from several."""
    match location:
        case SourcePoint():
            return ((location,),)
        case Named(_, child):
            return chains(child)
        case CallSite(callee, caller):
            callers = chains(caller)
            outer = callers[0] if callers else ()
            return tuple(inner + outer for inner in chains(callee) or ((),) if inner + outer)
        case Fused(children):
            return tuple(dict.fromkeys(chain for child in children for chain in chains(child)))
    return ()


def _parse(text: str) -> Location:
    if not text:
        return Unknown()
    try:
        parsed: Location = _location_parser().parse(text)
    except LarkError:
        return Unknown()
    return parsed


@cache
def _location_parser() -> Any:
    return Lark.open(
        "ttgir.lark",
        rel_to=__file__,
        start="location",
        parser="lalr",
        lexer="contextual",
        transformer=_Builder(visit_tokens=False),
    )


class _Builder(Transformer[Token, Any]):
    """Builds locations; the methods bear the names of the grammar's rules."""

    def location(self, children: list[Any]) -> Location:
        place: Location = children[0]
        return place

    nested = location

    def unknown(self, _: list[Any]) -> Unknown:
        return Unknown()

    def reference(self, children: list[Token]) -> Alias:
        return Alias(children[0].value)

    def position(self, children: list[Token]) -> SourcePoint:
        file, line, column = children[:3]
        return SourcePoint(unquote(file), int(line), int(column))

    def named(self, children: list[Any]) -> Named:
        return Named(unquote(children[0]), children[1] if len(children) > 1 else Unknown())

    def callsite(self, children: list[Any]) -> CallSite:
        return CallSite(children[0], children[1])

    def fused(self, children: list[Any]) -> Fused:
        return Fused(tuple(child for child in children if not isinstance(child, Token)))
