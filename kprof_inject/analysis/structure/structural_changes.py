"""Compare what a compiler made of a kernel in A and in B, line by line.

Lines are matched by their text if it is known, otherwise by their number, and then by what they do. Moved lines,
another folder or another version of the compiler are therefore no changes by themselves.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Generic, TypeVar

from msgspec import Struct

from kprof_inject.analysis.structure.features import CodeOf, Fact, Feature, Kind, Line, features_of, has_source_lines
from kprof_inject.quantities import counted
from kprof_inject.select.functions import functions_of
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.strings import STRING, without_locations

_T = TypeVar("_T")


class StructuralChange(Struct, frozen=True):
    """A difference between A and B, with the operations concerned."""

    id: str  # one word for programs
    text: str
    kind: Kind | None = None  # like ``line``, None if the change is about the whole kernel or a loop
    line: Line | None = None  # B's line, if B has one
    loop: str = ""
    operations_a: tuple[Operation, ...] = ()
    operations_b: tuple[Operation, ...] = ()

    @property
    def source(self) -> SourcePoint | None:
        """The source line, if known."""
        return self.line.source if self.line else None


def structural_changes(a: Module, b: Module, code_a: CodeOf, code_b: CodeOf) -> list[StructuralChange]:
    """Return the changes from A to B: first of the kernel as a whole, then by kind, in the order of B's text."""
    by_line = has_source_lines(a) and has_source_lines(b)
    features = features_of(a, code_a, by_line=by_line), features_of(b, code_b, by_line=by_line)
    return [*_module_changes(a, b), *_feature_changes(*features)]


# Attributes of a module and their messages, by the word for programs.
_ATTRIBUTES = {
    "target": ("ttg.target", "compiled for {} → {}"),
    "num_warps": ("ttg.num-warps", "{} → {} warps"),
    "num_ctas": ("ttg.num-ctas", "{} → {} CTAs in a cluster"),
    "warp_size": ("ttg.threads-per-warp", "{} → {} threads in a warp"),
    "maxnreg": ("ttg.maxnreg", "registers per thread limited to {} → {}"),
}


def _module_changes(a: Module, b: Module) -> Iterator[StructuralChange]:
    for word, (name, text) in _ATTRIBUTES.items():
        unknown = "no limit" if word == "maxnreg" else ""
        before, after = (module.attribute(name) or unknown for module in (a, b))
        if before and after and before != after:
            yield StructuralChange(word, text.format(before, after))
    before, after = (
        ", ".join(label for function in functions_of(module) for label, _, _ in function.partitions()) or "none"
        for module in (a, b)
    )
    if before != after:
        yield StructuralChange("partitions", f"partitions: {before} → {after}")


def _feature_changes(a: Sequence[Feature], b: Sequence[Feature]) -> list[StructuralChange]:
    order = {id(one): number for number, one in enumerate(b)}
    matched: Matched[Feature] = Matched([], [], [])
    for kind in Kind:
        in_a, in_b = ([one for one in side if one.kind == kind] for side in (a, b))
        of_kind = match_by_keys(in_a, in_b, _KEYS.get(kind, _EXACT))
        matched.pairs += sorted(of_kind.pairs, key=lambda pair: order[id(pair[1])])
        matched.only_a += of_kind.only_a
        matched.only_b += of_kind.only_b
    moved = [pair for pair in matched.pairs if bool(pair[0].loop) != bool(pair[1].loop)]
    same = {work for work, _ in _totals(a).items() & _totals(b).items()}
    kept = [*_loop_changes(moved)]
    for before, after in matched.pairs:
        if (before, after) not in moved:
            if before.times == after.times and before.operand != after.operand:
                kept.append(_change("operand", f"{before.operand} → {after.operand}", before, after))
            elif before.times != after.times and _work_in_loop(after) not in same:
                text = f"{before.times} x {before.operand} → {after.times} x {after.operand}"
                kept.append(_change("count", text, before, after))
        kept += _fact_changes(before, after)
    for word, side in (("new", matched.only_b), ("gone", matched.only_a)):
        for one in (one for one in side if _work_in_loop(one) not in same):
            times = f"{one.times} x " if one.times > 1 else ""
            named = f"{one.kind} of {times}{one.operand}" if one.operand else f"{times}{one.kind}"
            id_, operations = ("appeared", ((), one.operations)) if word == "new" else ("gone", (one.operations, ()))
            kept.append(StructuralChange(id_, f"{named}: {word}", one.kind, one.line, one.loop, *operations))
    # Loads and dots pass data through shared memory, so their changes cause its.
    loops = {change.loop for change in kept if (change.id, change.kind) in (("way", Kind.LOAD), ("count", Kind.DOT))}
    return [change for change in kept if change.kind != Kind.SHARED or change.loop not in loops]


def _work_in_loop(one: Feature) -> tuple[Kind, str, str]:
    return one.kind, one.loop, one.operand


def _totals(features: Sequence[Feature]) -> Counter[tuple[Kind, str, str]]:
    times: Counter[tuple[Kind, str, str]] = Counter()
    for one in features:
        times[_work_in_loop(one)] += one.times
    return times


_Keys = Sequence[Callable[[_T], Hashable]]

_EXACT: _Keys[Feature] = (
    lambda one: (one.line.identity, one.operand),
    lambda one: one.line.identity,
    lambda one: (one.line.own, one.loop, one.operand),
    lambda one: (one.line.own, one.operand),
    lambda one: (one.loop, one.operand),
    lambda one: one.operand,
    lambda one: (one.loop, one.times),
)
# The compiler moves these from line to line, so only their number in a loop matters.
_MOVABLE: _Keys[Feature] = (
    lambda one: (one.line.identity, one.operand),
    lambda one: (one.line.own, one.loop, one.operand),
    lambda one: (one.loop, one.operand, one.times),
    lambda one: (one.line.identity, one.loop),
    lambda one: (one.loop, one.times),
    lambda one: (one.line.own, one.operand),
)
_KEYS = dict.fromkeys((Kind.CONVERSION, Kind.SHARED, Kind.TENSOR_MEMORY, Kind.FENCE, Kind.SYNCHRONIZATION), _MOVABLE)


class Matched(Struct, Generic[_T]):
    """Pairs of objects of A and B, and the others."""

    pairs: list[tuple[_T, _T]]
    only_a: list[_T]
    only_b: list[_T]


def match_by_keys(a: Iterable[_T], b: Iterable[_T], keys: _Keys[_T]) -> Matched[_T]:
    """Match objects with equal keys other than None, in order, if both sides have equally many; best keys first."""
    found = Matched([], list(a), list(b))
    for key in keys:
        groups_a, groups_b = _grouped(found.only_a, key), _grouped(found.only_b, key)
        for value, group in groups_a.items():
            if value is not None and len(group) == len(groups_b[value]):
                found.pairs += zip(group, groups_b[value], strict=True)
        taken = {id(one) for pair in found.pairs for one in pair}
        left_a, left_b = ([one for one in left if id(one) not in taken] for left in (found.only_a, found.only_b))
        found = Matched(found.pairs, left_a, left_b)
    return found


def _grouped(found: Iterable[_T], key: Callable[[_T], Hashable]) -> defaultdict[Hashable, list[_T]]:
    groups: defaultdict[Hashable, list[_T]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return groups


def _loop_changes(moved: Sequence[tuple[Feature, Feature]]) -> Iterator[StructuralChange]:
    # One change for everything that a loop gained or lost together, for instance if the compiler unrolls it.
    for loop, pairs in _grouped(moved, lambda pair: pair[1].loop or pair[0].loop).items():
        counts = Counter(str(feature_b.kind) for _, feature_b in pairs)
        parts = ", ".join(counted(count, kind) for kind, count in counts.items())
        first = pairs[0][1]
        text = f"now in {loop}: {parts}" if first.loop else f"no longer in {loop}: {parts}"
        in_a, in_b = (tuple(one for pair in pairs for one in pair[side].operations) for side in (0, 1))
        yield StructuralChange("loop", text, None, first.line, first.loop, in_a, in_b)


def _fact_changes(a: Feature, b: Feature) -> Iterator[StructuralChange]:
    for name, message in _MESSAGES.items():
        before, after = a.facts.get(name), b.facts.get(name)
        if before == after or before is None or after is None:
            continue
        # Older versions print fewer sizes of an instruction: ``mfma 32x32`` may be ``mfma 32x32x8``.
        says_less = str(before).startswith(f"{after}x") or str(after).startswith(f"{before}x")
        counts_other_dots = name == "place" and str(before).partition(" of ")[2] != str(after).partition(" of ")[2]
        if not says_less and not counts_other_dots:
            yield _change(name, message(before, after), a, b)


def _change(id_: str, text: str, a: Feature, b: Feature) -> StructuralChange:
    line = b.line if b.line.source else a.line
    return StructuralChange(id_, f"{b.kind}: {text}", b.kind, line, b.loop or a.loop, a.operations, b.operations)


def _ahead(before: Fact, after: Fact) -> str:
    iterations = counted(int(after or before), "iteration")
    if not after:
        return f"no longer pipelined: issued {iterations} ahead → on use"
    return f"issued {before} → {iterations} ahead" if before else f"now pipelined: issued on use → {iterations} ahead"


_MESSAGES: dict[str, Callable[[Fact, Fact], str]] = {
    "ahead": _ahead,
    **dict.fromkeys(("way", "addresses", "instruction", "threads", "exchange", "memory-order"), "{} → {}".format),
    # A mask may allow less.
    "bits": "up to {} → {} bits per thread and access".format,
    "lanes": "a warp's threads are spread along dimension {} → {}".format,
    "warps": "warps {} → {}".format,
    "awaited": "awaited {} → {}".format,
    "conflicts": "{} → {} × the cycles without bank conflicts".format,
    "swizzle": "memory layout {} → {}".format,
    "pending": "{} → {} may be pending".format,
    "place": "after {} → {}".format,
    "predicated": lambda _, after: "now under a condition" if after else "no longer under a condition",
}


_NAME = re.compile(rf"{STRING}|(%[\w$.-]+)")
_DECLARED = re.compile(rf"{STRING}|(%[\w$.-]+)(?: =|: )")
_ALIAS = re.compile(rf"{STRING}|(?<![\w@])#[\w$.-]+")
_ALIAS_DEFINITION = re.compile(r"#[\w$.-]+ =")
_MAX_LAYOUT = 10_000  # characters; in a hostile file, layouts may double with each alias


class _CodeLine(Struct, frozen=True):
    number: int
    text: str  # the code with layouts in place of their aliases, and without the names of values
    names: list[str]
    given: set[str]  # results and arguments among ``names``


def differing_lines(a: Module, b: Module) -> list[tuple[int | None, int | None]]:
    """Return the numbers in A and B of lines with other code or values, from 1.

    Locations, comments, records and names do not count as code.
    """
    lines_a, lines_b = _code_of(a), _code_of(b)
    found: list[tuple[int | None, int | None]] = []
    b_of: dict[str, str] = {}
    a_of: dict[str, str] = {}
    matcher = SequenceMatcher(None, [line.text for line in lines_a], [line.text for line in lines_b])
    for tag, a_begin, a_end, b_begin, b_end in matcher.get_opcodes():
        for one, other in zip_longest(lines_a[a_begin:a_end], lines_b[b_begin:b_end]):
            # Values that a line gives are new ones: other regions and functions reuse names.
            for known, line in ((b_of, one), (a_of, other)):
                for name in line.given if line else ():
                    known.pop(name, None)
            names = zip(one.names, other.names, strict=True) if tag == "equal" else ()
            # Values seen for the first time correspond from then on.
            agree = [
                (b_of.setdefault(name_a, name_b), a_of.setdefault(name_b, name_a)) == (name_b, name_a)
                for name_a, name_b in names
            ]
            if tag != "equal" or not all(agree):
                found.append((one.number if one else None, other.number if other else None))
    return found


def _code_of(module: Module) -> list[_CodeLine]:
    layouts: dict[str, str] = {}

    def written_out(text: str) -> str:
        return _ALIAS.sub(lambda alias: layouts.get(alias[0], alias[0]), without_locations(text))

    for alias, body in module.aliases.items():
        layout = written_out(body)
        layouts[alias] = layout if len(layout) <= _MAX_LAYOUT else alias
    inserted = set(module.line_numbers([one.start for one in module.walk() if is_inserted(one)]))
    lines = []
    for number, printed in enumerate(module.text.split("\n"), 1):
        if number in inserted or _ALIAS_DEFINITION.match(printed) or not (text := written_out(printed)):
            continue
        names = list(filter(None, _NAME.findall(text)))
        results = text.partition(" = ")[0] if text.startswith("%") else ""
        given = {*_NAME.findall(results), *_DECLARED.findall(text)} - {""}
        lines.append(_CodeLine(number, _NAME.sub(lambda name: "%" if name[1] else name[0], text), names, given))
    return lines
