"""Step that runs a process of ours during the program, to sample the traffic over NVLink."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.link_traffic import LinkTrafficRecord, write_link_traffic
from kprof_inject.capture.reader import ProcessFiles
from kprof_inject.errors import KprofError
from kprof_inject.runtime.program import finding_this_package

_MODULE = "kprof_inject.runtime.counters.link_process"
# Shorter ones cost more of a core: at 20 µs, each GPU takes half of one.
_INTERVAL_NS = 50_000
_MAX_SECONDS = 20.0


class LinkSampling:
    """Process of ours that samples the links. Nothing happens unless ``begin`` starts it."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._process: subprocess.Popen[bytes] | None = None
        self._record: LinkTrafficRecord | None = None

    def begin(self) -> None:
        """Start the process, and wait until it samples, or has ended."""
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(_INTERVAL_NS)],
                env=finding_this_package(os.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the program
            )
            if self._process.stdout is not None:
                select.select([self._process.stdout], [], [], _MAX_SECONDS)

    def end(self) -> None:
        """Have the process end, and take what it found."""
        if self._process is None:
            return
        try:
            written, _ = self._process.communicate(timeout=_MAX_SECONDS)
            self._record = decode(written.strip(), LinkTrafficRecord, _MODULE)
        except (OSError, subprocess.SubprocessError, KprofError):
            self._process.kill()
            self._process.wait()
        self._process = None

    def save(self, capture_folder: Path) -> None:
        """Save what was found in a capture."""
        if self._record is not None and self._record.devices:
            run = ProcessFiles.first_of(capture_folder).process.run
            write_link_traffic(capture_folder, self._record, run)


@contextmanager
def sampled_links(metrics: Sequence[str], *, uses_several_gpus: bool) -> Iterator[LinkSampling]:
    """Sample while the program runs, if it may use several GPUs and counters are to be read, and may be."""
    sampling = LinkSampling()
    if metrics and uses_several_gpus:
        sampling.begin()
    try:
        yield sampling
    finally:
        sampling.end()
