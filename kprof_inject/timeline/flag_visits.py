"""Uses of flags by CTAs: when each waited for one or changed one, and which memory that was.

Processes that share memory have it at addresses of their own. An allocation of one device, and of one size, that each
of them has once is the same for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.model import Origin
from kprof_inject.capture.schema import FlagMemoryRecord, FlagRecord, TagRecord
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.memory_waits import visits_in
from kprof_inject.timeline.timeline import Timeline

FLAG_VISIT = np.dtype(
    [
        ("launch", "i4"),
        ("row", "i8"),
        ("scope", "i2"),
        ("cta", "i4"),
        ("sm", "i4"),
        ("warp", "i2"),
        ("round", "i8"),
        ("begins_ns", "i8"),
        ("arrives_ns", "i8"),
        ("leaves_ns", "i8"),
        ("ends_ns", "i8"),
        ("error_ns", "i8"),
        ("cta_begins_ns", "i8"),
        ("cta_ends_ns", "i8"),
        ("address", "i8"),
        ("value", "i8"),
        ("peer", "i8"),
        ("flag", "i8"),
    ]
)
"""A CTA's use of a flag, by the axis's time.

Its first warp begins, and ends; its last warp arrives, and the first one of all leaves, each within ``error_ns`` by the
device's timer; the whole CTA runs from ``cta_begins_ns`` to ``cta_ends_ns``. ``launch`` is the index of the
launch, ``row`` that of the first warp's scope in it; ``round`` counts the CTA's visits of the scope. ``value`` is as
recorded or constant, ``peer`` the rank that the user has tagged, each ``NO_TAG`` if not known. Equal numbers of
``flag`` are the same place in memory; -1 if the address is not known.
"""

PEER = "peer"
"""Name of the tag that says for which rank a scope waits."""
_WAITS = ("waits", "takes")
# A compare-and-swap by another GPU takes as long before the wait ends.
_MAX_TAKING_NS = 2_000
TIMER_ERROR_NS = 50
"""Error of a device's timer between two SMs."""


class FlagVisits(Struct, frozen=True):
    """The waits for flags of some launches, and what changed flags in them; both are sorted by their ends.

    A wait that takes its flag is in both.
    """

    launches: tuple[PlacedLaunch, ...]
    waits: NDArray[np.void]
    changes: NDArray[np.void]

    def flag_of(self, visit: np.void) -> FlagRecord:
        """Return what a visit does with its flag."""
        flag: FlagRecord | None = self.launches[visit["launch"]].timeline.table.scopes[visit["scope"]].flag
        if flag is None:
            raise ValueError("the scope uses no flag")
        return flag


def flag_visits(launches: Sequence[PlacedLaunch]) -> FlagVisits:
    """Return the uses of flags in launches of one axis."""
    found = [visits for number, placed in enumerate(launches) for visits in _visits_of(number, placed)]
    waits = [visits for does, visits in found if does in _WAITS]
    changes = [_as_changes(does, visits) for does, visits in found if does != "waits"]
    identities = _FlagIdentities(launches)
    return FlagVisits(tuple(launches), *(identities.numbered(_by_end(visits)) for visits in (waits, changes)))


def _as_changes(does: str, visits: NDArray[np.void]) -> NDArray[np.void]:
    """Return visits as changes of the flag; one that takes its flag does so when its wait ends."""
    if does != "takes":
        return visits
    taken = visits.copy()
    taken["begins_ns"] = np.maximum(visits["begins_ns"], visits["leaves_ns"] - _MAX_TAKING_NS)
    return taken


def _by_end(visits: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    merged = np.concatenate([np.empty(0, FLAG_VISIT), *visits])
    return merged[np.argsort(merged["ends_ns"], kind="stable")]


def _visits_of(number: int, placed: PlacedLaunch) -> Iterator[tuple[str, NDArray[np.void]]]:
    """Yield what each scope of a launch does with its flag, and its visits."""
    timeline = placed.timeline
    found = enumerate(timeline.table.scopes)
    scopes = [(index, scope, scope.flag) for index, scope in found if scope.flag is not None]
    if not scopes or timeline.clock.source == ClockSource.NOMINAL:
        return
    before = 0
    for block in timeline.blocks():
        for index, scope, flag in scopes:
            rows = np.flatnonzero(block["scope"] == index)
            if rows.size:
                visits = _visits(number, placed, block[rows], index, scope.tags, flag)
                visits["row"] = before + rows[visits["row"]]
                yield flag.does, visits
        before += len(block)


def _visits(
    launch: int, placed: PlacedLaunch, rows: NDArray[np.void], index: int, tags: Sequence[TagRecord], flag: FlagRecord
) -> NDArray[np.void]:
    order, begins, rounds = visits_in(rows)
    rows = rows[order]
    first = rows[begins]
    visits = np.empty(len(begins), dtype=FLAG_VISIT)
    visits["row"] = order[begins]
    visits["launch"], visits["scope"], visits["round"], visits["flag"] = launch, index, rounds, -1
    for field in ("cta", "sm", "warp"):
        visits[field] = first[field]
    times = (
        ("begins_ns", first["start_ns"]),
        ("arrives_ns", np.maximum.reduceat(rows["start_ns"], begins)),
        ("leaves_ns", np.minimum.reduceat(rows["end_ns"], begins)),
        ("ends_ns", first["end_ns"]),
    )
    for field, times_ns in times:
        visits[field] = placed.clock.on_axis(times_ns)
    ctas = _ctas_of(placed.timeline, visits["cta"])
    visits["cta_begins_ns"], visits["cta_ends_ns"] = (
        placed.clock.on_axis(ctas[field]) for field in ("init_ns", "pre_final_ns")
    )
    visits["error_ns"] = TIMER_ERROR_NS + _lost(placed.timeline) * (ctas["pre_final_ns"] - ctas["init_ns"])
    recorded = {tag: place for place, tag in enumerate((*tags, *flag.tags))}
    peer = next((tag for tag in tags if tag.name == PEER), None)
    constant = NO_TAG if flag.constant is None else flag.constant
    values = (("address", flag.address, NO_TAG), ("value", flag.value, constant), ("peer", peer, NO_TAG))
    for field, tag, unknown in values:
        visits[field] = first["tags"][:, recorded[tag]] if tag is not None else unknown
    return visits


def _ctas_of(timeline: Timeline, ctas: NDArray[np.int32]) -> NDArray[np.void]:
    own = timeline.ctas[np.argsort(timeline.ctas["cta"], kind="stable")]
    return own[np.searchsorted(own["cta"], ctas)]


def _lost(timeline: Timeline) -> float:
    """Return by what part of its length times inside a CTA may be off.

    Between its begin and its end, times are read off the SM's clock at one rate. If that was below the highest one,
    the SM may have lost all the time that this takes in one part of the CTA.
    """
    highest_hz = timeline.launch.kernel.sm_clock_hz
    if timeline.clock.source == ClockSource.TIMER:
        return 0.0
    return max(1 - timeline.clock.clock_hz / highest_hz, 0.0) if highest_hz else 1.0


class _FlagIdentities:
    """Numbers of the places in memory that launches use."""

    def __init__(self, launches: Sequence[PlacedLaunch]) -> None:
        self._origins = [placed.timeline.launch.origin for placed in launches]
        self._shared = _shared_memory(launches)
        self._numbers: dict[Hashable, int] = {}

    def numbered(self, visits: NDArray[np.void]) -> NDArray[np.void]:
        pairs, which = np.unique(visits[["launch", "address"]], return_inverse=True)
        numbers = [self._number(self._origins[launch], address) for launch, address in pairs.tolist()]
        visits["flag"] = np.array(numbers, dtype=np.int64)[which.reshape(-1)] if numbers else -1
        return visits

    def _number(self, origin: Origin, address: int) -> int:
        if address == NO_TAG:
            return -1
        around = next(
            (one for one in origin.flag_memory if one.address <= address < one.address + one.size_bytes), None
        )
        key: Hashable = origin.name, address
        if around is not None and (memory := self._shared.get((origin.name, around.address))) is not None:
            key = memory, address - around.address
        return self._numbers.setdefault(key, len(self._numbers))


def _kind_of(origin: Origin, memory: FlagMemoryRecord) -> tuple[Hashable, ...]:
    """Return the properties of an allocation that are the same in all processes: host, device and size."""
    device = None if memory.device is None else origin.globaltimer(memory.device)
    return origin.host, origin.boot_id, device, memory.size_bytes


def _shared_memory(launches: Sequence[PlacedLaunch]) -> dict[tuple[str, int], Hashable]:
    """Return the identity of allocations, by the process and its address there, where it is known.

    Processes that share a device may each have an allocation of one size there; then it must be known whose it is.
    """
    origins = {placed.timeline.launch.origin.name: placed.timeline.launch.origin for placed in launches}
    uses = {(one.origin.name, one.origin.globaltimer(one.device)) for one in (p.timeline.launch for p in launches)}
    users = Counter(device for _, device in uses)
    alike: dict[tuple[Hashable, ...], dict[str, list[FlagMemoryRecord]]] = {}
    for origin in origins.values():
        for memory in origin.flag_memory:
            alike.setdefault(_kind_of(origin, memory), {}).setdefault(origin.name, []).append(memory)
    found: dict[tuple[str, int], Hashable] = {}
    for kind, processes in alike.items():
        if all(len(own) == 1 for own in processes.values()):
            exported = sum(own[0].is_exported for own in processes.values())
            if exported > 1 or (not exported and users[kind[2]] > 1):
                continue
            found |= {(name, own[0].address): kind for name, own in processes.items()}
        elif len(processes) == 2 and all(_is_one_exported_of_two(own) for own in processes.values()):
            for (name, own), owner in zip(processes.items(), reversed(processes), strict=True):
                found |= {(name, one.address): (kind, name if one.is_exported else owner) for one in own}
    return found


def _is_one_exported_of_two(memory: Sequence[FlagMemoryRecord]) -> bool:
    return sorted(one.is_exported for one in memory) == [False, True]
