"""The parser: TTGIR text in, ``Module`` out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from lark import Token, Transformer
from lark.exceptions import UnexpectedInput

from kprof_inject.errors import KprofError, Position
from kprof_inject.quantities import counted, listed
from kprof_inject.ttgir.dialect import FUNCTION, MODULES
from kprof_inject.ttgir.grammar import (
    GAP,
    TTGIR_FOLDER,
    FileLexer,
    Grammar,
    Run,
    after_gap,
    supported,
    terminal,
    ttgir_grammar,
)
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region, link
from kprof_inject.ttgir.strings import STRING

# The parts of a file, as diagnostics call them.
_WORDS = {
    "ALIASES": "an alias definition",
    "LEAVES": "an operation",
    "CLAUSED": "an operation",
    "OPENING": "an operation",
    "LABEL": "a block label",
    "CLAUSE": "a clause",
    "CLOSE_END": "'}'",
    "CLOSE_OPEN": "'}'",
    "METADATA": "'{-# … #-}'",
    "$END": "the end of the file",
}

GIVE_TTGIR = "give a .ttgir file as Triton writes it (see 'kprof-inject dump')"
_BYTE_ORDER_MARK = "the file begins with a byte order mark; save it without one"


def syntax_error(error: UnexpectedInput, text: str, file: str) -> KprofError:
    """Return the diagnostic for an error of the file's parser; ``text`` is the parser's input."""
    found = getattr(getattr(error, "token", None), "type", "")
    expected = _accepted(error)
    if found == "$END":
        return KprofError(
            f"the file ends inside a region; expected {expected}",
            where=Position.at_offset(file, text, len(text.rstrip())),
            hint="the file is truncated; dump it again",
        )
    start = after_gap(text, error.pos_in_stream or 0)
    if found not in _WORDS and (readable := terminal("READABLE").match(text, start)):
        start = after_gap(text, readable.end())
        expected = "an operation" if readable.group().endswith("=") else "the rest of the line"
    where = Position.at_offset(file, text, start)
    return KprofError(
        f"this is not TTGIR as Triton prints it; expected {expected}",
        where=where,
        hint=_BYTE_ORDER_MARK if where.text.startswith("\ufeff") else _modules_in(error, text) or GIVE_TTGIR,
    )


_MODULE = re.compile(r'^[ \t]*+"?(?:builtin\.)?module\b[^\n]*[({][ \t\r]*$', re.MULTILINE)


def _modules_in(error: Any, text: str) -> str:
    # Text copied from a console has the compiler's diagnostics around its modules.
    starts = []
    for found in _MODULE.finditer(text):
        start = found.start()
        while (before := text.rfind("\n", 0, max(start - 1, 0)) + 1) < start and text[before] == "#":
            start = before  # an alias
        starts.append(start)
    if not starts or "$END" not in error.interactive_parser.accepts():
        return ""
    between = (text.count("\n", *span) for span in pairwise([0, *starts]))
    lines = listed([str(line + 1) for line in accumulate(between)], _MAX_LISTED)
    keep = (
        f"a module begins on line {lines}; keep it" if len(starts) == 1 else f"modules begin on lines {lines}; keep one"
    )
    return f"{keep}, with its aliases (#blocked, #loc, …), and nothing else"


def _accepted(error: Any) -> str:
    *words, last = sorted({_WORDS[name] for name in error.interactive_parser.accepts() if name in _WORDS})
    return f"{', '.join(words)} or {last}" if words else last


MAX_NESTING = 600
"""Maximum nesting of operations; real kernels need a dozen. It allows functions that walk a module to recurse."""

MAX_DIGITS = 300
"""Maximum number of digits outside of strings: longer numbers overflow floats, and Triton prints about twenty."""

MAX_UNLISTED_RESULTS = 16
"""Maximum number of results without a type for each: ``tt.split`` prints one type for two results."""

# The terminal HEAD of the grammar; its first group begins where the operation does.
_HEAD = re.compile(GAP.pattern + supported(r"((?:%[^=]*+=)?+)") + GAP.pattern + r'"?+([\w$.-]++)"?+')
_CLAUSE_WORD = re.compile(GAP.pattern + r"\}?" + GAP.pattern + r"([a-z]+[0-9]*)")
_BLOCK_ID = re.compile(GAP.pattern + r"(\^[\w$.-]++)")


def parse(text: str, file: str = "<ttgir>") -> Module:
    """Parse a whole TTGIR file as Triton prints it; raise ``KprofError`` with line and column for any other form."""
    # MLIR accepts a last line without a line end; our terminals need one, and offsets do not change.
    complete = text if text.endswith("\n") else text + "\n"
    try:
        aliases, operations = _file_parser().parse(complete)
    except UnexpectedInput as error:
        raise syntax_error(error, complete, file) from None
    module = Module(file, text, operations, aliases)
    _check_nesting(module)
    _check_numbers(module)
    _check_operations(module)
    if not any(operation.name == FUNCTION for operation in module.walk()):
        raise KprofError("there is no tt.func in this file", where=Position.at_offset(file, text, 0), hint=GIVE_TTGIR)
    _check_is_one_kernel(module)
    return module


FILES = Grammar(TTGIR_FOLDER, "file", ttgir_grammar, start="file", lexer=FileLexer)


@cache
def _file_parser() -> Any:
    return FILES.parser(_TreeBuilder(visit_tokens=False))


class _TreeBuilder(Transformer[Token, Any]):
    """Build nodes as the parser reduces; each method has the name of a rule of the grammar."""

    def file(self, children: list[Any]) -> tuple[dict[str, str], tuple[Operation, ...]]:
        aliases: dict[str, str] = {}
        for child in children:
            if type(child) is Run and child.type == "ALIASES":
                aliases |= {match[1]: match[2].strip() for match in child.matches}
        return aliases, _operations(children)

    def region_operation(self, children: list[Any]) -> Operation:
        opening, *rest = children
        openings = [opening, *rest[1:-1:2]]
        return _nest(opening, zip(openings, rest[0::2], rest[1::2], strict=True), rest[-1])

    def clause_operation(self, children: list[Any]) -> Operation:
        claused, *rest = children
        return _nest(claused, zip(rest[0::3], rest[1::3], rest[2::3], strict=True), rest[-1])

    def region(self, children: list[Any]) -> tuple[tuple[Operation, ...], tuple[Block, ...]]:
        return _operations(children), tuple(child for child in children if type(child) is Block)

    def block(self, children: list[Any]) -> Block:
        label, *operations = children
        block_id: Any = _BLOCK_ID.match(label)
        return Block(block_id[1], _end(label), _operations(operations))


def _operations(children: Sequence[Any]) -> tuple[Operation, ...]:
    found: list[Operation] = []
    for child in children:
        if type(child) is Operation:
            found.append(child)
        elif type(child) is Run and child.type == "LEAVES":
            for match in child.matches:
                results, name, tail = match.groups()
                found.append(Operation(name.strip('"'), match.start(1), match.end(), tail, results))
    return tuple(found)


_Regions = Iterable[tuple[Token, tuple[tuple[Operation, ...], tuple[Block, ...]], Token]]


def _nest(opening: Token, regions: _Regions, last: Token) -> Operation:
    made = []
    for before, (operations, labelled), closing in regions:
        # else of "} else {", default of "default {".
        clause = _CLAUSE_WORD.match(before) if before is not opening else None
        # A region that begins with a label has no unlabelled entry block.
        entry = () if labelled and not operations else (Block("", _end(before), operations),)
        end = _offset(closing) + after_gap(closing)
        made.append(Region(clause[1] if clause else "", entry + labelled, end))
    head: Any = _HEAD.match(opening)
    results, name = head.groups()
    start, end, closing = _offset(opening) + head.start(1), _end(last), last.value[after_gap(last) :]
    operation = Operation(name, start, end, opening[head.end() :], results, closing, tuple(made))
    link(operation)
    return operation


def _offset(token: Token) -> int:
    return token.start_pos or 0


def _end(token: Token) -> int:
    return token.end_pos or 0


def _check_is_one_kernel(module: Module) -> None:
    """Raise ``KprofError`` if there are several modules with functions, as in what ``MLIR_ENABLE_DUMP`` prints."""
    roots, modules = module.operations, [root for root in module.operations if root.name in MODULES]
    holders = [root for root in modules if any(inside.name == FUNCTION for inside in root.walk())]
    holders += [root for root in roots if root.name == FUNCTION][:1]  # functions without a module count as one
    if len(holders) > 1:
        holders.sort(key=lambda holder: holder.start)
        lines = module.line_numbers([holder.start for holder in holders])
        raise KprofError(
            f"this file holds {len(holders)} modules, which begin on lines {listed([*map(str, lines)], _MAX_LISTED)}",
            where=module.position(holders[1].start),
            hint="keep one of them, with its aliases (#blocked, #loc, …); the last is the result of all passes",
        )


_MAX_LISTED = 10


def _check_nesting(module: Module) -> None:
    depth = 0
    level = list(module.operations)
    while level:
        depth += 1
        if depth > MAX_NESTING:
            what = f"operations are nested more than {MAX_NESTING} deep"
            raise KprofError(what, where=module.position(level[0].start), hint=GIVE_TTGIR)
        blocks = [block for operation in level for region in operation.regions for block in region.blocks]
        level = [child for block in blocks for child in block.operations if child.regions]


_NUMBER_OR_STRING = re.compile(rf"(?P<number>[0-9]{{{MAX_DIGITS},}})|{STRING}")


def _check_numbers(module: Module) -> None:
    text, part = module.text, MAX_DIGITS // 2
    # Such a number fills a part of the text. To search the whole text would add a tenth of the parsing time.
    if any(text[start : start + part].isdecimal() for start in range(0, len(text), part)):
        for found in _NUMBER_OR_STRING.finditer(text):
            if found["number"]:
                what = f"a number has {MAX_DIGITS} digits or more"
                raise KprofError(what, where=module.position(found.start()), hint=GIVE_TTGIR)


_RESULT_COUNT = re.compile(r":([0-9]+)")


def _check_operations(module: Module) -> None:
    # Readers of a module expect a loop's regions, and create a name for each result.
    for operation in module.walk():
        expected, regions = _REGIONS_OF_LOOPS.get(operation.name), len(operation.regions)
        if expected is not None and regions != expected:
            found = f"{counted(regions, 'region')} instead of {expected}" if regions else "no body"
            raise KprofError(f"this loop has {found}", where=module.position(operation.start), hint=GIVE_TTGIR)
        if ":" in operation.results:
            results = sum(int(count) for count in _RESULT_COUNT.findall(operation.results))
            types = 1 + operation.tail.count(",") + operation.closing.count(",")
            if results > max(types, MAX_UNLISTED_RESULTS):
                what = f"{operation.name} cannot have {results} results: it lists no more than {types} types"
                raise KprofError(what, where=module.position(operation.start), hint=GIVE_TTGIR)


_REGIONS_OF_LOOPS = {"scf.for": 1, "scf.while": 2}
