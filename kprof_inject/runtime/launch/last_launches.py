"""``--launches last``: a few buffers for each kernel and stream, which its launches write to in turn.

What the last launch wrote stays where it is while the next one is made. Then its buffer is free again, so a launch
costs neither memory nor a copy. Nothing here takes a lock: a launch has its buffer to itself, whoever launches beside
it or in the midst of it, and one that an exception ends takes its buffer along and leaves the others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kprof_inject.runtime.devices.device import Buffer, Device, NoDeviceMemory
from kprof_inject.runtime.launch.launch_buffers import Destination, FullBuffer, Grid, LaunchInfo, OwnBuffers, Save

_SAVE_EVERY_NS = 1_000_000_000
"""How often a launch is saved though another may follow, for the case that the process is killed."""


class LastLaunches:
    """Keeps the last launch of each variant, in buffers of ``max_bytes`` together, and saves the first one and then one
    about once a second.

    In a CUDA graph, launches of different grids have buffers of their own: which of the graphs is replayed last is not
    known before the end."""

    def __init__(self, device: Device, save: Save, max_bytes: int) -> None:
        self._device = device
        self._save = save
        self._room = _Room(max_bytes, self._held_bytes)
        self._own = OwnBuffers(device, save)
        self._rotations: dict[tuple[str, int, int], _Rotation] = {}
        self._graph_buffers: dict[_GraphKey, _GraphBuffer] = {}

    def destination_for(self, launch: LaunchInfo) -> Destination:
        build = launch.build
        if launch.graph:
            return self._destination_in_graph(launch)
        if build.overlaps:
            return self._own.destination_for(launch)
        key = (build.variant, launch.device, launch.stream)
        rotation = self._rotations.get(key)
        if rotation is None:
            made = _Rotation(build.variant_of_program, self._device, self._save, self._room)
            rotation = self._rotations.setdefault(key, made)
        return rotation.claim(launch)

    def _destination_in_graph(self, launch: LaunchInfo) -> Destination:
        key = (launch.build.variant, launch.device, launch.stream, launch.grid)
        shared = self._graph_buffers.get(key)
        if shared is None:
            size_bytes = launch.size_bytes
            buffer = self._room.take(size_bytes, lambda: self._device.zeros_outside_graphs(size_bytes))
            shared = self._graph_buffers.setdefault(key, _GraphBuffer(buffer, size_bytes))
        return _LastInGraph(launch, shared)

    def _held_bytes(self) -> int:
        """Without those of launches that are being made: what an exception cuts off takes its buffer along."""
        in_graphs = sum(shared.size_bytes for shared in list(self._graph_buffers.values()))
        return in_graphs + sum(rotation.held_bytes() for rotation in list(self._rotations.values()))

    def save_rest(self) -> None:
        self._own.save_rest()
        for rotation in list(self._rotations.values()):
            for full in rotation.rest():
                self._save(full)
        # Behind the others: the writer knows which of a graph and a launch was the last.
        for shared in list(self._graph_buffers.values()):
            if (launch := shared.launch) is not None:
                with self._device.selected(launch.device):
                    self._save(FullBuffer(launch, shared.buffer, self._device.mark(launch.stream)))

    def newest(self) -> dict[str, int]:
        found = [(rotation.variant, rotation.newest()) for rotation in list(self._rotations.values())]
        found += self._own.newest.copy().items()
        in_graphs = [shared.launch for shared in list(self._graph_buffers.values()) if shared.launch is not None]
        found += [(launch.build.variant_of_program, launch.index) for launch in in_graphs]
        return {variant: max(index for other, index in found if other == variant) for variant in dict(found)}

    def unsaved(self) -> int:
        in_graphs = sum(shared.launch is not None for shared in list(self._graph_buffers.values()))
        return self._own.unsaved() + in_graphs + sum(map(_Rotation.unsaved, list(self._rotations.values())))


_GraphKey = tuple[str, int, int, Grid]


class _Room:
    """How many bytes all buffers may take; ``held_bytes`` tells what they do take."""

    def __init__(self, max_bytes: int, held_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = held_bytes

    def take(self, size_bytes: int, make: Callable[[], Buffer]) -> Buffer:
        """Raises ``NoDeviceMemory`` if there is no room here or on the device."""
        left_bytes = self._max_bytes - self._held_bytes()
        if size_bytes > left_bytes:
            raise NoDeviceMemory(f"all buffers together would exceed the limit by {size_bytes - left_bytes}")
        return make()


class _Slot:
    """One of a rotation's buffers, as the destination of one launch after the other."""

    __slots__ = ("_rotation", "buffer", "is_lent", "launch", "size_bytes")

    def __init__(self, rotation: _Rotation, buffer: Buffer, launch: LaunchInfo) -> None:
        self._rotation = rotation
        self.buffer = buffer
        self.size_bytes = launch.size_bytes
        self.launch = launch
        self.is_lent = False
        """True if the writer may read it: it is not written to any more."""

    def launched(self) -> None:
        self._rotation.finish(self)

    def failed(self) -> None:
        self._rotation.give_back(self)


class _Rotation:
    """The buffers of one kernel on one stream: those of the launches being made, that of the last one, and free ones.

    ``variant`` is what the program compiled."""

    def __init__(self, variant: str, device: Device, save: Save, room: _Room) -> None:
        self.variant = variant
        self._device = device
        self._save = save
        self._room = room
        # What is done to these is atomic: two threads never get one slot.
        self._free: deque[_Slot] = deque()
        self._last: deque[_Slot] = deque()
        self._newest = -1
        self._saved_ns = 0
        self._has_room = True

    def claim(self, launch: LaunchInfo) -> _Slot:
        """Raises ``NoDeviceMemory``."""
        slot = _taken(self._free.pop, launch.size_bytes) or self._another(launch)
        slot.launch = launch
        return slot

    def finish(self, slot: _Slot) -> None:
        launch = slot.launch
        now_ns = launch.host_end_ns = time.time_ns()
        is_due = now_ns - self._saved_ns >= _SAVE_EVERY_NS and self._has_room
        if is_due:
            slot.is_lent = True
            self._saved_ns = now_ns
        self._keep(slot)
        if launch.index > self._newest:
            self._newest = launch.index
        if is_due:
            self._hand_over(slot)

    def give_back(self, slot: _Slot) -> None:
        self._free.append(slot)

    def rest(self) -> Iterator[FullBuffer]:
        """The last launch. What other threads made beside it may come with it, or what was saved: the writer keeps the
        newest."""
        for slot in list(self._last):
            slot.is_lent = True
            with self._device.selected(slot.launch.device):
                yield self._full(slot)

    def newest(self) -> int:
        """The number of the last launch that was made; -1: none yet."""
        return max(self._newest, *(slot.launch.index for slot in self._last.copy()), -1)

    def held_bytes(self) -> int:
        return sum(slot.size_bytes for slot in (*self._free.copy(), *self._last.copy()))

    def unsaved(self) -> int:
        return int(any(not slot.is_lent for slot in list(self._last)))

    def _keep(self, slot: _Slot) -> None:
        """Make this the last launch unless there is a newer one; the other's buffer is free then."""
        while True:
            self._last.append(slot)
            if len(self._last) < 2:
                return
            try:
                other = self._last.popleft()
            except IndexError:  # other threads took them meanwhile, for want of room
                return
            if other is not slot and other.launch.index < slot.launch.index:
                if not other.is_lent:
                    self._free.append(other)
                return
            slot = other

    def _another(self, launch: LaunchInfo) -> _Slot:
        """A new slot; where there is no room for that, the one of the last launch."""
        if not self._has_room and (slot := _taken(self._last.popleft, launch.size_bytes)):
            return slot
        try:
            return self._new(launch)
        except NoDeviceMemory:
            self._has_room = False
            if slot := _taken(self._last.popleft, launch.size_bytes, else_to=self._save_early):
                return slot
        return self._new(launch)  # what is too small may have made room by now

    def _new(self, launch: LaunchInfo) -> _Slot:
        size_bytes = launch.size_bytes
        return _Slot(self, self._room.take(size_bytes, lambda: self._device.zeros(size_bytes, launch.stream)), launch)

    def _save_early(self, slot: _Slot) -> None:
        if not slot.is_lent:
            slot.is_lent = True
            self._hand_over(slot)

    def _hand_over(self, slot: _Slot) -> None:
        self._save(self._full(slot))

    def _full(self, slot: _Slot) -> FullBuffer:
        return FullBuffer(slot.launch, slot.buffer, self._device.mark(slot.launch.stream))


def _taken(take: Callable[[], _Slot], size_bytes: int, else_to: Callable[[_Slot], None] | None = None) -> _Slot | None:
    """A slot that has the size and that nobody reads, if ``take`` gives one."""
    try:
        slot = take()
    except IndexError:
        return None
    if slot.size_bytes >= size_bytes and not slot.is_lent:
        return slot
    if else_to is not None:
        else_to(slot)
    return None


@dataclass(slots=True)
class _GraphBuffer:
    """What the launches of one grid in graphs write to, and the one captured last."""

    buffer: Buffer
    size_bytes: int
    launch: LaunchInfo | None = None


@dataclass(frozen=True, slots=True)
class _LastInGraph:
    launch: LaunchInfo
    shared: _GraphBuffer

    @property
    def buffer(self) -> Buffer:
        return self.shared.buffer

    def launched(self) -> None:
        self.launch.host_end_ns = time.time_ns()
        self.shared.launch = self.launch

    def failed(self) -> None:
        pass
