"""Text in, ``Module`` out."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from kprof_inject.errors import KprofError, Position
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region

_CLAUSE_WORD = re.compile(r"[a-z]+[0-9]*")

_EXPECTED = {
    "ALIAS_NAME": "an alias definition",
    "ALIAS_BODY": "the alias's definition",
    "RESULTS": "an operation",
    "NAME": "an operation",
    "LABEL": "a block label",
    "LINE_END": "the rest of the operation",
    "LINE_OPEN": "the rest of the operation",
    "CLOSE_END": "'}'",
    "CLOSE_OPEN": "'}'",
    "METADATA": "'{-# … #-}'",
    "$END": "the end of the file",
}


def parse(text: str, file: str = "<ttgir>") -> Module:
    """Parse a whole TTGIR file as Triton prints it.

    Raises ``KprofError`` with line and column where the text is not of that form.
    """
    # MLIR takes a file whose last line has no end; the terminals want one, and offsets do not change.
    complete = text if text.endswith("\n") else text + "\n"
    try:
        aliases, operations = _file_parser().parse(complete)
    except UnexpectedInput as error:
        raise _syntax_error(error, text, file) from None
    module = Module(file, text, operations, aliases)
    if not any(operation.name == "tt.func" for operation in module.walk()):
        raise KprofError(
            "there is no tt.func in this file",
            where=Position.at_offset(file, text, 0),
            hint="give a .ttgir file as Triton writes it (see 'kprof-inject dump')",
        )
    return module


@cache
def _file_parser() -> Any:
    return Lark.open(
        "ttgir.lark",
        rel_to=__file__,
        start="file",
        parser="lalr",
        lexer="contextual",
        transformer=_Builder(visit_tokens=False),
    )


class _Builder(Transformer[Token, Any]):
    """Builds nodes as the parser reduces; the methods bear the names of the grammar's rules."""

    def file(self, children: list[Any]) -> tuple[dict[str, str], tuple[Operation, ...]]:
        aliases: dict[str, str] = dict(child for child in children if type(child) is tuple)
        return aliases, tuple(child for child in children if type(child) is Operation)

    def alias(self, children: list[Token]) -> tuple[str, str]:
        name, body = children
        return name[:-1].rstrip(), body.strip()

    def leaf_operation(self, children: list[Token]) -> Operation:
        name, tail = children[-2:]
        first = children[0]
        return Operation(
            name.strip('"'),
            _offset(first),
            _end(tail),
            tail.value,
            first.value if first is not name else "",
        )

    def region_operation(self, children: list[Any]) -> Operation:
        first = children[0]
        at = 1 if first.type == "RESULTS" else 0
        name, opening, *rest = children[at:]
        closing = rest[-1]
        openings = [opening, *rest[1:-1:2]]
        regions = tuple(
            _region(_clause_of(line), line, blocks) for line, blocks in zip(openings, rest[0:-1:2], strict=True)
        )
        return Operation(
            name.strip('"'),
            _offset(first),
            _end(closing),
            opening.value,
            first.value if at else "",
            closing.value,
            regions,
        )

    def clause_operation(self, children: list[Any]) -> Operation:
        first = children[0]
        at = 1 if first.type == "RESULTS" else 0
        name, tail, *rest = children[at:]
        regions = tuple(
            _region(_clause_of(line), line, blocks) for line, blocks in zip(rest[0::3], rest[1::3], strict=True)
        )
        return Operation(
            name.strip('"'),
            _offset(first),
            _end(rest[-1]),
            tail.value,
            first.value if at else "",
            rest[-1].value,
            regions,
        )

    def region(self, children: list[Any]) -> tuple[tuple[Operation, ...], tuple[Block, ...]]:
        operations = tuple(child for child in children if type(child) is Operation)
        return operations, tuple(child for child in children if type(child) is Block)

    def block(self, children: list[Any]) -> Block:
        label, *operations = children
        return Block(label.value.split(":")[0].split("(")[0].strip(), _end(label), tuple(operations))


def _region(clause: str, opening: Token, body: tuple[tuple[Operation, ...], tuple[Block, ...]]) -> Region:
    operations, labelled = body
    # A region that begins with a label has no entry block besides that one.
    entry = () if labelled and not operations else (Block("", _end(opening), operations),)
    return Region(clause, entry + labelled)


def _clause_of(opening: Token) -> str:
    """``else`` of ``} else {``, ``default`` of ``default {``; empty for the line that begins an operation."""
    if opening.type == "LINE_OPEN":
        return ""
    found = _CLAUSE_WORD.search(opening.value.lstrip("} "))
    return found.group() if found and found.start() == 0 else ""


def _offset(token: Token) -> int:
    return token.start_pos or 0


def _end(token: Token) -> int:
    return token.end_pos or 0


def _syntax_error(error: UnexpectedInput, text: str, file: str) -> KprofError:
    token = getattr(error, "token", None)
    at_end = token is not None and token.type == "$END"
    offset = len(text.rstrip()) if at_end else (error.pos_in_stream or 0)
    accepted = set(getattr(error, "accepts", None) or getattr(error, "expected", None) or ())
    accepted |= set(getattr(error, "allowed", None) or ())
    expected = sorted({_EXPECTED[name] for name in accepted if name in _EXPECTED})
    what = "the file ends inside a region" if at_end else "this is not TTGIR as Triton prints it"
    if expected:
        what += f"; expected {' or '.join(expected)}"
    hint = (
        "the file is cut off; dump it again"
        if at_end
        else "give a .ttgir file as Triton writes it (see 'kprof-inject dump')"
    )
    return KprofError(what, where=Position.at_offset(file, text, offset), hint=hint)
