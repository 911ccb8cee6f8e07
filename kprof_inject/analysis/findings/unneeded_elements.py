"""Elements that are loaded or computed although no result needs them: masked, or on the other side of a choice."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import reduce
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.evidence import Evidence, accesses_in, elements_of
from kprof_inject.analysis.findings.finding import Waste, row
from kprof_inject.analysis.findings.loaded_again import of_each_cta
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import CTA, Mask, TooLarge, joined, loop_axis
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.limits.limit import POSSIBLE
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM, SHARED, UNITS_OF_SM
from kprof_inject.analysis.structure.values import Uses
from kprof_inject.quantities import percent
from kprof_inject.ttgir.dialect import DOT_WAIT
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import operand_names, result_names
from kprof_inject.ttgir.types import types_of

_MIN_UNNEEDED = 0.15  # of an operation's bytes, iterations or elements
_POSSIBLY_HIDDEN, _POSSIBLY_MASKED = 0.9, 0.9  # of the elements, and of the iterations, by loaded data
_MAX_CHAIN = 32
_SELECT, _STORE = "arith.select", "tt.store"
# Constants that are added to what a softmax keeps, and to what it hides: -inf, or a number such as -1.0e+06.
_ZERO = re.compile(r"dense<0\.0+e\+00>")
_HUGE = re.compile(r"dense<(?:0xFF800000|0xFC00|-\d\.\d+e\+(?:0[4-9]|[1-3]\d))>")
_MAX_USED = 0.5
_WIDE_KEY_BITS = 64
_MIN_STEPS = 4  # combining operations at one place from which it counts as a sort
_FEW_OF_SORT = (
    "do not sort everything for a few: use tl.topk, or for a handful, repeat tl.max or tl.argmax with earlier results "
    "masked out"
)
_MIN_PADDED = 0.2  # masked lanes take as long as others: a tile that is larger than its data computes for nothing
_OTHER_TILE = "choose a tile that divides the data, or compose it of two powers of two (384 of 256 and 128)"
_SHORTER_LOOP = (
    "end the loop where this CTA's own data ends: load its length, and iterate up to that, not to the largest of all"
)


class Demand(Struct, frozen=True):
    """The elements of a value that results need."""

    mask: Mask
    deciding: tuple[Operation, ...] = ()  # the selects and stores that decide on the mask
    chosen: tuple[Operation, ...] = ()  # selects by loaded data: each element needs one of their two operands


_ALL = Demand(Mask())


class Demands:
    """The elements of each value that the sampled CTAs' results need."""

    def __init__(self, evidence: Evidence) -> None:
        self._uses = evidence.uses
        self._executed = {one.operation: one.executed for one in evidence.sample}
        self._known: dict[tuple[Operation, str], Demand] = {}

    def of(self, operation: Operation, depth: int = _MAX_CHAIN, result: str = "") -> Demand:
        """Return the elements that are needed of an operation's result, or of its result of this name."""
        if (operation, result) not in self._known:
            self._known[operation, result] = self._demand(operation, depth, result)
        return self._known[operation, result]

    def _demand(self, operation: Operation, depth: int, result: str) -> Demand:
        if depth and operation.traits.is_dot and (select := self._additive_mask(operation, 2)):
            return self._by_select(select, 1, depth - 1)  # the compiler makes a dot's accumulator of what is added
        users = self._uses.users(operation) if depth else ()
        users = [one for one in users if not result or operand_names(one[0])[one[1]] == result]
        found = [self._by(user, place, depth - 1) for user, place in users]
        if not found or any(not one.mask.parts and not one.chosen for one in found):
            return _ALL
        deciding = tuple(dict.fromkeys(other for one in found for other in one.deciding))
        chosen = found[0].chosen if all(one.chosen for one in found) else ()
        try:
            masks = [one.mask.joint() for one in found]
            if len(masks) > 1:
                masks = [joined(lambda *each: np.asarray(reduce(np.logical_or, each)), *masks, are_bits=True)]
            return Demand(Mask(tuple(masks)), deciding, chosen)
        except TooLarge:
            return _ALL

    def _by(self, user: Operation, place: int, depth: int) -> Demand:
        if user.name == _SELECT and place:
            return self._by_select(user, place, depth)
        if user.name == _STORE and place == 1:
            executed = self._executed.get(user)
            mask = executed.operands[2] if executed and len(executed.operands) > 2 else None
            return Demand(mask, (user,)) if isinstance(mask, Mask) and not mask.is_lower_bound else _ALL
        if user.name == "arith.addf" and (select := self._additive_mask(user, 1 - place)):
            return self._by_select(select, 1, depth)
        if user.name == DOT_WAIT:  # it passes on each of its operands
            return self.of(user, depth, result_names(user)[place])
        is_by_element = user.traits.is_arithmetic or user.traits.is_move or user.name == "tt.bitcast"
        return self.of(user, depth) if is_by_element and not user.regions else _ALL

    def _additive_mask(self, addition: Operation, place: int) -> Operation | None:
        """Return the select of 0 or a huge negative number that an operand is; None if it is another value."""
        made = self._uses.origin(addition, place)
        if made is None or made.name != _SELECT:
            return None
        kept, hidden = (self._uses.origin(made, operand) for operand in (1, 2))
        return made if kept and hidden and _ZERO.search(kept.tail) and _HUGE.search(hidden.tail) else None

    def _by_select(self, user: Operation, place: int, depth: int) -> Demand:
        executed, rest = self._executed.get(user), self.of(user, depth)
        condition = executed.operands[0] if executed and executed.operands else None
        if not isinstance(condition, Mask):
            return replace(rest, chosen=(user,))
        its = condition if place == 1 else condition.inverted()
        if its is None or condition.is_lower_bound:
            return rest
        return Demand(rest.mask & its, (user, *rest.deciding), rest.chosen)


@row
def unneeded_elements(evidence: Evidence) -> Iterator[Waste]:
    """Yield loads of elements that a mask, a select or a store discards, and of both sides of a select."""
    demands = Demands(evidence)
    loaded, unneeded = dict[Operation, int](), dict[Operation, int]()
    chosen, deciding = dict[Operation, list[Operation]](), list[Operation]()
    for one, access in accesses_in(evidence.sample):
        if not access.form.reads or access.mask is None or one.operation.traits.is_atomic:
            continue
        touched = of_each_cta(access, one)
        if touched is None:
            continue
        loaded[one.operation] = size = touched.sectors.size_bytes
        demand = demands.of(one.operation)
        needed = of_each_cta(replace(access, mask=access.mask & demand.mask), one) if demand.mask.parts else None
        if needed is not None and size - needed.sectors.size_bytes >= _MIN_UNNEEDED * size:
            unneeded[one.operation] = size - needed.sectors.size_bytes
            deciding += demand.deciding[:1]
        elif demand.chosen:
            chosen.setdefault(demand.chosen[0], []).append(one.operation)
    whole = max(sum(loaded.values()), 1)
    if unneeded:
        share = sum(unneeded.values()) / whole
        text = f"{percent(share)} of the bytes that are loaded reach no result: of {evidence.names_of(unneeded)}, "
        text += f"{evidence.places_of(deciding)} discards a part"
        advice = f"load only what is used: give {evidence.places_of(unneeded)} the condition as its mask "
        advice += "(tl.load(..., mask=..., other=...)), choose the pointer before the load, or leave out unused tiles"
        yield Waste(text, advice, removed=_of_loads(evidence, list(unneeded), share), operations=tuple(unneeded))
    for select, loads in chosen.items():
        share, certainty = sum(loaded[one] for one in loads) / whole, 0.75
        if len(loads) > 1:
            share *= 0.5
            text = f"both operands of the choice at {evidence.place_of(select)} are loaded in full, and each element "
            text += f"uses one: {evidence.names_of(loads)}"
            advice = "load only the side that is used: choose the pointer with tl.where before one load, or give each "
            advice += "load the condition as its mask, which skips whole sectors that are not used"
        elif _hides_rows(evidence.uses, select):
            share, certainty = _POSSIBLY_HIDDEN * share, 0.25
            text = f"{evidence.names_of(loads)} reads all elements, but {evidence.place_of(select)} may discard many "
            text += "by a condition on loaded data, such as a length"
            advice = f"use the condition as the mask at {evidence.places_of(loads)}, which skips unused sectors, or "
            advice += "end a loop at the limit"
        else:
            continue
        yield Waste(text, advice, _of_loads(evidence, loads, share), tuple(loads), certainty=certainty)


@row
def unneeded_results(evidence: Evidence) -> Iterator[Waste]:
    """Yield costly work whose results are mostly discarded, such as a full sort for a few elements."""
    demands, by_place = Demands(evidence), defaultdict[str, list[CountedOperation]](list)
    for one in evidence.sample:
        if not one.operation.regions or one.operation.traits.combines_elements:
            by_place[evidence.place_of(one.operation)].append(one)
    for place, work in by_place.items():
        operations = [one.operation for one in work]
        # Masked products are no waste of their own: see ``masked_iterations``.
        if any(one.traits.is_dot for one in operations) or evidence.issued_share_of(operations) < _MIN_UNNEEDED:
            continue
        demand = demands.of(operations[-1])
        try:
            used = float(demand.mask.joint().values.mean())
        except TooLarge:
            continue
        steps = [one for one in operations if one.traits.combines_elements]
        is_sort = len(steps) >= _MIN_STEPS
        has_wide_keys = is_sort and any(printed.bits == _WIDE_KEY_BITS for printed in types_of(steps[-1])[-1:])
        if is_sort and used > _MAX_USED and has_wide_keys:
            text = f"{place} sorts {_WIDE_KEY_BITS}-bit keys"
            advice = "use 32-bit keys if value and index fit, such as 16 bits each: half the exchanges and comparisons"
            yield Waste(text, advice, *evidence.saved_by(operations, 0.5)[:1], tuple(operations), certainty=0.5)
        # If only a store's mask discards results, the tile is larger than the data: see ``padding``.
        if used > _MAX_USED or not (is_sort or any(one.name == _SELECT for one in demand.deciding)):
            continue
        text = f"only {percent(used)} of the results of {place} are used; the rest is discarded at "
        text += evidence.places_of(demand.deciding)
        removed, time_share = evidence.saved_by(operations, 1 - used)
        advice = _FEW_OF_SORT if is_sort else "compute only what is used: apply the condition before the work"
        yield Waste(text, advice, removed, tuple(operations), time_share, certainty=0.9 if is_sort else 0.4)


def _hides_rows(uses: Uses, select: Operation) -> bool:
    # It replaces elements by a constant, and no data of each element decides which.
    if not any((other := uses.origin(select, place)) and other.traits.is_constant for place in (1, 2)):
        return False
    sources = uses.sources(select, 0, lambda made: made.traits.is_arithmetic or made.traits.is_move)
    return not any(
        made.traits.is_random or (made.traits.reads_memory and elements_of(made) >= elements_of(select))
        for made in sources
    )


def _of_loads(evidence: Evidence, loads: list[Operation], share: float) -> Mapping[str, float]:
    """Return the part of each unit's work that is not needed, if loads need ``share`` less of all bytes loaded."""
    dram = evidence.speed_of_light.dram
    reads = share * (dram.read_bytes / max(dram.once_bytes, 1)) if dram else share
    in_l1 = evidence.unit_use.share_of(SHARED, evidence.lines_of(loads))
    return {DRAM: reads, L2: reads, L2_TO_SM: share, SHARED: in_l1}


@row
def masked_iterations(evidence: Evidence) -> Iterator[Waste]:
    """Yield loops some of whose iterations compute only what a mask discards, such as above a causal diagonal."""
    demands = Demands(evidence)
    seen = set[Operation]()
    for one in evidence.sample:
        loop = one.operation.loop
        if not one.operation.traits.is_dot or loop is None or loop in seen:
            continue
        demand, (zeros, load) = demands.of(one.operation), _zeros(evidence, one)
        share = _discarded(demand.mask, one) if demand.mask.parts else 0.0
        name, certainty = evidence.name_around(one.operation), 1.0
        if load is not None and zeros >= max(share, _MIN_UNNEEDED):
            share, text = zeros, f"{percent(zeros)} of the iterations of {name} multiply by zeros: the mask of "
            text += f"{evidence.words_of(load)} is false for the whole tile"
        elif share >= _MIN_UNNEEDED:
            where = evidence.places_of(demand.deciding[:1])
            text = f"{percent(share)} of the iterations of {name} compute only what the mask at {where} discards"
        elif demand.chosen:
            share, certainty = _POSSIBLY_MASKED, 1 / 3
            text = f"the mask at {evidence.place_of(demand.chosen[0])} depends on loaded data: iterations of {name} "
            text += "for which it hides all elements compute nothing that is used"
        else:
            continue
        inside = [other for other in loop.walk() if other is not loop]
        seen.add(loop)
        removed, time_share = evidence.saved_by(inside, share)
        loads = [other for other in inside if other.traits.reads_global or other.traits.starts_async]
        if loads:
            removed |= {L2_TO_SM: share, L2: share}
        advice = "limit the loop to the range with data (the CTA's diagonal, window, group or document), and mask only "
        advice += "in iterations that cross its ends"
        yield Waste(text, advice, removed, tuple(inside), time_share, certainty=certainty, around=one.operation)


def _zeros(evidence: Evidence, dot: CountedOperation) -> tuple[float, Operation | None]:
    """Return the part of a dot's executions with an operand masked to zero, and that operand's load."""
    sample = {one.operation: one for one in evidence.sample}
    found: tuple[float, Operation | None] = 0.0, None
    for place in (0, 1) if dot.times else ():
        # Loads of the operand in the dot's loop, or copies into its buffer in shared memory.
        made, kept = evidence.uses.origin(dot.operation, place), 0.0
        if made is None or made.traits.reads_global:
            loading = [made] if made and made.loop is dot.operation.loop else []
        else:
            users = [user for user, _ in evidence.uses.readers(made)]
            loading = [user for user in users if user.traits.starts_async and not user.traits.is_of_dot]
        loads = [sample[one] for one in loading if one in sample]
        for one in loads:
            mask, names = one.access.mask if one.access else None, operand_names(one.operation)
            # Masked elements are zero if ``other`` is zero or absent; a copy also has its destination before it.
            place_of_other = 3 if one.operation.traits.starts_async else 2
            other = evidence.uses.origin(one.operation, place_of_other) if len(names) > place_of_other else None
            is_zero = len(names) <= place_of_other or (other is not None and _ZERO.search(other.tail) is not None)
            is_known = mask is not None and one.times is not None and is_zero
            kept += (one.times or 0) * (1 - _discarded(mask, one)) if mask is not None and is_known else math.inf
        if loads and dot.times:
            found = max(found, (1 - kept / dot.times, loads[0].operation), key=lambda each: each[0])
    return found


@row
def idle_ctas(evidence: Evidence) -> Iterator[Waste]:
    """Yield CTAs that store nothing, as their masks are false everywhere, but load and compute like others."""
    storing, stores = np.zeros(len(evidence.ran.sampled_ctas), bool), list[Operation]()
    for one in evidence.sample:
        if one.operation.traits.writes_global or one.operation.traits.is_atomic:
            mask, when = one.access.mask if one.access else None, one.executed.when
            if mask is None or when is None or mask.is_lower_bound:
                return
            try:
                joint = (mask & when).joint()
            except TooLarge:
                return
            others = tuple(place for place, axis in enumerate(joint.axes) if axis != CTA)
            storing |= joint.values.any(axis=others)
            stores.append(one.operation)
    share = 1 - float(storing.mean()) if stores else 0.0
    if share < _MIN_UNNEEDED:
        return
    text = f"{percent(share)} of the CTAs store nothing: the mask at {evidence.places_of(stores)} is false for all "
    text += "of their elements"
    advice = "return at once if the CTA's tile is outside of the data, or do not launch such CTAs"
    removed = {**dict.fromkeys(UNITS_OF_SM, share), L2: share, L2_TO_SM: share}
    yield Waste(text, advice, removed, tuple(stores), time_share=share)


def _discarded(mask: Mask, one: CountedOperation) -> float:
    """Return the part of an operation's executions whose mask is false for all elements; 0 if it is unknown."""
    loops = [loop_axis(owner.start) for owner in one.operation.ancestors() if owner.traits.is_loop]
    executed = one.executed.when or Mask()
    try:
        joint, happens = (mask & executed).joint(), executed.joint()
    except TooLarge:
        return 0.0
    kept = [place for place, axis in enumerate(joint.axes) if axis in (CTA, *loops)]
    inside = tuple(place for place in range(len(joint.axes)) if place not in kept)
    needed = joint.values.any(axis=inside)
    sizes = [joint.values.shape[place] for place in kept]
    ways = np.broadcast_to(happens.over(tuple(joint.axes[place] for place in kept)), sizes) if kept else np.ones(1)
    return 1 - float(needed.sum()) / max(float(ways.sum()), 1.0)


@row
def padding(evidence: Evidence) -> Iterator[Waste]:
    """Yield tiles with a notable part outside of the data: units compute elements that are masked."""
    tiles = list[tuple[CountedOperation, Access, int, int]]()
    discarded = dict[Operation, float]()
    for one, access in accesses_in(evidence.sample):
        # Elements that are not stored may have been needed.
        if not one.times or not access.form.reads or access.form.operands == "descriptor" or prod(access.shape) <= 1:
            continue
        all_bytes = one.times * access.whole_bytes
        used_bytes = all_bytes if access.places is None else access.places * access.element_bytes
        discarded[one.operation] = _discarded(access.mask, one) if access.mask else 0.0
        if one.operation.traits.starts_async:
            # The compiler's pipeline masks copies ahead of the last iteration, which take no time.
            all_bytes = max(round(all_bytes * (1 - discarded[one.operation])), used_bytes)
        tiles.append((one, access, all_bytes, used_bytes))
    whole_bytes = sum(all_bytes for _, _, all_bytes, _ in tiles)
    share = 1 - sum(used_bytes for *_, used_bytes in tiles) / whole_bytes if tiles else 0.0
    if share < _MIN_PADDED:
        return
    # Accesses of masked lanes take no cycles of the L1; dots read zeros from shared memory like other operands.
    units = UNITS_OF_SM if evidence.has_dots else tuple(unit for unit in UNITS_OF_SM if unit != SHARED)
    unit, part = evidence.busiest
    is_limit = unit in units and part >= POSSIBLE
    one, access, all_bytes, used_bytes = max(tiles, key=lambda tile: tile[2] - tile[3])
    is_copied = one.operation.traits.starts_async
    ends_early = one.operation.loop is not None and not is_copied and discarded[one.operation] >= _MIN_UNNEEDED
    text = f"{percent(share)} of the elements of the tiles lie outside of the data: the tile of "
    text += f"{evidence.words_of(one.operation)} has {' x '.join(map(str, access.shape))} elements, of which "
    text += f"{percent(used_bytes / all_bytes)} exist"
    advice, time_share = _SHORTER_LOOP if ends_early else _OTHER_TILE, share if is_limit else 0.0
    operations = tuple(one.operation for one, *_ in tiles)
    yield Waste(text, advice, dict.fromkeys(units, share), operations, time_share, certainty=0.8)
