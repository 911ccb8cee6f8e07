"""File of how the timers of a host's GPUs relate, as an exchange over peer memory showed it.

It is in the capture's folder. ``docs/file-formats.md`` describes it.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kprof_inject.capture.encoding import encode, read_of_run, sealed
from kprof_inject.capture.schema import Name, TimeNs
from kprof_inject.files import write_bytes

PEER_CLOCKS_FILE = "peer_clocks.json"


class PeerReading(Struct, frozen=True, kw_only=True):
    """The globaltimers of two GPUs at one moment.

    That of ``reference`` was at ``reference_ns``, that of ``device`` at ``device_ns`` ± ``error_ns``. UUIDs name both.
    """

    reference: Name
    device: Name
    reference_ns: TimeNs
    device_ns: TimeNs
    error_ns: TimeNs


class PeerClocksRecord(Struct, frozen=True, kw_only=True):
    """Content of ``peer_clocks.json``: readings from before the run and after it."""

    readings: tuple[PeerReading, ...]


def read_peer_clocks(capture_folder: Path, run: str = "") -> tuple[PeerReading, ...]:
    """Read how the timers of a capture's GPUs relate; empty if that is unknown.

    Raises ``KprofError`` if the file is damaged, or if ``run`` (see ``ProcessRecord``) is not empty and the file is of
    another run.
    """
    record = read_of_run(capture_folder / PEER_CLOCKS_FILE, PeerClocksRecord, run)
    return record.readings if record else ()


def write_peer_clocks(capture_folder: Path, readings: tuple[PeerReading, ...], run: str) -> None:
    """Write how the timers of a capture's GPUs relate; ``run`` is the run of the capture."""
    write_bytes(capture_folder / PEER_CLOCKS_FILE, sealed(encode(PeerClocksRecord(readings=readings)), run) + b"\n")
