"""The judges of a launch's limit, in their order: each returns a limit, or None if there is another or no evidence.

The same judges decide by counters and by lower bounds.
"""

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
    UNIT_NAMES,
    Bounds,
    CodeBounds,
    Judged,
    Limit,
    as_busy,
    memory_wait_limit,
    named,
    sms_without_work,
    whole_roof,
)
from kprof_inject.analysis.limits.measured import Measured
from kprof_inject.analysis.limits.memory_limits import (
    Judge,
    busy_l2,
    busy_memory,
    by_bounds,
    empty_l2,
    exchanges,
    looked_up_lines,
    may_be_busier,
    scattered_accesses,
    unknown_accesses,
)
from kprof_inject.analysis.limits.operation_work import Work
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, FP64, ISSUE, L2, L2_TO_SM, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.limits.speed_of_light import MAX_POSSIBLE, Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture import counters
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, percent, short_time, size_text
from kprof_inject.timeline.trust import Overhead
from kprof_inject.timeline.waves import IdleSms, Waves

# With fewer warps, a scheduler of the four has at most two to choose from.
_FEW_WARPS = 8
# With a unit this busy, more warps would not help much.
_BUSY = 0.5
# Where more CTAs wait than fit four times, an SM that holds fewer than this part of them gets them too slowly.
_MIN_HELD = 0.6
_MANY_WAVES = 4
# If SMs have work for a smaller part of the launch, that is the first thing to change.
_MIN_ACTIVE = 0.7
_OF_SM = (TENSOR, ISSUE, ALU, FP32, FP64, SPECIAL, SHARED)
_ATOMIC_OPERATIONS = frozenset(("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDUX"))


def limit_by_counters(
    measured: Measured, waves: Waves | None, idle: IdleSms | None, waits: Limit | None = None
) -> Limit:
    """Determine what limits a launch whose kernel was counted; ``waits`` is its limit by waits for memory, if any."""
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
    """Determine what limits a launch without counters.

    ``device_sms`` is the number of the device's SMs. ``overhead`` is the measured cost of the records, if any: where it
    is certain, the launch is judged by its time without them, which is ``clean_ns`` if it is known. ``code`` is what
    the machine code shows, in the same cycles as ``light``; None if it is unknown. ``requests`` are those of loads and
    stores.
    """
    whole, waits = whole_roof(summary, light), memory_wait_limit(summary)
    has_unknown = light.unknown or (light.dram and light.dram.streamed_bytes is None)
    if whole is None or (light.missing and has_unknown):
        why = "the kernel's function was not recorded; add --at func"
        if light.missing:
            why = str(light.missing)
        elif light.unknown:
            why = "how often its operations are executed is unknown, as that depends on loaded data"
        idle = sms_without_work(summary.idle, device_sms)
        without = Limit(IDLE, (), f"{idle}; what limits those that have one is not known: {why}", {}) if idle else None
        return waits or without or Limit(NOT_KNOWN, (), why, {}, is_known=False)
    slowdown = 1.0
    if overhead and (overhead.low_percent > NOTABLE_COST_PERCENT or (overhead.is_measurable and overhead.percent < 0)):
        # The lower end of the interval, as parts are lower bounds.
        slowdown = max(1 + overhead.low_percent / 100, 0.0)
    # The share of the launch's time in which the device's SMs have a CTA, on average.
    shared = 1.0
    if summary.idle is not None:
        shared = summary.idle.work_share * summary.idle.sms / max(device_sms or 0, summary.idle.sms)
    if slowdown > 1 and clean_ns:
        # Part of the cost is before the first CTA and after the last one.
        slowdown = max(min(slowdown, summary.duration_ns / clean_ns), 1.0)
    # SMs need not spend on work what the launch takes longer.
    slowdown_of_sms = max(shared * slowdown, 1.0) if slowdown > 1 else slowdown
    if slowdown < 1:
        light = replace(light, roofs=tuple(roof.without_slowdown(slowdown) for roof in light.roofs))
    if slowdown > 1 and light.resident_cycles > whole.sm_cycles:
        # The overhead is relative to the time in which CTAs are on the SMs, which includes writing out their records.
        whole = whole.without_slowdown(whole.sm_cycles / light.resident_cycles)
    roofs = tuple(_of_the_launch(roof, shared) for roof in light.roofs)
    light = replace(light, roofs=roofs, l2_writes=shared * light.l2_writes)
    whole = _of_the_launch(whole, shared)
    of_code = code.parts if code else {}
    least = {
        unit: max(whole.parts.get(unit, 0.0), of_code.get(unit, 0.0))
        for unit in dict.fromkeys([*whole.parts, *of_code])
    }
    of_whole_time = {L2_TO_SM: least.pop(L2_TO_SM, 0.0), **dram_part(summary, light)}
    parts = {unit: min(slowdown_of_sms * part, 1.0) for unit, part in least.items()}
    parts |= {unit: min(slowdown * part, 1.0) for unit, part in of_whole_time.items()}
    bounds = Bounds(summary, light, whole, slowdown, slowdown_of_sms, code, requests)
    return _without_records(
        slowdown, _first(Judged(parts, summary.waves, summary.idle, device_sms, waits, bounds=bounds))
    )


def _of_the_launch(roof: Roof, share: float) -> Roof:
    """Return the roof with the L2's part of the launch's whole time, as it serves all SMs and rests if some do."""
    return replace(roof, parts={**roof.parts, L2_TO_SM: share * roof.parts.get(L2_TO_SM, 0.0)})


def dram_part(summary: LaunchSummary, light: SpeedOfLight) -> dict[str, float]:
    """Return DRAM's part; empty if it exceeds all of the time, as then an unknown part of the bytes hit the L2."""
    part = light.dram.min_part(summary.duration_ns) if light.dram else 0.0
    return {DRAM: min(part, 1.0)} if 0 < part <= MAX_POSSIBLE else {}


def _without_records(slowdown: float, limit: Limit) -> Limit:
    """Return the limit with a note if the parts refer to the time without records."""
    if slowdown > 1:
        cost = f"not counting the time that recording adds, at least {percent(slowdown - 1)}"
        return replace(limit, text=f"{limit.text}; {cost}")
    if slowdown > 1 - NOTABLE_COST_PERCENT / 100:
        return limit
    gain = percent(1 / slowdown - 1)
    text = f"{limit.text}; without records the launch takes up to {gain} longer, which is taken into account"
    return replace(limit, text=text)


def _first(launch: Judged) -> Limit:
    judges: tuple[Judge, ...] = (
        _memory_waits,
        _few_sms,
        _slow_starts,
        _idle,
        _at_roof,
        busy_memory,
        _at_roof_in_a_loop,
        _at_roof_while_active,
        _two_units,
        _atomics,
    )
    unseen = (looked_up_lines, exchanges, scattered_accesses, unknown_accesses, busy_l2, empty_l2, _unknown_executions)
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
    return found or next((limit for judge in unseen if (limit := judge(launch))), None) or _latency(launch)


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
    conflicts = _conflicts(launch, units[0])
    uncoalesced = launch.uncoalesced(*(units if launch.at_least else units[:1]))
    # Other accesses do not help DRAM if it moves little more than each byte that the launch needs.
    if uncoalesced and (DRAM not in units or (launch.measured and not launch.measured.reads_once)):
        text = f"{text}, by uncoalesced access: {uncoalesced}"
        return launch.limit(UNCOALESCED, f"{text}; {conflicts}" if conflicts else text, *units)
    name = named(units, parts)
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


def _conflicts(launch: Judged, unit: str) -> str:
    share = launch.measured.conflict_share if launch.measured and unit == SHARED else 0.0
    return f"{percent(share)} of the wavefronts are bank conflicts" if share >= MIN_NOTABLE else ""


def _busier_loop(launch: Judged, unit: str) -> str:
    """Return a loop with the part that a unit has in it, in words that follow that of the launch; empty if smaller."""
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
    """Return units with their parts, such as ``the tensor cores (at least 64.1 % of peak)``.

    ``more`` is added to the first.
    """
    first, *others = (f"{percent(parts[unit])} of peak" for unit in units)
    shares = [f"{'at least ' if launch.at_least else ''}{first}{more}", *others]
    return " and ".join(f"{_name(unit, work)} ({share})" for unit, share in zip(units, shares, strict=True))


def _name(unit: str, work: Work | None) -> str:
    if unit == FP32 and work and work.integer_multiplications > max(work.multiplications, work.additions):
        return "integer multiplication in the fp32 units"
    return UNIT_NAMES[unit]


def _at_roof_in_a_loop(launch: Judged) -> Limit | None:
    if (loop := launch.busy_loop) is None:
        return None
    units = as_busy(loop.parts)
    where = f"{loop.name}, {percent(loop.share)} of the kernel's time"
    if not launch.at_least:
        return _within(launch, units[0], f"{percent(loop.parts[units[0]])} in {where}")
    text = f"{_with_parts(launch, units, loop.parts, loop.work)} in {where}"
    text += f"; {percent(launch.parts[units[0]])} over the whole kernel"
    return launch.limit(named(units, loop.parts), text, *units)


def _at_roof_while_active(launch: Judged) -> Limit | None:
    """Judge a unit of the SM by the time in which SMs have work, if it is about as busy as any in the whole launch.

    Of a short launch, beginning and ending take a notable part.
    """
    shares, active = launch.parts, launch.measured.active if launch.measured else 0.0
    near = [unit for unit in _OF_SM if shares.get(unit, 0.0) >= max(shares.values()) - MIN_NOTABLE]
    if active < _MIN_ACTIVE or not near:
        return None
    unit = max(near, key=lambda name: shares[name])
    if shares[unit] < LIMITING * active:
        return None
    return _within(launch, unit, f"{percent(min(shares[unit] / active, 1.0))} while SMs have work")


def _within(launch: Judged, unit: str, more: str) -> Limit:
    """Return a unit as the limit that is busier in a part of the launch, which ``more`` names."""
    text = f"{UNIT_NAMES[unit]} ({percent(launch.parts[unit])} of peak; {more})"
    return launch.limit(named([unit], launch.parts), text, unit)


def _two_units(launch: Judged) -> Limit | None:
    """Judge two units that alternate, as the instructions of one warp use them one after the other."""
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
            # Lower bounds: the launch may be at a roof.
            name = f"latency, or {named(units, launch.parts)}"
        dram = bounds.light.dram
        if dram and not dram.fits_l2:
            more += f"; moving its bytes would take {short_time(dram.least_ns)}"
    return launch.limit(name, f"latency{of}: {launch.waiting}{more}", *units)
