"""Step that runs a process of ours during the program, to sample the traffic over NVLink."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.link_traffic import LinkTrafficRecord, write_link_traffic
from kprof_inject.capture.peer_clocks import PeerReading
from kprof_inject.capture.reader import ProcessFiles
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import Say
from kprof_inject.runtime.program import finding_this_package

_MODULE = "kprof_inject.runtime.counters.link_process"
# Of each GPU sampled: Python takes some 5 µs for each sample, besides CUPTI.
_INTERVAL_OF_GPU_NS = 10_000
_MAX_SECONDS = 10.0


class LinkSampling:
    """Process of ours that samples the links. Nothing happens unless ``begin`` starts it."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._process: subprocess.Popen[bytes] | None = None
        self._record: LinkTrafficRecord | None = None

    def begin(self, uuids: Collection[str]) -> None:
        """Start the process, which samples these GPUs, and wait until it samples, or has ended."""
        interval_ns = _INTERVAL_OF_GPU_NS * len(uuids)
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(interval_ns), *sorted(uuids)],
                env=finding_this_package(os.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the program
            )
            if self._process.stdout is not None:
                select.select([self._process.stdout], [], [], _MAX_SECONDS)

    def end(self) -> None:
        """Have the process end, and take what it found. Whatever happens, it is gone afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            written, _ = process.communicate(timeout=_MAX_SECONDS)
            self._record = decode(written.strip(), LinkTrafficRecord, _MODULE)
        except (OSError, subprocess.SubprocessError, KprofError):
            return
        finally:
            process.kill()
            process.wait()

    def save(self, capture_folder: Path, say: Say) -> None:
        """Save what was found in a capture, or say why there is nothing."""
        if self._record is None:
            return
        if not self._record.devices:
            say(f"NVLink was not sampled: {self._record.not_sampled}")
            return
        run = ProcessFiles.first_of(capture_folder).process.run
        write_link_traffic(capture_folder, self._record, run)


@contextmanager
def sampled_links(metrics: Sequence[str], peers: Sequence[PeerReading]) -> Iterator[LinkSampling]:
    """Sample the GPUs that compared their timers, while the program runs, if counters are to be read, and may be."""
    sampling = LinkSampling()
    uuids = {uuid for reading in peers for uuid in (reading.reference, reading.device)}
    try:
        if metrics and uuids:
            sampling.begin(uuids)
        yield sampling
    finally:
        sampling.end()
