"""Units of the SM that limit a launch, with the lines that they work for; units in turn; places that set the pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.evidence import MAX_NAMES, Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Results, found, rule
from kprof_inject.analysis.findings.in_flight import iterations_below_stages, occupancy_remedy
from kprof_inject.analysis.limits.rates import ALU, FP32, FP64, ISSUE, SHARED, SPECIAL, TENSOR, UNIT_NAMES
from kprof_inject.analysis.limits.stalls import BARRIER, Stalls
from kprof_inject.capture.scopes import Scope, ScopeKind
from kprof_inject.quantities import listed, percent
from kprof_inject.select.targets import COPIES, WAIT, part_of
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Operation

_MIN_BUSY = 0.5
# Tensor cores that are busier have little time left; those with less work are not what the kernel is about.
_MIN_DOTS, _MAX_DOTS = 0.1, 0.85
_MIN_OTHER = 0.15  # of the warps' time


class _Turn(Struct, frozen=True):
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
    text = f"dots and other work take turns: {UNIT_NAMES[TENSOR]} are idle for {percent(1 - tensor)} of the time, "
    text += f"while warps spend {percent(first.share)} of theirs {first.what}{also}"
    figures = {"tensor": tensor, "idle": 1 - tensor, "other": first.share}
    figures |= {f"other_{place}": turn.share for place, turn in enumerate(others, 2)}
    yield found(evidence, share, text, first.advice, figures, likely=share / 3, at=first.operations)


def _turns(evidence: Evidence, stalls: Stalls) -> Iterator[_Turn]:
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
    by, less = occupancy_remedy(evidence)
    limit = f"now {evidence.room}{f', limited by {by}' if by else ''}: " if evidence.room else ""
    more_ctas = f"more CTAs on an SM ({limit}{less})"
    has_unused_stages = iterations_below_stages(evidence) is not None  # more would not make loads earlier
    for (what, advice), lines in by_turn.items():
        most = tuple(operations[line] for line, _ in lines.most_common() if line in operations)[:MAX_NAMES]
        if most:
            where = f"{what} ({evidence.places_of(most)})"
            advice = "have {more_ctas}" if has_unused_stages and what == _LOADS[0] else advice
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


_MIN_AT_LINE = 0.1  # less of a unit's work at a line is not worth a word
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
    """Return the work that a busy unit of the SM could have less of, and its lines; empty if no unit is busy."""
    unit, part = evidence.busiest
    shares = evidence.unit_use.by_line(unit) if unit in _LESS and part >= _MIN_BUSY else {}
    operations = {one.line: one.operation for one in evidence.operations}
    per_mille = Counter[str]()
    for line, share in shares.items():
        if line in operations:
            per_mille[evidence.place_of(operations[line])] += round(1000 * share)
    most = [pair for pair in per_mille.most_common(MAX_NAMES) if pair[1] >= 1000 * _MIN_AT_LINE]
    if not most:
        return "", ""
    where = listed([f"{place} ({percent(count / 1000)})" for place, count in most], MAX_NAMES)
    does = "works" if unit in (ALU, ISSUE) else "work"
    return _LESS[unit], f"{UNIT_NAMES[unit]} ({percent(part)} of peak) {does} most for {where}"


_MAX_PLACES = 4  # named in one sentence


@rule()
def pace(evidence: Evidence) -> Results:
    """Yield the critical places; without any, the kernel waits for what all CTAs share."""
    slopes = evidence.slopes
    critical = [place for place in slopes.ranked if place.is_critical] if slopes else []
    if slopes is None or not critical:
        return
    hidden = [place for place in slopes.places if place.is_hidden]
    first, values = critical[0], [place.response.slope.value if place.response else 0.0 for place in critical]
    # Each place can gain its slope times its part of the time.
    gains = [min(value, 1.0) * (place.time_share or 0.0) for place, value in zip(critical, values, strict=True)]
    names = listed([place.name for place in critical], _MAX_PLACES)
    sets, there = ("sets", "there") if len(critical) == 1 else ("set", f"in {first.name}")
    slacks = [f"{slack:.0f} cycles in {place.name}" for place in hidden if (slack := place.spare_cycles)]
    spare = f"; slack: {listed(slacks, _MAX_PLACES)}" if slacks else ""
    text = f"{names} {sets} the pace: each cycle saved {there} makes the kernel {values[0]:.2f} cycles faster{spare}"
    known = ((one.name, one.response) for one in (*critical, *hidden) if one.response)
    figures = {f"slope of {name}": round(response.slope.value, 3) for name, response in known}
    # Code that issues copies should start earlier, not get shorter, and a wait is as long as what it waits for.
    shortened = [one.name for one in critical if _part(one.scope) not in (COPIES, WAIT)]
    advice = [f"shorten {listed(shortened, _MAX_PLACES)}"] if shortened else []
    copies = [place for place in slopes.places if _part(place.scope) == COPIES]
    if any(place.is_critical for place in copies):
        advice.append("start the copies earlier, with more stages: the kernel waits for them")
    elif copies and all(place.is_hidden for place in copies):
        advice.append("the copies are hidden: more stages would gain nothing")
    remedy = "; ".join(advice) or f"see what {first.name} waits for"
    finding = found(evidence, min(sum(gains), 1.0), text, remedy, figures)
    yield replace(finding, scope=first.scope.name, index=first.index)


def _part(scope: Scope) -> str:
    """Return the kind of part that a scope is, whatever name the user gave it; empty if it is none."""
    label = scope.label or scope.name
    return label.partition("@")[0] if scope.kind == ScopeKind.PART else part_of(label)
