"""The limit of a launch by what the hardware counted, and by what its warps were sampled to wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Struct

from kprof_inject.analysis.evidence.stalls import Stalls, TopStall
from kprof_inject.analysis.roofs.coalescing import MIN_UNCOALESCED, SECTOR_BYTES, Requests, sectors_text, worst_of
from kprof_inject.analysis.roofs.limits import (
    DRAM,
    IDLE,
    LIMITING,
    MIN_NOTABLE,
    UNCOALESCED,
    UNIT_NAMES,
    Limit,
    as_busy,
    busy_loop,
    few_sms,
    memory_wait_limit,
    named,
    sms_without_work,
    units_in_turn,
)
from kprof_inject.analysis.roofs.rates import ALU, FP32, FP64, ISSUE, L2, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.roofs.speed_of_light import SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import global_access
from kprof_inject.quantities import percent, size_text

# With fewer warps, a scheduler of the four has at most two to choose from.
_FEW_WARPS = 8
# With a unit this busy, more warps would not help much.
_BUSY = 0.5
# Where more CTAs wait than fit four times, an SM that holds fewer than this part of them gets them too slowly.
_MIN_HELD = 0.6
_MANY_WAVES = 4
_LANES = 32
# Where accesses at unknown addresses touch more than half of the sectors, one of them may be the worst.
_MIN_KNOWN = 0.5
_MAX_ACCESS_BYTES = 16
_ATOMIC_OPERATIONS = frozenset(("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDUX"))
_LOADS = frozenset(("LDG", "LDGSTS"))
# DRAM reads more than this times the bytes that are needed if the L2 loses parts of sectors before they are used.
_REREAD = 1.5
_MEMORY = (SHARED, L2, DRAM)
_OF_SM = (TENSOR, ISSUE, ALU, FP32, FP64, SPECIAL, SHARED)
# If SMs have work for a smaller part of the launch, that is the first thing to change.
_MIN_ACTIVE = 0.7


# The pipe that multiplies integers is a part of the fp32 units. It may be busy while the rest is not.
_METRICS: Mapping[str, tuple[str, ...]] = {
    TENSOR: (counters.TENSOR,),
    ISSUE: (counters.ISSUE,),
    ALU: (counters.ALU,),
    FP32: (counters.FMA, counters.FMA_HEAVY, counters.FP16),
    FP64: (counters.FP64,),
    SPECIAL: (counters.SPECIAL,),
    SHARED: (counters.L1,),
    L2: (counters.L2,),
    DRAM: (counters.DRAM,),
}
_PERCENT = 100.0


def measured_shares(record: CountersRecord) -> dict[str, float]:
    """Return the utilization of each unit that was counted, by its name."""
    found = {
        unit: [record.metrics[name] for name in names if name in record.metrics] for unit, names in _METRICS.items()
    }
    return {unit: max(values) / _PERCENT for unit, values in found.items() if values}


_KINDS = {
    "load": (counters.LOAD_REQUESTS, counters.LOAD_SECTORS),
    "store": (counters.STORE_REQUESTS, counters.STORE_SECTORS),
}
"""The counters of the accesses of each kind to global memory."""


class Measured(Struct, frozen=True):
    """A launch, and what was measured of its kernel without records."""

    summary: LaunchSummary
    light: SpeedOfLight
    kernel: Kernel
    counted: CountersRecord
    stalls: Stalls | None
    code: MachineFunction | None
    requests: tuple[Requests, ...] = ()

    @property
    def shares(self) -> Mapping[str, float]:
        """Utilization of each unit."""
        return measured_shares(self.counted)

    @property
    def active(self) -> float:
        """Part of the launch's time in which an SM has work, on average; 0 if it is unknown."""
        cycles = self.metric(counters.SM_CYCLES)
        return min(self.metric(counters.SM_ACTIVE_CYCLES) / cycles, 1.0) if cycles else 0.0

    @property
    def sm_cycles(self) -> float:
        """Cycles of the launch, summed over all SMs; 0 if they are unknown."""
        return self.metric(counters.SM_CYCLES) * (self.kernel.sm_count or 0)

    @property
    def conflict_share(self) -> float:
        """Share of the wavefronts of shared memory and L1 that bank conflicts cause; 0 if it was not counted."""
        wavefronts = self.metric(counters.WAVEFRONTS)
        return self.metric(counters.SHARED_CONFLICTS) / wavefronts if wavefronts else 0.0

    def metric(self, name: str) -> float:
        """Return the value of a metric; 0 if it was not counted."""
        return self.counted.metrics.get(name, 0.0)

    def limit(self, name: str, text: str, *units: str) -> Limit:
        """Return a limit with the measured shares."""
        return Limit(name, units, text, self.shares, evidence="measured")


def measured_limit(measured: Measured) -> Limit:
    """Determine what limits a launch."""
    judges: tuple[Callable[[Measured], Limit | None], ...] = (
        _at_roof,
        _memory_waits,
        _few_sms,
        _slow_starts,
        _idle,
        _at_roof_in_a_loop,
        _at_roof_while_active,
        _two_units,
        _atomics,
    )
    return next((limit for judge in judges if (limit := judge(measured))), None) or _latency(measured)


def _at_roof(measured: Measured) -> Limit | None:
    shares = measured.shares
    units = as_busy(shares)
    if not units or shares[units[0]] < LIMITING:
        return None
    busy = " and ".join(f"{UNIT_NAMES[unit]} ({percent(shares[unit])} of peak)" for unit in units)
    conflicts = ""
    if units[0] == SHARED and measured.conflict_share >= MIN_NOTABLE:
        conflicts = f"{percent(measured.conflict_share)} of the wavefronts are bank conflicts"
    uncoalesced = uncoalesced_text(measured, units[0]) if units[0] in _MEMORY else ""
    dram = measured.light.dram
    read = measured.metric(counters.DRAM_READ_BYTES)
    # Other accesses do not help DRAM if it reads little more than each byte that the launch needs.
    reads_once = DRAM in units and dram is not None and not dram.unknown and read <= _REREAD * dram.read_bytes
    if uncoalesced and not reads_once:
        text = f"{busy}, by uncoalesced access: {uncoalesced}"
        return measured.limit(UNCOALESCED, f"{text}; {conflicts}" if conflicts else text, *units)
    name = named(units, shares)
    if conflicts:
        busy += f": {conflicts}"
    if units[0] == DRAM:
        written = measured.metric(counters.DRAM_WRITE_BYTES)
        busy += f": {size_text(int(read))} read and {size_text(int(written))} written"
    return measured.limit(name, f"{busy}; {uncoalesced}" if uncoalesced else busy, *units)


def _memory_waits(measured: Measured) -> Limit | None:
    found = memory_wait_limit(measured.summary)
    return found and measured.limit(found.name, found.text)


def _few_sms(measured: Measured) -> Limit | None:
    grid = few_sms(measured.summary, measured.kernel.sm_count)
    return measured.limit("grid", f"{grid}; on these, {_waiting(measured)}") if grid else None


def _slow_starts(measured: Measured) -> Limit | None:
    waves, slots = measured.summary.waves, measured.kernel.clean.ctas_per_sm
    if waves is None or not slots or waves.ctas < _MANY_WAVES * slots * waves.sms:
        return None
    held = measured.metric(counters.WARPS_ACTIVE) / measured.kernel.num_warps
    if not 0 < held < _MIN_HELD * slots:
        return None
    text = (
        f"how fast CTAs start: an SM has room for {slots}, and holds {held:.1f} on average, though {waves.ctas} are to "
        f"run; {_nearest(measured)}"
    )
    return measured.limit("CTAs start too slowly", text)


def _idle(measured: Measured) -> Limit | None:
    idle = sms_without_work(measured.summary, measured.kernel.sm_count)
    return measured.limit(IDLE, f"{idle}; on those that have one, {_waiting(measured)}") if idle else None


def _at_roof_in_a_loop(measured: Measured) -> Limit | None:
    """Judge a unit that a loop keeps busy by the work in TTGIR, and that is the busiest of the whole launch, too.

    The hardware counts for the whole launch, with its beginning and end.
    """
    found = busy_loop(measured.summary, measured.light)
    if found is None:
        return None
    loop, share = found
    measured_share = measured.shares.get(loop.unit, 0.0)
    if measured_share < max(measured.shares.values()) - MIN_NOTABLE:
        return None
    text = (
        f"{UNIT_NAMES[loop.unit]} ({percent(measured_share)} of peak; by its work at least {percent(loop.part)} in "
        f"{measured.summary.scopes[loop.index].distinct_name}, {percent(share)} of the kernel's time)"
    )
    return measured.limit(named([loop.unit], measured.shares), text, loop.unit)


def _at_roof_while_active(measured: Measured) -> Limit | None:
    """Judge a unit of the SM by the time in which SMs have work, if it is about as busy as any in the whole launch.

    Of a short launch, beginning and ending take a notable part.
    """
    shares, active = measured.shares, measured.active
    near = [unit for unit in _OF_SM if shares.get(unit, 0.0) >= max(shares.values()) - MIN_NOTABLE]
    if active < _MIN_ACTIVE or not near:
        return None
    unit = max(near, key=lambda name: shares[name])
    if shares[unit] < LIMITING * active:
        return None
    text = f"{UNIT_NAMES[unit]} ({percent(shares[unit])} of peak; {percent(min(shares[unit] / active, 1.0))} while SMs "
    text += "have work)"
    return measured.limit(named([unit], shares), text, unit)


def _two_units(measured: Measured) -> Limit | None:
    if (found := units_in_turn(measured.shares)) is None:
        return None
    first, second, text = found
    return measured.limit(f"{first} and {second} in turn", f"{text}; {_waiting(measured)}", first, second)


def _atomics(measured: Measured) -> Limit | None:
    top = measured.stalls.top if measured.stalls else None
    if top is None or top.operation not in _ATOMIC_OPERATIONS:
        return None
    return measured.limit("atomics", f"atomic operations: {_waiting(measured)}")


def _latency(measured: Measured) -> Limit:
    warps = measured.metric(counters.WARPS_ACTIVE)
    uncoalesced = uncoalesced_text(measured)
    more = f"; {uncoalesced}" if uncoalesced else ""
    if 0 < warps < _FEW_WARPS and max(measured.shares.values()) < _BUSY:
        text = f"too few warps in flight: an SM has {warps:.1f} on average; {_waiting(measured)}{more}"
        return measured.limit("too few warps in flight", text)
    return measured.limit("latency", f"latency: {_waiting(measured)}{more}")


def _waiting(measured: Measured) -> str:
    """Return what warps wait for and where, and which unit is busiest."""
    top = measured.stalls.top if measured.stalls else None
    if measured.stalls is None or top is None:
        return _nearest(measured)
    return f"{stall_text(measured.stalls, top)}; {_nearest(measured)}"


def stall_text(stalls: Stalls, top: TopStall) -> str:
    """Return a sentence such as *warps wait 36.1 % of their time for data from global memory (at matmul.py:49)*."""
    place, needed = stalls.places_of(top.reason)
    where = f", most for {needed}" if needed else f", most at {place}" if place else ""
    what = stalls.words(top.reason)
    return f"warps wait {percent(top.share)} of their time for {what} ({top.reason}){where}"


def _nearest(measured: Measured) -> str:
    unit = max(measured.shares, key=lambda name: measured.shares[name])
    return f"the busiest unit is {UNIT_NAMES[unit]} ({percent(measured.shares[unit])} of peak)"


def _uncoalesced(measured: Measured) -> tuple[str, float, float] | None:
    """Return the kind of accesses with most sectors if adjacent addresses had many fewer, with those of a request."""
    widest = _widest_access(measured.code)
    found = []
    for kind, names in _KINDS.items():
        requests, sectors = map(measured.metric, names)
        if requests and sectors / requests >= MIN_UNCOALESCED * _adjacent_sectors(widest, kind):
            found.append((kind, sectors, sectors / requests))
    return max(found, key=lambda access: access[1], default=None)


def _adjacent_sectors(widest: Mapping[str, int], kind: str) -> float:
    """Return how many sectors a request of a warp touches if its addresses are adjacent."""
    return widest.get(kind, _MAX_ACCESS_BYTES) * _LANES / SECTOR_BYTES


@lru_cache(maxsize=KERNELS_CACHED)
def _widest_access(code: MachineFunction | None) -> dict[str, int]:
    """Return the bytes that a thread loads or stores at most with one instruction."""
    found: dict[str, int] = {}
    for one in code.instructions if code else ():
        if access := global_access(one):
            kind, size_bytes = access
            found[kind] = max(found.get(kind, 0), size_bytes)
    return found


def uncoalesced_text(measured: Measured, unit: str | None = None) -> str:
    """Return what uncoalesced accesses touch; empty if there are none.

    If the L1 is the busiest unit, they may touch few sectors, but take a notable part of its cycles.
    """
    if (found := _uncoalesced(measured)) is None:
        extra = sum(one.extra_wavefronts for one in measured.requests)
        conflicts, wavefronts = measured.metric(counters.SHARED_CONFLICTS), measured.metric(counters.WAVEFRONTS)
        is_notable = unit == SHARED and extra >= max(MIN_NOTABLE * wavefronts, conflicts)
        worst = worst_of(measured.requests) if is_notable else None
        return worst.text if worst else ""
    kind, sectors, each = found
    known = [one for one in measured.requests if one.kind == kind and one.is_uncoalesced]
    worst, known_sectors = worst_of(known), sum(one.sectors * one.requests for one in known)
    if worst is not None and worst.place and known_sectors >= _MIN_KNOWN * sectors:
        return f"{worst.text}; all {kind}s touch {each:.1f} on average"
    needed = _adjacent_sectors(_widest_access(measured.code), kind)
    text = f"each {kind} of a warp touches {sectors_text(each, needed)}"
    place = _slowest_load(measured.stalls) if kind == "load" else ""
    return f"{text}; warps wait longest for the load of {place}" if place else text


def _slowest_load(stalls: Stalls | None) -> str:
    """Return the source line of the load that warps wait for longest; empty if it is unknown."""
    if stalls is None:
        return ""
    awaited: Counter[int] = Counter()
    for line in stalls.lines:
        for other, count in line.awaited.get("long_scoreboard", {}).items():
            if stalls.operations.get(other, "") in _LOADS:
                awaited[other] += count
    return stalls.place_of(awaited.most_common(1)[0][0]) if awaited else ""
