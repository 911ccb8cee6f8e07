"""Sample the traffic of GPUs over NVLink, in a process of ours: ``python -m ...link_process INTERVAL_NS UUID...``.

It writes a byte once it samples, ends when its input does, and then writes a ``LinkTrafficRecord``.
"""

from __future__ import annotations

import select
import sys
from array import array
from collections.abc import Collection, Sequence
from contextlib import suppress

from kprof_inject.capture.encoding import encode
from kprof_inject.capture.link_traffic import MAX_LINK_SAMPLES, DeviceTraffic, LinkTrafficRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import Cupti, CuptiError, find_cupti
from kprof_inject.runtime.counters.pm_sampler import MAX_TAKEN, PmSampler
from kprof_inject.runtime.devices.cuda_device import CudaDevice
from kprof_inject.runtime.devices.cuda_driver import Driver, loaded_driver

SENT, RECEIVED = "nvltx__bytes_data_user.sum", "nvlrx__bytes_data_user.sum"
READY = b"\n"
_TAKES_EVERY_S = 0.01


class _Link:
    """The sampler of one GPU, and its samples so far."""

    def __init__(self, sampler: PmSampler) -> None:
        self._sampler = sampler
        self._sent, self._received = map(sampler.metrics.index, (SENT, RECEIVED))
        self._columns = array("q"), array("q"), array("q")
        self._is_lost = False
        """True once samples were lost, or there is no more room: those before it are kept."""

    def start(self) -> None:
        self._sampler.start()

    def take(self) -> None:
        if self._is_lost:
            return
        begins_ns, sent, received = self._columns
        try:
            for sample in self._sampler.take():
                begins_ns.append(sample.begin_ns)
                sent.append(round(sample.values[self._sent]))
                received.append(round(sample.values[self._received]))
        except CuptiError:
            self._is_lost = True
        self._is_lost |= len(begins_ns) > MAX_LINK_SAMPLES - MAX_TAKEN

    def stop(self) -> None:
        with suppress(CuptiError):
            self._sampler.stop()
        self.take()

    def traffic(self, uuid: str) -> DeviceTraffic:
        begins_ns, sent, received = map(tuple, self._columns)
        sampler = self._sampler
        return DeviceTraffic(
            device=uuid,
            from_ns=sampler.from_ns,
            to_ns=sampler.to_ns,
            begins_ns=begins_ns,
            sent_bytes=sent,
            received_bytes=received,
            gaps_ns=tuple(sampler.gaps_ns),
        )


def traffic_until_input_ends(interval_ns: int, uuids: Collection[str]) -> LinkTrafficRecord:
    """Sample these GPUs until the standard input ends. Raises ``KprofError`` where that is not possible."""
    functions = loaded_driver()
    if functions is None or functions.cuInit(0):
        raise KprofError("there is no NVIDIA GPU")
    cupti = Cupti(find_cupti())
    cupti.call("cuptiProfilerInitialize", "CUpti_Profiler_Initialize_Params")
    links: dict[str, _Link] = {}
    for device, uuid in enumerate(CudaDevice(Driver(functions)).uuids()):
        sampler = PmSampler(cupti, device, (SENT, RECEIVED), interval_ns) if uuid in uuids else None
        if sampler is not None and len(sampler.metrics) > 1:
            links[uuid] = _Link(sampler)
    if len(links) < len(uuids):
        raise KprofError("not all GPUs have counters of NVLink")
    for link in links.values():
        link.start()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    while not select.select([sys.stdin], [], [], _TAKES_EVERY_S)[0]:
        for link in links.values():
            link.take()
    for link in links.values():
        link.stop()
    traffic = tuple(link.traffic(uuid) for uuid, link in links.items())
    return LinkTrafficRecord(interval_ns=interval_ns, devices=traffic)


def main(arguments: Sequence[str]) -> int:
    """Sample, and write what was found, or why nothing was."""
    interval_ns, uuids = int(arguments[0]), arguments[1:]
    try:
        record = traffic_until_input_ends(interval_ns, uuids)
    except KprofError as error:
        record = LinkTrafficRecord(interval_ns=interval_ns, devices=(), not_sampled=error.what)
    sys.stdout.buffer.write(encode(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
