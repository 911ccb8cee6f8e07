"""Sample the traffic of all GPUs over NVLink, in a process of ours: ``python -m ...link_process INTERVAL_NS``.

It writes a byte once it samples, ends when its input does, and then writes a ``LinkTrafficRecord``.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence

from kprof_inject.capture.encoding import encode
from kprof_inject.capture.link_traffic import MAX_LINK_SAMPLES, DeviceTraffic, LinkTrafficRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import Cupti, find_cupti
from kprof_inject.runtime.counters.pm_sampler import PmSampler, Sample
from kprof_inject.runtime.devices.cuda_device import CudaDevice
from kprof_inject.runtime.devices.cuda_driver import Driver, loaded_driver

SENT, RECEIVED = "nvltx__bytes_data_user.sum", "nvlrx__bytes_data_user.sum"
READY = b"\n"
_TAKES_EVERY_S = 0.01


class _Link:
    """The sampler of one GPU, and its samples so far."""

    def __init__(self, sampler: PmSampler) -> None:
        self.sampler = sampler
        self.samples: list[Sample] = []
        self.is_cut = False

    def take(self) -> None:
        for sample in self.sampler.take():
            if len(self.samples) < MAX_LINK_SAMPLES:
                self.samples.append(sample)
            else:
                self.is_cut = True

    def traffic(self, uuid: str) -> DeviceTraffic:
        sent, received = map(self.sampler.metrics.index, (SENT, RECEIVED))
        return DeviceTraffic(
            device=uuid,
            begins_ns=tuple(sample.begin_ns for sample in self.samples),
            sent_bytes=tuple(round(sample.values[sent]) for sample in self.samples),
            received_bytes=tuple(round(sample.values[received]) for sample in self.samples),
            is_cut=self.is_cut or self.sampler.has_overflowed,
        )


def traffic_until_input_ends(interval_ns: int) -> LinkTrafficRecord:
    """Sample until the standard input ends. Raises ``KprofError`` where that is not possible."""
    functions = loaded_driver()
    if functions is None or functions.cuInit(0):
        raise KprofError("there is no NVIDIA GPU")
    uuids = CudaDevice(Driver(functions)).uuids()
    cupti = Cupti(find_cupti())
    cupti.call("cuptiProfilerInitialize", "CUpti_Profiler_Initialize_Params")
    samplers = [PmSampler(cupti, device, (SENT, RECEIVED), interval_ns) for device in range(len(uuids))]
    links = {uuid: _Link(one) for uuid, one in zip(uuids, samplers, strict=True) if len(one.metrics) > 1}
    if len(links) < 2:
        raise KprofError("no two GPUs have counters of NVLink")
    for link in links.values():
        link.sampler.start()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    while not select.select([sys.stdin], [], [], _TAKES_EVERY_S)[0]:
        for link in links.values():
            link.take()
    for link in links.values():
        link.sampler.stop()
        link.take()
    traffic = tuple(link.traffic(uuid) for uuid, link in links.items())
    return LinkTrafficRecord(interval_ns=interval_ns, devices=traffic)


def main(arguments: Sequence[str]) -> int:
    """Sample, and write what was found, or why nothing was."""
    interval_ns = int(arguments[0])
    try:
        record = traffic_until_input_ends(interval_ns)
    except KprofError as error:
        record = LinkTrafficRecord(interval_ns=interval_ns, devices=(), not_sampled=error.what)
    sys.stdout.buffer.write(encode(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
