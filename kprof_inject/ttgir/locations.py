"""Source locations of operations.

MLIR's location attributes: https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.strings import POINT, STRING, unquote


class Unknown(Struct, frozen=True):
    """``loc(unknown)``, and any location that cannot be read."""


class SourcePoint(NamedTuple):
    """``"file.py":12:5``; line and column count from 1 (Triton prints column 0 for a whole function)."""

    file: str
    line: int
    column: int


class Named(Struct, frozen=True):
    """``"acc"(#loc3)``: the variable that the value was assigned to, and the location of that."""

    name: str
    child: Location


class CallSite(Struct, frozen=True):
    """``callsite(#loc1 at #loc2)``: code of an inlined function, and the place that called it."""

    callee: Location
    caller: Location


class Fused(Struct, frozen=True):
    """``fused[#loc1, #loc2]``: one operation made from several."""

    children: tuple[Location, ...]


class Alias(Struct, frozen=True):
    """``#loc3``, unresolved."""

    name: str


Location = Unknown | SourcePoint | Named | CallSite | Fused | Alias

Chain = tuple[SourcePoint, ...]
"""A place in the source, then the call that inlined it, then the call that inlined that: innermost first."""

_LIBRARY = "/triton/language/"

MAX_FRAMES = 64
"""Maximum length of a chain; from a longer one, the innermost and the outermost half of this number are kept.

Calls in a kernel are a dozen deep, but a damaged or hostile file may double its chains from alias to alias.
"""

MAX_TOTAL_FRAMES = 1024
"""Maximum number of frames in all chains of a location; the chain that reaches it is the last one."""


class LocationTable:
    """The source positions of a module's operations; each alias is resolved once, when first needed."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._of_text: dict[str, tuple[Chain, ...]] = {}
        self._of_alias: dict[str, tuple[Chain, ...] | None] = {}

    def chains_of(self, operation: Operation) -> tuple[Chain, ...]:
        """Return the source positions of an operation, each with the calls that lead to it.

        Empty if its location is unknown; several if it was made from several. Raises ``KprofError`` for an alias that
        refers to itself.
        """
        text = operation.location_text
        if text not in self._of_text:
            self._of_text[text] = self.chains(parse_location(text))
        return self._of_text[text]

    def source_line(self, operation: Operation) -> str:
        """Return an operation's first source line, such as ``matmul.py:58``; empty if its location is unknown.

        For a function of Triton's own library, it is the line that calls it.
        """
        chain = next(iter(self.chains_of(operation)), None)
        if chain is None:
            return ""
        point = next((point for point in chain if _LIBRARY not in point.file), chain[-1])
        return f"{PurePath(point.file).name}:{point.line}"

    def chains(self, location: Location) -> tuple[Chain, ...]:
        """Return the chains of a location. Not recursive: locations may be nested deeper than Python's calls."""
        pending = [self._chains(location)]
        found: tuple[Chain, ...] | None = None
        while pending:
            try:
                inner = pending[-1].send(found)
            except StopIteration as ended:
                pending.pop()
                found = ended.value
            else:
                pending.append(self._chains(inner))
                found = None
        return found or ()

    def _chains(self, location: Location) -> Generator[Location, Any, tuple[Chain, ...]]:
        """Return the chains of a location; yield each nested one and receive its chains."""
        match location:
            case SourcePoint():
                return ((location,),)
            case Named(_, child):
                of_child: tuple[Chain, ...] = yield child
                return of_child
            case CallSite(callee, caller):
                inner = yield callee
                outer = next(iter((yield caller)), ())
                return _first(_shortened(chain + outer) for chain in inner or ((),) if chain or outer)
            case Fused(children):
                of_children = []
                for child in children:
                    of_children.append((yield child))
                return _first(chain for chains in of_children for chain in chains)
            case Alias(name):
                if name not in self._of_alias:
                    self._of_alias[name] = None  # marks it as unresolved, to find cycles
                    self._of_alias[name] = yield parse_location(self._module.aliases.get(name, ""))
                found = self._of_alias[name]
                if found is None:
                    definition = re.search(rf"(?<![\w$.-]){re.escape(name)}[ \t]*=", self._module.text)
                    raise KprofError(
                        f"the location {name} refers to itself",
                        where=self._module.position(definition.start() if definition else 0),
                        hint="this is not valid MLIR; dump the file again",
                    )
                return found
        return ()


def _shortened(chain: Chain) -> Chain:
    return chain if len(chain) <= MAX_FRAMES else chain[: MAX_FRAMES // 2] + chain[-MAX_FRAMES // 2 :]


def _first(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    found: dict[Chain, None] = {}
    frames = 0
    for chain in chains:
        if frames >= MAX_TOTAL_FRAMES:
            break
        if chain not in found:
            found[chain] = None
            frames += len(chain)
    return tuple(found)


# A part of a location, after the separators before it. MLIR has 32 bits for a line and for a column.
_METADATA = rf'<(?:[^<>"]|{STRING}|<(?:[^<>"]|{STRING})*>)*>'
_PART = re.compile(
    rf"(?:[\s,]|at\b)*(?:{POINT}(?: to [0-9]*:[0-9]+)?|(?P<alias>#[\w$.-]+)|(?P<unknown>unknown)|(?P<closing>[)\]])"
    rf"|(?P<opening>loc|callsite|{STRING})\s*\(|(?P<fused>fused)\s*(?:{_METADATA}\s*)?\[|(?P<name>{STRING}))"
)


def parse_location(text: str) -> Location:
    """Parse a printed location without resolving aliases; return ``Unknown`` if that fails.

    Not recursive: locations may be nested deeper than Python's calls.
    """
    around: list[tuple[str, list[Location]]] = []
    word, inside = "", list[Location]()
    end = 0
    while end < len(text):
        found = _PART.match(text, end)
        if found is None:
            return Unknown()
        end = found.end()
        match found.lastgroup:
            case "column":
                inside.append(SourcePoint(unquote(found["file"]), int(found["line"]), int(found["column"])))
            case "alias":
                inside.append(Alias(found["alias"]))
            case "name":
                inside.append(Named(unquote(found["name"]), Unknown()))
            case "unknown":
                inside.append(Unknown())
            case "closing":
                if around:
                    closed = _compound(word, inside)
                    word, inside = around.pop()
                    inside.append(closed)
            case _:
                around.append((word, inside))
                word, inside = found["opening"] or found["fused"], []
    return inside[0] if len(inside) == 1 and not around else Unknown()


def _compound(word: str, inside: list[Location]) -> Location:
    match word, inside:
        case "loc", [place]:
            return place
        case "callsite", [callee, caller]:
            return CallSite(callee, caller)
        case "fused", _:
            return Fused(tuple(inside))
        case _, [child] if word.startswith('"'):
            return Named(unquote(word), child)
    return Unknown()
