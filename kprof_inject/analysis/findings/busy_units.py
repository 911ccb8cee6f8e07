"""Units of the SM that limit a launch: the lines that they work for, and two units that work in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from kprof_inject.analysis.findings.evidence import MAX_NAMES, Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Figures, Results, found, rule
from kprof_inject.analysis.findings.in_flight import less_of_limit, unused_stages
from kprof_inject.analysis.limits.limit import UNIT_NAMES
from kprof_inject.analysis.limits.rates import ALU, FP32, FP64, ISSUE, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.limits.stalls import BARRIER, Stalls
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Operation

_MIN_BUSY = 0.5
# Tensor cores that are busier have little time left; those with less work are not what the kernel is about.
_MIN_DOTS, _MAX_DOTS = 0.1, 0.85
_MIN_OTHER = 0.15  # of the warps' time


class _Turn(Struct, frozen=True):
    """Work of warps while the tensor cores are idle: a part of their time, in words, and what overlaps it."""

    share: float
    what: str
    advice: str
    operations: tuple[Operation, ...]


@rule()
def units_in_turn(evidence: Evidence) -> Results:
    """Yield tensor cores that are idle while warps do other work; needs samples of the warps."""
    tensor = evidence.parts.get(TENSOR, 0.0) if evidence.has_dots else 0.0
    if evidence.stalls is None or not _MIN_DOTS <= tensor <= _MAX_DOTS:
        return
    turns = sorted(_turns(evidence, evidence.stalls), key=lambda turn: -turn.share)
    share = evidence.max_gain()
    if not turns or turns[0].share < _MIN_OTHER or share < MIN_SHARE:
        return
    first, others = turns[0], [turn for turn in turns[1:] if turn.share >= MIN_SHARE]
    also = "".join(f", {percent(turn.share)} {turn.what}" for turn in others)
    share = min(share, evidence.bound_of(sum(turn.share for turn in (first, *others))))
    text = (
        f"dots and other work take turns: {UNIT_NAMES[TENSOR]} are idle for {percent(1 - tensor)} of the time, while "
    )
    text += f"warps spend {percent(first.share)} of theirs {first.what}{also}"
    figures: Figures = {"tensor": tensor, "idle": 1 - tensor, "other": first.share}
    figures |= {f"other_{place}": turn.share for place, turn in enumerate(others, 2)}
    yield found(evidence, share, text, first.advice, figures, likely=share / 3, at=first.operations)


def _turns(evidence: Evidence, stalls: Stalls) -> Iterator[_Turn]:
    """Yield what warps do besides dots: arithmetic in their loops and outside, copies, waits for loads, exchanges."""
    module = evidence.module
    inside = evidence.lines_of(loop for loop in evidence.loops if any(one.traits.is_dot for one in body_of(loop)))
    of_dots = evidence.lines_of(one for one in module.walk() if one.traits.is_of_dot)
    copies = [one for one in module.walk() if one.traits.starts_async and not one.traits.is_of_dot]
    of_copies = evidence.lines_of([*copies, *evidence.uses.of_addresses])
    by_turn: dict[tuple[str, str], Counter[int]] = {}
    for line in stalls.lines:
        for reason, samples in line.reasons.items():
            count = samples - line.for_tensor_cores if reason == BARRIER else samples
            other = _COPIES if line.line in of_copies else _ARITHMETIC if line.line in inside else _OUTSIDE
            turn = _OF_REASON.get(reason, other)
            if line.line not in of_dots or turn == _LOADS:
                by_turn.setdefault(turn, Counter())[line.line] += count
    operations = {one.line: one.operation for one in evidence.operations}
    more_than = f" than the {evidence.room} that fit{'s' if evidence.room == 1 else ''}" if evidence.room else ""
    by, less = less_of_limit(evidence)
    more_ctas = f"more CTAs on an SM{more_than} ({f'{by}: ' if by else ''}{less})"
    has_all_stages = unused_stages(evidence) != (0, 0.0)
    for (what, advice), lines in by_turn.items():
        most = tuple(operations[line] for line, _ in lines.most_common() if line in operations)[:MAX_NAMES]
        if most:
            where = f"{what} ({evidence.places_of(most)})"
            advice = "have {more_ctas}" if has_all_stages and what == _LOADS[0] else advice
            yield _Turn(lines.total() / stalls.samples, where, advice.format(more_ctas=more_ctas), most)


# Work of warps, and how to overlap it with dots.
_ARITHMETIC = (
    "in arithmetic between dots",
    "let dots run meanwhile: issue the next block's first dot before this block's arithmetic, let two groups of warps "
    "work on halves of the tile (num_warps=8, warp specialization), or have {more_ctas}; compute less between dots "
    "(fold factors into exp2, mask only the blocks that need it)",
)
_OUTSIDE = (
    "outside of the loop with dots",
    "let that overlap the loop: a persistent kernel with a flattened loop (tl.range(..., flatten=True)), or "
    "{more_ctas}; give a CTA more iterations, or compute less for each tile",
)
_COPIES = (
    "issuing copies and computing their addresses",
    "copy tiles by tensor descriptors (tl.make_tensor_descriptor: TMA takes one instruction for a tile), or use a "
    "larger step along the loop; or {more_ctas}",
)
_LOADS = (
    "waiting for loads",
    "issue loads earlier: more stages (num_stages); by hand an iteration ahead those that Triton does not pipeline "
    "(scales, indices); or {more_ctas}",
)
_AT_BARRIERS = (
    "at barriers",
    "let fewer warps wait for each other: {more_ctas}, fewer exchanges between threads in the loop, or fewer and "
    "larger iterations",
)
_EXCHANGES = (
    "waiting for shared memory and special functions",
    "exchange less between threads in the loop: keep operands in the layout of the dots, and reduce along rows that a "
    "warp owns; or have {more_ctas}",
)
_OF_REASON = {
    **dict.fromkeys(("long_scoreboard", "lg_throttle"), _LOADS),
    BARRIER: _AT_BARRIERS,
    **dict.fromkeys(("short_scoreboard", "mio_throttle"), _EXCHANGES),
}


# Less of a unit's work at a line is not worth a word.
_MIN_AT_LINE = 0.1
_LESS = {
    SPECIAL: "fewer special functions (exponentials, divisions, square roots, conversions): fold factors into exp2, "
    "compute a reciprocal once and multiply, or use polynomials of multiply-adds",
    FP32: "fewer multiplications and additions, or the tensor cores for those that sum up products",
    FP64: "fp32 in place of fp64",
    ALU: "fewer comparisons, selections, shifts and integer operations; a cheaper algorithm for the same result",
    ISSUE: "fewer instructions: 16 bits in pairs, fewer conversions and masks, a cheaper algorithm for the same result",
    SHARED: "fewer accesses: wider ones, fewer reductions and changes of layout, operands kept in registers",
}


def work_by_line(evidence: Evidence) -> tuple[str, str]:
    """Return the work that a busy unit of the SM could have less of, and its lines; empty if no unit is busy.

    How much of it is needed is unknown, but for dots: their products are.
    """
    unit, part = evidence.busiest
    shares = evidence.unit_use.by_line(unit) if unit in _LESS and part >= _MIN_BUSY else {}
    operations = {one.line: one.operation for one in evidence.operations}
    places = Counter[str]()
    for line, share in shares.items():
        if line in operations:
            places[evidence.place_of(operations[line])] += round(1000 * share)
    most = [(place, count / 1000) for place, count in places.most_common(MAX_NAMES) if count >= 1000 * _MIN_AT_LINE]
    if not most:
        return "", ""
    where = listed([f"{place} ({percent(share)})" for place, share in most], MAX_NAMES)
    does = "works" if unit in (ALU, ISSUE) else "work"
    return _LESS[unit], f"{UNIT_NAMES[unit]} ({percent(part)} of peak) {does} most for {where}"
