"""File of the bytes that each GPU sent and received over NVLink while the program ran, as the hardware counted them.

It is in the capture's folder. ``docs/file-formats.md`` describes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from kprof_inject.capture.encoding import encode, read_of_run, sealed
from kprof_inject.capture.schema import Count, Name, Text, TimeNs
from kprof_inject.files import write_bytes

LINK_TRAFFIC_FILE = "link_traffic.json"

MAX_LINK_SAMPLES = 1 << 20
"""Maximum number of samples of a GPU."""

_Numbers = Annotated[tuple[Count, ...], Meta(max_length=MAX_LINK_SAMPLES)]


class DeviceTraffic(Struct, frozen=True, kw_only=True):
    """Samples of a GPU, by its UUID, that are not 0: each of ``interval_ns`` from ``begins_ns`` on, ascending.

    It was sampled from ``from_ns`` to ``to_ns``, without ``gaps_ns``. Times are by the host's clock; bytes are user
    data.
    """

    device: Name
    from_ns: TimeNs
    to_ns: TimeNs
    begins_ns: Annotated[tuple[TimeNs, ...], Meta(max_length=MAX_LINK_SAMPLES)]
    sent_bytes: _Numbers
    received_bytes: _Numbers
    gaps_ns: tuple[tuple[TimeNs, TimeNs], ...] = ()

    def __post_init__(self) -> None:
        """Require ascending times, and a number of each kind for each."""
        if not len(self.begins_ns) == len(self.sent_bytes) == len(self.received_bytes):
            raise ValueError("expected bytes of both directions for each sample")
        if any(one >= following for one, following in zip(self.begins_ns, self.begins_ns[1:], strict=False)):
            raise ValueError("expected ascending times")


class LinkTrafficRecord(Struct, frozen=True, kw_only=True):
    """Content of ``link_traffic.json``.

    ``not_sampled`` is the reason why there are no samples, in words that follow *because*; empty if there are.
    """

    interval_ns: Annotated[int, Meta(ge=1, lt=1 << 32)]
    devices: tuple[DeviceTraffic, ...]
    not_sampled: Text = ""


def read_link_traffic(capture_folder: Path, run: str = "") -> LinkTrafficRecord | None:
    """Read what a capture's GPUs sent each other; None if that was not sampled.

    Raises ``KprofError`` if the file is damaged, or if ``run`` (see ``ProcessRecord``) is not empty and the file is of
    another run.
    """
    return read_of_run(capture_folder / LINK_TRAFFIC_FILE, LinkTrafficRecord, run)


def write_link_traffic(capture_folder: Path, record: LinkTrafficRecord, run: str) -> None:
    """Write what the GPUs sent each other; ``run`` is the run of the capture."""
    write_bytes(capture_folder / LINK_TRAFFIC_FILE, sealed(encode(record), run) + b"\n")
