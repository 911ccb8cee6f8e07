"""Code of two modules in terms of both, if only one of them is printed in MLIR's generic form.

The generic form prints all operands, types and attributes of an operation. The custom form omits defaults and what
follows from the rest, and has words for what the generic form numbers. So a line has what both print: the operation's
name, its operands, strings, symbols and blocks; those attributes that the custom form puts in braces or the tables here
have words for; and the types of constants, arguments and results if the custom form has an arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.dialect import FUNCTION, MODULES, PARTITIONS, WARP_SPECIALIZE, YIELD
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.ssa_values import (
    argument_names,
    argument_types,
    block_arguments,
    bound_names,
    label_text,
    result_names,
)
from kprof_inject.ttgir.strings import STRING, without_locations
from kprof_inject.ttgir.types import closing_bracket, printed_types

_STRING = re.compile(STRING)
_PLACEHOLDER = re.compile(r'"(\d+)"')
_STRING_OR_VALUE = re.compile(rf"{STRING}|%[\w$.-]+(?:#[0-9]+)?")
_STRING_OR_SIGN = re.compile(rf"{STRING}|[,(<{{\[]")
_VALUE = re.compile(r"%[\w$.-]+(?:#[0-9]+)?")
_BOUND = re.compile(r"%[\w$.-]+\s*=")
_BLOCK = re.compile(r"\^[\w$.-]+")
_SYMBOL = re.compile(rf"@(?:{STRING}|[\w$.-]+)")
_BRACES = re.compile(r"<?\{|#[\w$.-]+<")
_LEADING_WORDS = re.compile(r"\s*((?:[a-z]\w*,?\s+)+)")
_NUM_WARPS = re.compile(r"\bnum_warps\((\d+)\)")
_NUMBER = re.compile(r"(?<![\w.%#])-?\d+(?![\w.])")
_INLINE = re.compile(r"(?<![\w.])(\w+) = (\w+)")
_FLAGS = re.compile(r"(?<![\w.])(fastmath|overflow)<([\w, ]+)>")
_ARROW = re.compile(r"->| to ")
_ARGUMENT_TYPE = re.compile(r"%[\w$.-]+: ([^\s,)]+)")
_ARGUMENT_ATTRIBUTE = re.compile(r"\btt\.\w+ = [^,}\]]+")

# Values that count as absent: the custom form omits some of them and prints others.
_AS_GOOD_AS_NONE = frozenset({"-", "0", "false", "none", "ieee", "array<i32>"})

# Attributes that are compared even if a module in the custom form does not have them, as it omits what is true.
_ALWAYS_COMPARED = ("boundaryCheck", "maxNumImpreciseAcc")
_DEFAULTS = {"contiguity": "1", "lhs_k_pack": "true", "rhs_k_pack": "true"}

# Words of the custom form for the numbers of attributes, from 0 on: TritonAttrDefs.td, ArithBase.td.
_ENUMERATIONS = {
    "axis": "x y z",
    "atomic_rmw_op": "- and or xor add fadd max min umax umin exch",
    "sem": "- relaxed acquire release acq_rel",
    "scope": "- gpu cta sys",
    "cache": "- none ca cg wb cs wt cv",
    "evict": "- none evict_first evict_last",
    "inputPrecision": "tf32 tf32x3 ieee bf16x3 bf16x6",
    "rounding": "rtz rtne",
    "a_elem_type": "e4m3 e5m2 e2m3 e3m2 e2m1 bf16 fp16",
    "b_elem_type": "e4m3 e5m2 e2m3 e3m2 e2m1 bf16 fp16",
}
_PREDICATES = {
    "arith.cmpi": "eq ne slt sle sgt sge ult ule ugt uge",
    "arith.cmpf": "false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true",
}
_GENERIC_NAME = {"cacheModifier": "cache", "evictionPolicy": "evict", "lhs": "a_elem_type", "rhs": "b_elem_type"}
_GENERIC_FLAGS = {"fastmath": "fastmath", "overflow": "overflowFlags"}
# Meaning of an operation's first words.
_LEADING = {
    **dict.fromkeys(("tt.get_program_id", "tt.get_num_programs"), ("axis",)),
    **dict.fromkeys(("tt.atomic_rmw", "amdg.buffer_atomic_rmw"), ("atomic_rmw_op", "sem", "scope")),
    **dict.fromkeys(("tt.atomic_cas", "amdg.buffer_atomic_cas"), ("sem", "scope")),
    **dict.fromkeys(_PREDICATES, ("predicate",)),
}
# The attribute of which the custom form prints only the numbers.
_NUMBERS = {
    "ttg.memdesc_subslice": "offsets",
    "ttng.arrive_barrier": "count",
    "ttng.init_barrier": "count",
    "ttng.barrier_expect": "size",
    "rocdl.s.setprio": "priority",
    "rocdl.sched.barrier": "mask",
}


def is_generic(module: Module) -> bool:
    """Return True if a module is printed in the generic form."""
    return any(one.name in MODULES and one.tail.startswith("(") for one in module.operations)


class TwoForms:
    """The comparable parts of two modules, one in the custom and one in the generic form."""

    def __init__(self, custom: Module, generic: Module) -> None:
        """Determine from both modules what is comparable."""
        self._in_braces: dict[str, set[str]] = {}
        self._with_strings: set[str] = set()
        with_type: set[str] = set()
        for one in custom.walk():
            parts = _Parts.of(one)
            self._in_braces.setdefault(_name(one), set()).update(parts.attributes)
            if '""' in parts.head:
                self._with_strings.add(one.name)
            if not one.regions and _ARROW.search(parts.head):
                with_type.add(one.name)
        self._with_type: set[str] = set()
        for one in generic.walk():
            if one.name in with_type:
                parts = _Parts.of(one)
                if _ARROW.search(parts.head) and printed_types(_last_type(parts)):
                    self._with_type.add(one.name)

    def pieces(self, module: Module) -> Iterator[tuple[int, str]]:
        """Yield the comparable parts of each operation, and of where its regions begin and end, with their offsets.

        The custom form omits empty regions, ``scf.yield`` of nothing, and the operation that holds the partitions.
        """
        waiting: list[Operation | tuple[int, str]] = list(reversed(module.operations))
        while waiting:
            one = waiting.pop()
            if isinstance(one, tuple):
                yield one
            elif not is_inserted(one) and not (one.name == YIELD and "%" not in one.tail):
                regions, passed = _regions_of(one)
                inside: list[Operation | tuple[int, str]] = []
                for region in regions:
                    for number, block in enumerate(region.blocks):
                        arguments = ", ".join(f"{name}: " for name in _arguments(module, region, number))
                        inside += [(block.start, f"^{number}({arguments})"), *block.operations]
                    inside.append((region.end, "}"))
                waiting += reversed(inside)
                if one.name == FUNCTION:
                    yield one.start, _function(module, one)
                elif one.name == WARP_SPECIALIZE:
                    # The custom form prints the number of warps with each region.
                    clauses = " ".join(label_text(module, region, region.blocks[0]) for region in one.regions)
                    counts = " ".join(_NUM_WARPS.findall(clauses))
                    warps = _NUMBER.findall(_Parts.of(one).attributes.get("partitionNumWarps", counts))
                    yield one.start, f"{self._text(one, passed)} {' '.join(warps)}"
                else:
                    yield one.start, f"{self._text(one, passed)} "

    def _text(self, one: Operation, passed: Sequence[str]) -> str:
        parts = _Parts.of(one)
        in_braces = self._in_braces.get(_name(one), set())
        operands = [*_VALUE.findall(_BOUND.sub("", parts.head)), *passed]
        if parts.is_generic and one.name in _REORDERED:
            operands = _REORDERED[one.name](parts.groups(operands))
        attributes: dict[str, str] = {}
        for name, value in parts.attributes.items():
            is_comparable = name in in_braces or name in _ALWAYS_COMPARED or value == "true"
            if is_comparable and name not in ("value", *_ENUMERATIONS):
                attributes[name] = value
        attributes |= _in_words(one.name, parts)
        words = sorted(
            f"{name} = {value}"
            for name, value in attributes.items()
            if value.partition(" :")[0] not in (*_AS_GOOD_AS_NONE, _DEFAULTS.get(name))
        )
        words += [*_BLOCK.findall(parts.head), *_SYMBOL.findall(one.tail)]
        if one.name in self._with_strings:
            unnamed = [value for name, value in parts.attributes.items() if name not in in_braces]
            words += sorted([*parts.strings, *_STRING.findall(" ".join(unnamed))])
        if one.name == "arith.constant":
            words.append(parts.attributes.get("value") or parts.head.strip())
        if one.name in self._with_type and one.results:
            words.append(_last_type(parts))
        results = f"{', '.join(result_names(one))} = " if one.results else ""
        text = f"{results}{_name(one)}({', '.join(operands)}) {' '.join(words)}"
        # Without # in names: one form prints several results as %x:2, the other each one.
        return _STRING_OR_VALUE.sub(
            lambda found: found[0].replace("#", ".") if found[0].startswith("%") else found[0], text
        )


def _name(one: Operation) -> str:
    return MODULES[0] if one.name in MODULES else one.name


def _function(module: Module, function: Operation) -> str:
    entry = label_text(module, function.regions[0], function.regions[0].blocks[0]) if function.regions else ""
    types = argument_types(function) or _ARGUMENT_TYPE.findall(entry)
    return " ".join([FUNCTION, *types, *_ARGUMENT_ATTRIBUTE.findall(function.tail)])


def _regions_of(one: Operation) -> tuple[list[Region], list[str]]:
    """Return an operation's regions in the order of the generic form, and the operands of an operation within.

    Of a warp specialization, these are the operands of the operation that holds the partitions.
    """
    # The printer of scf.index_switch puts its default, which is the first region, after the cases.
    regions = sorted(one.regions, key=lambda region: region.clause != "default")
    passed: list[str] = []
    if one.name == WARP_SPECIALIZE and len(regions) > 1:
        holder = next(iter(regions[1].blocks[0].operations), None)
        if holder is not None and holder.name == PARTITIONS:
            passed = _VALUE.findall(holder.tail)
            regions = [regions[0], *holder.regions]
    return [region for region in regions if any(one.name != YIELD or "%" in one.tail for one in region.walk())], passed


def _arguments(module: Module, region: Region, number: int) -> list[str]:
    arguments = block_arguments(module, region, region.blocks[number])
    owner = region.operation
    if number == 0 and region is owner.regions[0] and not arguments:
        return argument_names(module, owner) if owner.name == FUNCTION else bound_names(owner)
    return arguments


class _Parts(Struct, frozen=True):
    is_generic: bool
    head: str
    """The text without the attributes in braces, with empty strings."""
    attributes: dict[str, str]
    """The attributes in braces."""
    strings: list[str]
    """The strings in ``head``."""

    @classmethod
    def of(cls, one: Operation) -> _Parts:
        printed = one.tail
        if one.regions:
            printed = f"{printed.rstrip().removesuffix('{').removesuffix('(')} {one.closing.lstrip('})')}"
        strings: list[str] = []

        # Strings may contain brackets.
        def put_away(found: re.Match[str]) -> str:
            strings.append(found[0])
            return f'"{len(strings) - 1}"'

        text = _STRING.sub(put_away, without_locations(printed))
        attributes: dict[str, str] = {}
        kept: list[str] = []
        done = place = 0
        while found := _BRACES.search(text, place):
            end = closing_bracket(text, found.end())
            place = end + len(found[0])
            if found[0].startswith("#"):  # a layout, which may have braces of its own
                place = end + 1
                continue
            for attribute in _split(text[found.end() : end]):
                name, _, value = _PLACEHOLDER.sub(lambda found: strings[int(found[1])], attribute).partition(" = ")
                attributes[name] = value or "true"
            kept.append(text[done : found.start()])
            done = place
        head = "".join([*kept, text[done:]])
        outside = [strings[int(number)] for number in _PLACEHOLDER.findall(head)]
        return cls(one.tail.startswith("("), _PLACEHOLDER.sub('""', head), attributes, outside)

    def groups(self, operands: Sequence[str]) -> list[list[str]]:
        """Return the operands in groups, as the generic form counts them."""
        groups: list[list[str]] = []
        done = 0
        for size in map(int, _NUMBER.findall(self.attributes.get("operandSegmentSizes", ""))):
            groups.append([*operands[done : done + size]])
            done += size
        return groups or [[operand] for operand in operands]


def _split(text: str) -> Iterator[str]:
    done = place = 0
    for found in _STRING_OR_SIGN.finditer(text):
        if found.start() < place:
            continue
        if found[0] in "([{<":
            place = closing_bracket(text, found.end())
        elif found[0] == ",":
            yield text[done : found.start()].strip()
            done = found.end()
    if text[done:].strip():
        yield text[done:].strip()


def _in_words(name: str, parts: _Parts) -> dict[str, str]:
    """Return the attributes for which the custom form has words, or numbers without a name."""
    found: dict[str, str] = {}
    for attribute, words in {**_ENUMERATIONS, "predicate": _PREDICATES.get(name, "")}.items():
        number = parts.attributes.get(attribute, "").partition(" :")[0]
        if number.isdigit() and int(number) < len(words.split()):
            found[attribute] = words.split()[int(number)]
    for key, word in _INLINE.findall(parts.head):
        if (attribute := _GENERIC_NAME.get(key, key)) in _ENUMERATIONS:
            found[attribute] = word
    if leading := _LEADING_WORDS.match(parts.head):
        found |= dict(zip(_LEADING.get(name, ()), leading[1].replace(",", " ").split(), strict=False))
    for flag, attribute in _GENERIC_FLAGS.items():
        printed = _FLAGS.search(f"{parts.head} {parts.attributes.get(attribute, '')}")
        found[flag] = printed[2] if printed and printed[1] == flag else "none"
    if name in _NUMBERS:
        printed_numbers = parts.attributes.get(_NUMBERS[name], parts.head.partition(" : ")[0])
        found[_NUMBERS[name]] = " ".join(_NUMBER.findall(printed_numbers))
    return found


def _last_type(parts: _Parts) -> str:
    types = _ARROW.split(parts.head)[-1].strip()
    listed = [*_split(types.removeprefix("(").removesuffix(")") if types.startswith("(") else types)]
    return listed[-1] if listed else ""


_Groups = Sequence[Sequence[str]]


def _flat(*groups: Sequence[str]) -> list[str]:
    return [operand for group in groups for operand in group]


_REORDERED: Mapping[str, Callable[[_Groups], list[str]]] = {
    "amdg.buffer_atomic_cas": lambda groups: _flat(*groups[2:4], *groups[:2], *groups[4:]),
    "amdg.buffer_atomic_rmw": lambda groups: _flat(groups[2], *groups[:2], *groups[4:], groups[3]),
    "amdg.buffer_load": lambda groups: _flat(*groups[:2], *groups[3:], groups[2]),
    "amdg.buffer_load_to_local": lambda groups: _flat(*groups[1:], groups[0]),
    "amdg.buffer_store": lambda groups: _flat(*groups[:3], *groups[4:], groups[3]),
    "tt.dot_scaled": lambda groups: _flat(groups[0], *groups[3:4], groups[1], *groups[4:], groups[2]),
    "ttng.async_tma_copy_global_to_local": lambda groups: _flat(*groups[:-3], groups[-2], groups[-3], groups[-1]),
    "ttng.tmem_store": lambda groups: _flat(groups[-2], *groups[:-2], groups[-1]),
    # Each barrier is printed with its predicate.
    **dict.fromkeys(
        ("ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled"),
        lambda groups: _flat(*groups[:-2], *zip(*groups[-2:], strict=False)),
    ),
}
"""The order of the custom form, for operations whose operands it prints in another order than the generic form."""
