"""Compare what a compiler made of a kernel in A and in B, line by line.

Lines are matched by their text if it is known, otherwise by their number, and then by what they do. Moved lines,
another folder or another version of the compiler are therefore no changes by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from kprof_inject.analysis.structure.features import CodeOf, Fact, Feature, Kind, Line, features_of, has_source_lines
from kprof_inject.quantities import counted
from kprof_inject.select.functions import functions_of
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module, Operation

_T = TypeVar("_T")


class StructuralChange(Struct, frozen=True):
    """A difference between A and B."""

    id: str
    """One word for programs."""
    text: str
    """What changed, without the place."""
    kind: Kind | None = None
    """Like ``line``, None if the change is about the whole kernel or a loop."""
    line: Line | None = None
    """B's line, if B has one."""
    loop: str = ""
    operations_a: tuple[Operation, ...] = ()
    """The operations concerned, as in ``operations_b``."""
    operations_b: tuple[Operation, ...] = ()

    @property
    def source(self) -> SourcePoint | None:
        """The source line, if known."""
        return self.line.source if self.line else None


def structural_changes(a: Module, b: Module, code_a: CodeOf, code_b: CodeOf) -> list[StructuralChange]:
    """Return what changed from A to B.

    First the changes of the kernel as a whole, then by kind, in the order of B's text.
    """
    by_line = has_source_lines(a) and has_source_lines(b)
    features = features_of(a, code_a, by_line=by_line), features_of(b, code_b, by_line=by_line)
    return [*_module_changes(a, b), *_feature_changes(*features)]


def _feature_changes(a: Sequence[Feature], b: Sequence[Feature]) -> list[StructuralChange]:
    pairs, only_a, only_b = _matched(a, b)
    moved = [pair for pair in pairs if bool(pair[0].loop) != bool(pair[1].loop)]
    kept = [*_loop_changes(moved)]
    same = {work for work, _ in _totals(a).items() & _totals(b).items()}
    for feature_a, feature_b in pairs:
        if (feature_a, feature_b) not in moved:
            operands = feature_a.operand, feature_b.operand
            if feature_a.times == feature_b.times and operands[0] != operands[1]:
                kept.append(_change("operand", " → ".join(operands), feature_a, feature_b))
            elif feature_a.times != feature_b.times and _work_in_loop(feature_b) not in same:
                counts = (f"{one.times} x {one.operand}" for one in (feature_a, feature_b))
                kept.append(_change(_COUNT, " → ".join(counts), feature_a, feature_b))
        kept += _fact_changes(feature_a, feature_b)
    for one in only_b:
        if _work_in_loop(one) not in same:
            text = f"{_named(one)}: new"
            kept.append(StructuralChange("appeared", text, one.kind, one.line, one.loop, (), one.operations))
    for one in only_a:
        if _work_in_loop(one) not in same:
            text = f"{_named(one)}: gone"
            kept.append(StructuralChange("gone", text, one.kind, one.line, one.loop, one.operations, ()))
    # Loads and dots pass data through shared memory, so their changes cause its.
    causes = {(change.id, change.kind, change.loop) for change in kept}
    return [
        change
        for change in kept
        if change.kind != Kind.SHARED
        or causes.isdisjoint({("way", Kind.LOAD, change.loop), (_COUNT, Kind.DOT, change.loop)})
    ]


def _work_in_loop(one: Feature) -> tuple[Kind, str, str]:
    return one.kind, one.loop, one.operand


def _totals(features: Sequence[Feature]) -> Counter[tuple[Kind, str, str]]:
    times: Counter[tuple[Kind, str, str]] = Counter()
    for one in features:
        times[_work_in_loop(one)] += one.times
    return times


_EXACT: tuple[Callable[[Feature], Hashable], ...] = (
    lambda one: (one.kind, one.line.identity, one.operand),
    lambda one: (one.kind, one.line.identity),
    lambda one: (one.kind, one.line.own, one.loop, one.operand),
    lambda one: (one.kind, one.line.own, one.operand),
    lambda one: (one.kind, one.loop, one.operand),
    lambda one: (one.kind, one.operand),
    lambda one: (one.kind, one.loop, one.times),
)
# The compiler moves these from line to line, so only their number in a loop matters.
_MOVABLE: tuple[Callable[[Feature], Hashable], ...] = (
    lambda one: (one.kind, one.line.identity, one.operand),
    lambda one: (one.kind, one.line.own, one.loop, one.operand),
    lambda one: (one.kind, one.loop, one.operand, one.times),
    lambda one: (one.kind, one.line.identity, one.loop),
    lambda one: (one.kind, one.loop, one.times),
    lambda one: (one.kind, one.line.own, one.operand),
)
_KEYS = dict.fromkeys((Kind.CONVERSION, Kind.SHARED, Kind.TENSOR_MEMORY, Kind.FENCE, Kind.SYNCHRONIZATION), _MOVABLE)


def _matched(
    a: Sequence[Feature], b: Sequence[Feature]
) -> tuple[list[tuple[Feature, Feature]], list[Feature], list[Feature]]:
    pairs: list[tuple[Feature, Feature]] = []
    only_a: list[Feature] = []
    only_b: list[Feature] = []
    order = {id(one): number for number, one in enumerate(b)}
    for kind in Kind:
        kind_a, kind_b = ([one for one in side if one.kind == kind] for side in (a, b))
        found, left_a, left_b = match_by_keys(kind_a, kind_b, _KEYS.get(kind, _EXACT))
        pairs += sorted(found, key=lambda pair: order[id(pair[1])])
        only_a += left_a
        only_b += left_b
    return pairs, only_a, only_b


def match_by_keys(
    a: Sequence[_T], b: Sequence[_T], keys: Sequence[Callable[[_T], Hashable]]
) -> tuple[list[tuple[_T, _T]], list[_T], list[_T]]:
    """Match objects with equal keys, in order, if both sides have equally many; return what is left of A and B, too.

    ``keys`` begin with the most reliable one. None is not a key.
    """
    pairs: list[tuple[_T, _T]] = []
    left_a, left_b = list(a), list(b)
    for key in keys:
        groups_a, groups_b = _grouped(left_a, key), _grouped(left_b, key)
        for value, group in groups_a.items():
            if value is not None and len(group) == len(groups_b.get(value, ())):
                pairs += zip(group, groups_b[value], strict=True)
        taken = {id(one) for pair in pairs for one in pair}
        left_a, left_b = ([one for one in left if id(one) not in taken] for left in (left_a, left_b))
    return pairs, left_a, left_b


def _grouped(found: Iterable[_T], key: Callable[[_T], Hashable]) -> dict[Hashable, list[_T]]:
    groups: dict[Hashable, list[_T]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return groups


_COUNT = "count"


def _loop_changes(moved: Sequence[tuple[Feature, Feature]]) -> Iterator[StructuralChange]:
    """Yield one change for everything that a loop gained or lost together, for instance if the compiler unrolls it."""
    for loop, pairs in _grouped(moved, lambda pair: pair[1].loop or pair[0].loop).items():
        counts = Counter(str(feature_b.kind) for _, feature_b in pairs)
        parts = ", ".join(counted(count, kind) for kind, count in counts.items())
        into = bool(pairs[0][1].loop)
        yield StructuralChange(
            "loop",
            f"now in {loop}: {parts}" if into else f"no longer in {loop}: {parts}",
            line=pairs[0][1].line,
            loop=str(loop) if into else "",
            operations_a=tuple(one for feature_a, _ in pairs for one in feature_a.operations),
            operations_b=tuple(one for _, feature_b in pairs for one in feature_b.operations),
        )


def _fact_changes(a: Feature, b: Feature) -> Iterator[StructuralChange]:
    for name, message in _MESSAGES.items():
        before, after = a.facts.get(name), b.facts.get(name)
        if before == after or (name != "predicated" and None in (before, after)):
            continue
        # Older versions print fewer sizes of an instruction: ``mfma 32x32`` may be ``mfma 32x32x8``.
        says_less = str(before).startswith(f"{after}x") or str(after).startswith(f"{before}x")
        counts_other_dots = name == "place" and str(before).partition(" of ")[2] != str(after).partition(" of ")[2]
        if not says_less and not counts_other_dots:
            yield _change(name, message(before, after), a, b)


def _change(id_: str, text: str, a: Feature, b: Feature) -> StructuralChange:
    loop = b.loop or a.loop
    line = b.line if b.line.source else a.line
    return StructuralChange(id_, f"{b.kind}: {text}", b.kind, line, loop, a.operations, b.operations)


def _ahead(before: Fact | None, after: Fact | None) -> str:
    iterations = counted(int(after or before or 0), "iteration")
    if not after:
        return f"no longer pipelined: issued {iterations} ahead → on use"
    return f"issued {before} → {iterations} ahead" if before else f"now pipelined: issued on use → {iterations} ahead"


_MESSAGES: dict[str, Callable[[Fact | None, Fact | None], str]] = {
    "ahead": _ahead,
    **dict.fromkeys(
        ("way", "addresses", "instruction", "threads", "exchange", "memory-order"),
        lambda before, after: f"{before} → {after}",
    ),
    # A mask may allow less.
    "bits": lambda before, after: f"up to {before} → {after} bits per thread and access",
    "lanes": lambda before, after: f"a warp's threads are spread along dimension {before} → {after}",
    "warps": lambda before, after: f"warps {before} → {after}",
    "awaited": lambda before, after: f"awaited {before} → {after}",
    "conflicts": lambda before, after: f"{before} → {after} × the cycles without bank conflicts",
    "swizzle": lambda before, after: f"memory layout {before or 'plain'} → {after or 'plain'}",
    "pending": lambda before, after: f"{before} → {after} may be pending",
    "place": lambda before, after: f"after {before} → {after}",
    "predicated": lambda _, after: "now under a condition" if after else "no longer under a condition",
}


def _named(one: Feature) -> str:
    times = f"{one.times} x " if one.times > 1 else ""
    return f"{one.kind} of {times}{one.operand}" if one.operand else f"{times}{one.kind}"


_ATTRIBUTES = {
    "target": ("ttg.target", "compiled for {} → {}"),
    "num_warps": ("ttg.num-warps", "{} → {} warps"),
    "num_ctas": ("ttg.num-ctas", "{} → {} CTAs in a cluster"),
    "warp_size": ("ttg.threads-per-warp", "{} → {} threads in a warp"),
    "maxnreg": ("ttg.maxnreg", "registers per thread limited to {} → {}"),
}
"""Attributes of a module and their messages, by the word for programs."""


def _module_changes(a: Module, b: Module) -> Iterator[StructuralChange]:
    for word, (name, text) in _ATTRIBUTES.items():
        unknown = "no limit" if word == "maxnreg" else ""
        before, after = (module.attribute(name) or unknown for module in (a, b))
        if before and after and before != after:
            yield StructuralChange(word, text.format(before, after))
    partitions_a, partitions_b = (
        ", ".join(label for function in functions_of(module) for label, _, _ in function.partitions()) or "none"
        for module in (a, b)
    )
    if partitions_a != partitions_b:
        yield StructuralChange("partitions", f"partitions: {partitions_a} → {partitions_b}")
