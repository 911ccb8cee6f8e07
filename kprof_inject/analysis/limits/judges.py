"""The judges of a launch's limit, by counters and by lower bounds alike: each returns a limit, or None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.limit import (
    IDLE,
    LIMITING,
    MIN_NOTABLE,
    MIN_SMS,
    MIN_TOGETHER,
    NOT_KNOWN,
    NOTABLE_COST_PERCENT,
    POSSIBLE,
    UNCOALESCED,
    Bounds,
    CodeBounds,
    Judged,
    Limit,
    Measured,
    as_busy,
    memory_wait_limit,
    sms_without_work,
    whole_roof,
)
from kprof_inject.analysis.limits.memory_limits import (
    UNSEEN,
    Judge,
    busy_memory,
    by_bounds,
    judged_by_bounds,
    may_be_busier,
    scattered_accesses,
)
from kprof_inject.analysis.limits.operation_work import Work
from kprof_inject.analysis.limits.rates import DRAM, FP32, L2, L2_TO_SM, PIPELINES, SHARED, SPECIAL, TENSOR, UNIT_NAMES
from kprof_inject.analysis.limits.speed_of_light import SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture import counters
from kprof_inject.capture.scopes import ScopeKind, distinct_names
from kprof_inject.quantities import counted, percent, short_time, size_text
from kprof_inject.timeline.trust import Overhead
from kprof_inject.timeline.waves import IdleSms, Waves

_FEW_WARPS = 8  # with fewer warps, a scheduler of the four has at most two to choose from
_BUSY = 0.5  # with a unit this busy, more warps would not help much
# Where more CTAs wait than fit four times, an SM that holds fewer than this part of them gets them too slowly.
_MIN_HELD = 0.6
_MANY_WAVES = 4
# If SMs have work for a smaller part of the launch, that is the first thing to change.
_MIN_ACTIVE = 0.7
_ATOMIC_OPERATIONS = frozenset(("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDUX"))


def limit_by_counters(
    measured: Measured, waves: Waves | None, idle: IdleSms | None, waits: Limit | None = None
) -> Limit:
    """Determine the limit of a launch whose kernel was counted; ``waits`` is its limit by waits for memory."""
    return _first(Judged(measured.shares, waves, idle, measured.kernel.sm_count, waits, measured))


def limit_by_bounds(
    summary: LaunchSummary,
    light: SpeedOfLight,
    device_sms: int | None,
    overhead: Overhead | None = None,
    code: CodeBounds | None = None,
    requests: Sequence[Requests] = (),
    clean_ns: float | None = None,
) -> Limit:
    """Determine the limit of a launch without counters.

    If the ``overhead`` of records is certain, the launch is judged by its time without them: ``clean_ns``, if known.
    ``code`` has the bounds by the machine code, in the same cycles as ``light``.
    """
    whole = whole_roof(summary, light)
    has_unknown = light.unknown or (light.dram and light.dram.streamed_bytes is None)
    if whole is None or (light.missing and has_unknown):
        why = "the kernel's function was not recorded; add --at func"
        if light.missing:
            why = str(light.missing)
        elif light.unknown:
            why = "how often its operations are executed is unknown, as that depends on loaded data"
        idle = sms_without_work(summary.idle, device_sms)
        without = Limit(IDLE, (), f"{idle}; what limits those that have one is not known: {why}", {}) if idle else None
        return memory_wait_limit(summary) or without or Limit(NOT_KNOWN, (), why, {}, is_known=False)
    slowdown = _slowdown(overhead, summary.duration_ns, clean_ns)
    limit = _first(judged_by_bounds(summary, light, whole, device_sms, slowdown, code, requests))
    if slowdown > 1:
        cost = f"not counting the time that recording adds, at least {percent(slowdown - 1)}"
        return replace(limit, text=f"{limit.text}; {cost}")
    if slowdown > 1 - NOTABLE_COST_PERCENT / 100:
        return limit
    gain = percent(1 / slowdown - 1)
    text = f"{limit.text}; without records the launch takes up to {gain} longer, which is taken into account"
    return replace(limit, text=text)


def _slowdown(overhead: Overhead | None, duration_ns: int, clean_ns: float | None) -> float:
    """Return ``Bounds.slowdown``: the lower end of the interval, as parts are lower bounds."""
    if overhead is None:
        return 1.0
    if overhead.low_percent > NOTABLE_COST_PERCENT:
        slowdown = 1 + overhead.low_percent / 100
        # Part of the cost is before the first CTA and after the last one.
        return max(min(slowdown, duration_ns / clean_ns), 1.0) if clean_ns else slowdown
    return max(1 + overhead.low_percent / 100, 0.0) if overhead.is_measurable and overhead.percent < 0 else 1.0


def _first(launch: Judged) -> Limit:
    judges: tuple[Judge, ...] = (
        _memory_waits,
        _few_sms,
        _slow_starts,
        _idle,
        _at_roof,
        busy_memory,
        _computed_loop,
        _sampled_loop,
        _at_roof_while_active,
        _two_units,
        _atomics,
    )
    found = next((limit for judge in judges if (limit := judge(launch))), None)
    if launch.bounds and (impossible := launch.bounds.whole.impossible):
        parts = impossible.items()
        busy = " and ".join(f"{UNIT_NAMES[unit]} would be busy for {percent(part)}" for unit, part in parts)
        if found:
            return replace(found, text=f"{found.text}; ignores impossible counts, by which {busy} of the time")
        # A unit with impossible counts may be the limit, if no other one is.
        return launch.not_known(
            f"the counts or the cycles are wrong, as by them {busy} of the time; of the other units, {launch.nearest}"
        )
    others = (*UNSEEN, _unknown_executions, _latency)
    return found or next(limit for judge in others if (limit := judge(launch)))


def _memory_waits(launch: Judged) -> Limit | None:
    """Judge waits for memory, unless those that do not wait keep a unit busy."""
    if launch.waits is None or launch.parts[launch.busiest[0]] >= LIMITING:
        return None
    return launch.limit(launch.waits.name, launch.waits.text)


def _few_sms(launch: Judged) -> Limit | None:
    """Judge a grid that has no CTA for each SM, and uses few of them."""
    waves, sms = launch.waves, launch.device_sms
    if waves is None or not sms or waves.ctas >= sms or waves.sms >= MIN_SMS * sms or launch.is_at_roof:
        return None
    grid = f"the grid: {counted(waves.ctas, 'CTA')} on {waves.sms} of {sms} SMs"
    return launch.limit("grid", f"{grid}; on these, {launch.waiting}")


def _slow_starts(launch: Judged) -> Limit | None:
    waves, measured = launch.waves, launch.measured
    slots = measured.kernel.clean.ctas_per_sm if measured else None
    if launch.is_at_roof or measured is None or waves is None or not slots:
        return None
    if waves.ctas < _MANY_WAVES * slots * waves.sms or not 0 < measured.held_ctas < _MIN_HELD * slots:
        return None
    text = (
        f"how fast CTAs start: an SM has room for {slots}, and holds {measured.held_ctas:.1f} on average, though "
        f"{waves.ctas} are to run; {launch.nearest}"
    )
    return launch.limit("CTAs start too slowly", text)


def _idle(launch: Judged) -> Limit | None:
    idle = sms_without_work(launch.idle, launch.device_sms)
    if not idle or launch.is_at_roof:
        return None
    return launch.limit(IDLE, f"{idle}; on those that have one, {launch.waiting}")


def _at_roof(launch: Judged) -> Limit | None:
    parts, bounds = launch.parts, launch.bounds
    first = launch.busiest[0]
    # Without records, the launch may only take longer because the clock was lower.
    part = parts[first] / min(bounds.slowdown if bounds else 1.0, 1.0)
    # DRAM's lower bound counts each byte once, and its peak cannot be reached.
    if part < (POSSIBLE if first == DRAM and launch.at_least else LIMITING):
        return None
    if scattered := scattered_accesses(launch):
        return scattered
    units = as_busy(parts) or [first]
    text = _with_parts(launch, units, parts, bounds.whole.work if bounds else None, _busier_loop(launch, units[0]))
    conflict_share = launch.measured.conflict_share if launch.measured and units[0] == SHARED else 0.0
    conflicts = (
        f"{percent(conflict_share)} of the wavefronts are bank conflicts" if conflict_share >= MIN_NOTABLE else ""
    )
    uncoalesced = launch.uncoalesced(*(units if launch.at_least else units[:1]))
    # Other accesses do not help DRAM if it moves little more than each byte that the launch needs.
    if uncoalesced and (DRAM not in units or (launch.measured and not launch.measured.reads_once)):
        text = f"{text}, by uncoalesced access: {uncoalesced}"
        return launch.limit(UNCOALESCED, f"{text}; {conflicts}" if conflicts else text, *units)
    name = _named(units, parts)
    if conflicts:
        text += f": {conflicts}"
    if launch.measured:
        if units[0] == DRAM:
            read, written = map(launch.measured.metric, (counters.DRAM_READ_BYTES, counters.DRAM_WRITE_BYTES))
            text += f": {size_text(int(read))} read and {size_text(int(written))} written"
        return launch.limit(name, f"{text}; {uncoalesced}" if uncoalesced else text, *units)
    if DRAM in units and L2_TO_SM not in units:
        # The L2 passes on what DRAM delivers: on an H100, it was from 8 points less busy than DRAM to 16 points more.
        name, text, units = f"{name}, and L2", f"{text}, and the L2, which is about as busy", [*units, L2]
    if units[0] == DRAM and bounds and bounds.light.dram:
        text += f": the launch has to move {size_text(bounds.light.dram.least_bytes)}"
    if bounds and (busier := may_be_busier(bounds, parts[first])):
        return launch.limit(f"{name}, or DRAM or L2", f"{text}{busier}", *units, DRAM, L2)
    return launch.limit(name, text, *units)


def _named(units: Sequence[str], parts: Mapping[str, float]) -> str:
    """Return units with the part of the first, such as ``tensor cores 75 %``."""
    return f"{' and '.join(units)} {100 * parts[units[0]]:.0f} %"


def _busier_loop(launch: Judged, unit: str) -> str:
    """Return a clause on the longest loop that keeps a unit busier than the launch does."""
    if launch.bounds is None:
        return ""
    scopes, roofs = launch.bounds.summary.scopes, launch.bounds.light.roofs
    loops = (one for one in roofs if scopes[one.index].kind == ScopeKind.LOOP and one.unit == unit)
    loop = max(loops, key=lambda roof: roof.sm_cycles, default=None)
    if loop is None or loop.part <= launch.parts[unit]:
        return ""
    return f", {percent(loop.part)} in {scopes[loop.index].distinct_name}"


def _with_parts(
    launch: Judged, units: Sequence[str], parts: Mapping[str, float], work: Work | None, more: str = ""
) -> str:
    """Return units with their parts, such as ``the tensor cores (at least 64.1 % of peak)``."""
    first, *others = (f"{percent(parts[unit])} of peak" for unit in units)
    shares, names = [f"{'at least ' if launch.at_least else ''}{first}{more}", *others], dict(UNIT_NAMES)
    if work and work.integer_multiplications > max(work.multiplications, work.additions):
        names[FP32] = "integer multiplication in the fp32 units"
    return " and ".join(f"{names[unit]} ({share})" for unit, share in zip(units, shares, strict=True))


@by_bounds
def _computed_loop(launch: Judged, bounds: Bounds) -> Limit | None:
    """Judge the longest loop that keeps a unit of the SM busy, if it takes half of the time."""
    scopes = bounds.summary.scopes
    loops = [one for one in bounds.light.roofs if scopes[one.index].kind == ScopeKind.LOOP]
    busy = [one for one in loops if one.part >= LIMITING and one.unit != DRAM]
    loop = max(busy, key=lambda roof: roof.sm_cycles, default=None)
    if loop is None or (share := loop.sm_cycles / bounds.whole.sm_cycles) < POSSIBLE:
        return None
    units, name = as_busy(loop.parts), scopes[loop.index].distinct_name
    text = f"{_with_parts(launch, units, loop.parts, loop.work)} in {name}, {percent(share)} of the kernel's time"
    text += f"; {percent(launch.parts[units[0]])} over the whole kernel"
    return launch.limit(_named(units, loop.parts), text, *units)


def _sampled_loop(launch: Judged) -> Limit | None:
    """Judge the longest loop that keeps the launch's busiest unit of the SM busy, by the warps' samples.

    Samples of issued instructions show the work in the loop. CTAs are assumed to be in it independently of each other.
    """
    measured, parts = launch.measured, launch.parts
    unit = max(PIPELINES, key=lambda one: parts.get(one, 0.0))
    part = parts.get(unit, 0.0)
    if measured is None or part < max(parts.values()) - MIN_NOTABLE:
        return None
    stalls, table = measured.stalls, measured.kernel.scopes
    if stalls is None or not stalls.samples or table.partitions:
        return None
    found = []
    for index, reasons in stalls.scopes.items():
        share = 1 - (1 - sum(reasons.values()) / stalls.samples) ** max(measured.held_ctas, 1.0)
        if table.scopes[index].kind == ScopeKind.LOOP and share >= POSSIBLE:
            work = measured.issued_share(PIPELINES[unit], stalls.ranges[index])
            in_loop = min(part * work / (share * (measured.active or 1.0)), 1.0)
            if in_loop >= LIMITING:
                found.append((share, index, in_loop))
    if not found:
        return None
    share, index, in_loop = max(found, key=lambda loop: loop[0])
    name = distinct_names(table.scopes)[index]
    return _within(launch, unit, f"{percent(in_loop)} in {name}, {percent(share)} of the kernel's time")


def _at_roof_while_active(launch: Judged) -> Limit | None:
    """Judge a unit of the SM by the time in which SMs have work: a short launch spends much of its time without."""
    shares, active = launch.parts, launch.measured.active if launch.measured else 0.0
    near = [unit for unit in PIPELINES if shares.get(unit, 0.0) >= max(shares.values()) - MIN_NOTABLE]
    if active < _MIN_ACTIVE or not near:
        return None
    unit = max(near, key=lambda name: shares[name])
    if shares[unit] < LIMITING * active:
        return None
    return _within(launch, unit, f"{percent(min(shares[unit] / active, 1.0))} while SMs have work")


def _within(launch: Judged, unit: str, more: str) -> Limit:
    text = f"{UNIT_NAMES[unit]} ({percent(launch.parts[unit])} of peak; {more})"
    return launch.limit(_named([unit], launch.parts), text, unit)


def _two_units(launch: Judged) -> Limit | None:
    """Judge two units that alternate, as a warp's instructions use them one after the other."""
    parts = launch.parts
    units = [unit for unit in launch.busiest if unit in (TENSOR, SPECIAL, FP32)][:2]
    if len(units) < 2 or sum(parts[unit] for unit in units) < MIN_TOGETHER or parts[units[1]] < MIN_NOTABLE:
        return None
    first, second = units
    text = f"{UNIT_NAMES[first]} and {UNIT_NAMES[second]} in turn ({percent(parts[first])} and "
    text += f"{percent(parts[second])} of peak)"
    if launch.at_least:
        text += f": without overlap they take {percent(parts[first] + parts[second])} of the time"
    else:
        text += f"; {launch.waiting}"
    return launch.limit(f"{first} and {second} in turn", text, first, second)


def _atomics(launch: Judged) -> Limit | None:
    top = launch.measured.stalls.top if launch.measured and launch.measured.stalls else None
    if top is None or top.operation not in _ATOMIC_OPERATIONS:
        return None
    return launch.limit("atomics", f"atomic operations: {launch.waiting}")


@by_bounds
def _unknown_executions(launch: Judged, bounds: Bounds) -> Limit | None:
    if bounds.code is None or bounds.code.unknown_share <= MIN_NOTABLE:
        return None
    return launch.unclear(
        f"up to {percent(bounds.code.unknown_share)} of the instructions are executed an unknown number of times"
    )


def _latency(launch: Judged) -> Limit:
    uncoalesced = launch.uncoalesced(SHARED)
    more = f"; {uncoalesced}" if uncoalesced else ""
    if launch.measured:
        warps = launch.measured.metric(counters.WARPS_ACTIVE)
        if 0 < warps < _FEW_WARPS and max(launch.parts.values()) < _BUSY:
            text = f"too few warps in flight: an SM has {warps:.1f} on average; {launch.waiting}{more}"
            return launch.limit("too few warps in flight", text)
    name, of, units = "latency", "", list[str]()
    if bounds := launch.bounds:
        of = " (perhaps of its atomic operations)" if bounds.light.atomics else ""
        of += ", or instructions that TTGIR does not show" if bounds.code is None else ""
        units = as_busy(launch.parts) if launch.parts[launch.busiest[0]] >= POSSIBLE else []
        if units:
            name = f"latency, or {_named(units, launch.parts)}"  # lower bounds: the launch may be at a roof
        dram = bounds.light.dram
        if dram and not dram.fits_l2:
            more += f"; moving its bytes would take {short_time(dram.least_ns)}"
    return launch.limit(name, f"latency{of}: {launch.waiting}{more}", *units)
