"""Ways to damage a module such that it still reads like TTGIR: operands, results, counts, types, attributes, regions
and numbers that do not fit. Each takes a module and a source of chance, and gives a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from kprof_inject.ttgir.nodes import Module, Operation

Damage = Callable[[Module, Random], str]

HUGE = (1 << 20, 400_000_000, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, 10**19, 10**30, 10**400)
NUMBERS = (-(1 << 63), -(1 << 31), -7, -1, 0, 0, 1, 3, 5, 33, 4097, *HUGE)
_LONGEST = 10**4500  # more digits than Python takes for an int

_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULT = re.compile(r"%[\w$.-]+(?::\d+)?(?=[,= ])")
_NUMBER = re.compile(r"(?<![\w.%#^@\"-])-?\d+(?![\w.:])")
# Also in names of values and types: ``%acc_12``, ``128x64xf16``.
_DIGITS = re.compile(r"\d+")
_TYPE = re.compile(
    r"(?:tensor|!ttg\.memdesc|!tt\.ptr|!tt\.tensordesc)<[^<>]*(?:<[^<>]*>[^<>]*)*>|\b(?:i|f|bf)\d+\b|\bindex\b"
)
_ATTRIBUTE = re.compile(r"(?:\{[^{}\n]*\}|\b\w+ = [^,{}<>\n]+|\b\w+ = \[[^\]\n]*\])")
_LIST = re.compile(r"\[[\d, -]+\]")


def _operations(module: Module) -> list[Operation]:
    """Without the module itself, so that its text is that of one operation."""
    return [one for one in module.walk() if one.block is not None]


def _in_head(module: Module, chance: Random, pattern: re.Pattern[str], change: Callable[[str], str]) -> str:
    """Change what matches in the line of an operation, at one place."""
    for _ in range(20):
        one = chance.choice(_operations(module))
        first = one.regions[0].blocks[0].start if one.regions else one.end
        found = list(pattern.finditer(module.text, one.start, first))
        if found:
            place = chance.choice(found)
            return module.text[: place.start()] + change(place[0]) + module.text[place.end() :]
    return module.text


def change_operand(module: Module, chance: Random) -> str:
    """One is lost, comes twice, or another stands in its place."""
    how = chance.choice(("lost", "lost", "twice", "twice", "other", "other", "undefined"))
    if how == "lost":
        return _in_head(module, chance, re.compile(rf", {_VALUE.pattern}|{_VALUE.pattern}(?:, )?"), lambda _: "")
    if how == "twice":
        times = chance.choice((2, 2, 3, 50))
        return _in_head(module, chance, _VALUE, lambda text: ", ".join([text] * times))
    other = chance.choice(_VALUE.findall(module.text) or ["%x"]) if how == "other" else "%undefined"
    return _in_head(module, chance, _VALUE, lambda _: other)


def swap_operands(module: Module, chance: Random) -> str:
    pair = re.compile(rf"({_VALUE.pattern}), ({_VALUE.pattern})")
    return _in_head(module, chance, pair, lambda text: ", ".join(text.split(", ")[::-1]))


def change_result_count(module: Module, chance: Random) -> str:
    results = [one for one in _operations(module) if one.results]
    if not results:
        return module.text
    one = chance.choice(results)
    name = _VALUE.search(one.results)
    count = chance.choice((0, 1, 2, 3, 7, 100, *HUGE))
    how = chance.choice(("counted", "counted", "counted", "lost", "more"))
    if name is None:
        return module.text
    text = {"counted": f"{name[0]}:{count} = ", "lost": "", "more": f"{name[0]}, %more = "}[how]
    place = module.text.find(one.results, one.start) if one.results else one.start
    return module.text[:place] + text + module.text[place + len(one.results) :].lstrip(" ")


def change_type(module: Module, chance: Random) -> str:
    """One is lost, or another stands in its place."""
    types = _TYPE.findall(module.text)
    other = chance.choice((chance.choice(types or [""]), chance.choice(types or [""]), "", "index", "tensor<xf32>"))
    return _in_head(module, chance, _TYPE, lambda _: other)


def change_attribute(module: Module, chance: Random) -> str:
    """Also of an alias: layouts are attributes."""
    found = list((_LIST if chance.random() < 0.4 else _ATTRIBUTE).finditer(module.text))
    if not found:
        return module.text
    place = chance.choice(found)
    other = chance.choice(("", "[]", "{}", "[1]", "[0, 0]", "[1, 2, 4, 8]", "[-1, 1]", chance.choice(found)[0]))
    return module.text[: place.start()] + other + module.text[place.end() :]


def change_number(module: Module, chance: Random) -> str:
    """Anywhere: a dimension, a bound, a count, a layout's vector, a line."""
    found = list((_DIGITS if chance.random() < 0.4 else _NUMBER).finditer(module.text))
    if not found:
        return module.text
    place = chance.choice(found)
    value = chance.choice((*NUMBERS, None))
    number = "9" * 5000 if value is None else str(value)
    return module.text[: place.start()] + number + module.text[place.end() :]


def change_constant(module: Module, chance: Random) -> str:
    """The bounds and steps of loops are constants, or made of them."""
    found = list(re.finditer(r"(?<=arith\.constant )(?:dense<)?-?\d+|(?<=start = )\d+|(?<=end = )\d+", module.text))
    if not found:
        return module.text
    place = chance.choice(found)
    begin = "dense<" if place[0].startswith("dense<") else ""
    return module.text[: place.start()] + begin + str(chance.choice(NUMBERS)) + module.text[place.end() :]


def move_operation(module: Module, chance: Random) -> str:
    """One is lost, comes twice, or stands elsewhere: with its regions."""
    one, other = chance.choice(_operations(module)), chance.choice(_operations(module))
    how = chance.choice(("lost", "lost", "twice", "elsewhere", "many"))
    text, piece = module.text, module.text[one.start : one.end]
    if how == "lost":
        return text[: one.start] + text[one.end :]
    if how == "twice":
        return text[: one.end] + piece + text[one.end :]
    if how == "many":
        piece = piece * min(300, 1 + 100_000 // max(len(piece), 1))
    return text[: other.start] + piece + text[other.start :]


def change_terminator(module: Module, chance: Random) -> str:
    """A block's end is lost, passes nothing on, or ends in another way."""
    ends = [one for one in _operations(module) if one.traits.is_terminator]
    if not ends:
        return module.text
    one = chance.choice(ends)
    others = ("", one.name, "scf.yield", "tt.return", "scf.condition(%x)", "scf.condition", "cf.br ^bb1", "cf.cond_br")
    return module.text[: one.start] + chance.choice(others) + "\n" + module.text[one.end :]


def change_region(module: Module, chance: Random) -> str:
    """One is empty, or that of another operation; or an operation has one more, or lost one."""
    nests = [one for one in _operations(module) if one.regions]
    if not nests:
        return module.text
    one, other = chance.choice(nests), chance.choice(nests)
    region, its = chance.choice(one.regions), chance.choice(other.regions)
    text, how = module.text, chance.choice(("empty", "other", "lost", "more", "no else"))
    begin, end = region.blocks[0].start, region.end
    if how == "empty":
        return text[:begin] + text[end:]
    if how == "other":
        return text[:begin] + text[its.blocks[0].start : its.end] + text[end:]
    if how == "more":
        return text[:end] + "}, {\n" + text[begin:end] + text[end:]
    if how == "no else" and len(one.regions) > 1:
        return text[: one.regions[0].end] + text[one.regions[-1].end :]
    opened = text.rfind("{", one.start, begin)
    return text[:opened] + text[one.regions[-1].end + 1 :] if opened > 0 else text


def rename_operation(module: Module, chance: Random) -> str:
    """One does what another does, with its own operands."""
    one, other = chance.choice(_operations(module)), chance.choice(_operations(module))
    place = module.text.find(one.name, one.start)
    return module.text[:place] + other.name + module.text[place + len(one.name) :]


def rename_value(module: Module, chance: Random) -> str:
    """Two values have one name."""
    names = _VALUE.findall(module.text)
    if not names:
        return module.text
    one, other = chance.choice(names), chance.choice(names)
    return re.sub(rf"{re.escape(one)}(?![\w$.#-])", other, module.text)


def drop_alias(module: Module, chance: Random) -> str:
    lines = module.text.splitlines(keepends=True)
    aliases = [number for number, line in enumerate(lines) if re.match(r"#[\w$.-]+ *=", line)]
    if not aliases:
        return module.text
    at = chance.choice(aliases)
    return "".join([*lines[:at], *lines[at + 1 :]])


def nest_loops(module: Module, chance: Random) -> str:
    """An operation stands in many loops, which nobody can count."""
    one = chance.choice(_operations(module))
    depth = chance.choice((3, 12, 39, 100))
    bound = chance.choice(_VALUE.findall(module.text) or ["%x"])
    head = chance.choice(
        (
            f"scf.for %i = {bound} to {bound} step {bound} : i32 {{\n",
            f"scf.for %i = {bound} to %n step {bound} iter_args(%a = {bound}) -> (i32) : i32 {{\n",
            f"scf.while (%a = {bound}) : (i32) -> i32 {{\nscf.condition({bound}) %a : i32\n}} do {{\n^bb0(%a: i32):\n",
        )
    )
    nested = head * depth + module.text[one.start : one.end] + "}\n" * depth
    return module.text[: one.start] + nested + module.text[one.end :]


DAMAGES: tuple[Damage, ...] = (
    change_operand,
    change_operand,
    swap_operands,
    change_result_count,
    change_type,
    change_attribute,
    change_number,
    change_number,
    change_constant,
    move_operation,
    change_terminator,
    change_region,
    rename_operation,
    rename_value,
    drop_alias,
    nest_loops,
)
