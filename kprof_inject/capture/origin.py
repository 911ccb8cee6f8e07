"""Where launches come from: a process, its host, and the clocks of its devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostReading:
    """At host time ``host_ns`` ± ``error_ns`` the globaltimer of the process's device ``device`` read ``device_ns``."""

    device: int
    host_ns: int
    device_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class Place:
    """A device as one process numbers it. ``rank`` is the process's, or None."""

    host: str
    rank: int | None
    pid: int
    device: int


@dataclass(frozen=True, slots=True)
class Origin:
    """One process: ``name`` is its folder's in the capture. ``boot_id`` is empty where it is not known; so is what
    ``device_names`` and ``device_uuids``, lists by index, do not say of a device."""

    name: str
    pid: int
    rank: int | None
    host: str
    boot_id: str
    device_names: tuple[str, ...]
    device_uuids: tuple[str, ...]
    host_readings: tuple[HostReading, ...]

    @property
    def host_clock(self) -> Hashable:
        """Processes for which this is equal read the same host clock."""
        return (self.host, self.boot_id) if self.boot_id else (self.host, self.boot_id, self.name)

    def device_name(self, device: int) -> str:
        """Empty if it is unknown."""
        return _item(self.device_names, device)

    def device_uuid(self, device: int) -> str:
        """Empty if it is unknown."""
        return _item(self.device_uuids, device)

    def globaltimer(self, device: int) -> Hashable:
        """Launches for whose origin and device this is equal were timed by the same device's globaltimer."""
        if uuid := self.device_uuid(device):
            return self.device_name(device), uuid
        return self.host, self.boot_id, self.name, device


def place_names(places: Iterable[Place]) -> dict[Place, str]:
    """What to call each place beside the others: its rank or pid, and its device. One place alone needs no name."""
    distinct = dict.fromkeys(places)
    if len(distinct) <= 1:
        return dict.fromkeys(distinct, "")
    processes = {(place.host, place.rank, place.pid) for place in distinct}
    if len(processes) == 1:
        return {place: f"device {place.device}" for place in distinct}
    several_hosts = len({place.host for place in distinct}) > 1
    processes_of_rank = Counter(rank for _, rank, _ in processes)
    return {
        place: f"{_process_name(place, processes_of_rank[place.rank], several_hosts)}, device {place.device}"
        for place in distinct
    }


def _process_name(place: Place, processes_of_rank: int, several_hosts: bool) -> str:
    pid = f"process {place.pid}" + (f" of {place.host}" if several_hosts else "")
    if place.rank is None:
        return pid
    # What a rank starts has its environment, and so its RANK.
    return f"rank {place.rank}" if processes_of_rank == 1 else f"rank {place.rank}, {pid}"


def _item(texts: tuple[str, ...], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""
