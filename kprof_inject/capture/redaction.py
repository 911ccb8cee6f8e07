"""Removal of personal data from a capture that is to be shared with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from kprof_inject.capture.model import Capture, Origin, Process

LEFT_OUT = "the program's command line, its Python path, and host names"
"""Data that ``redacted`` leaves out, for users to read. ``STAYS`` is data that they may expect to be left out."""
STAYS = (
    "the kernels' names, source, TTGIR and integer arguments, paths of source files, devices, versions, process ids "
    "and times"
)


def redacted(capture: Capture) -> Capture:
    """Return the capture without ``LEFT_OUT``.

    Hosts are numbered in the order of their processes, so that they stay distinguishable.
    """
    hosts = {name: f"host {number}" for number, name in enumerate(_distinct(capture, lambda origin: origin.host), 1)}
    boots = {boot: str(number) for number, boot in enumerate(_distinct(capture, lambda origin: origin.boot_id), 1)}
    return replace(capture, processes=tuple(_redacted(process, hosts, boots) for process in capture.processes))


def _distinct(capture: Capture, text: Callable[[Origin], str]) -> list[str]:
    """Return the distinct texts, without the empty one, which means unknown."""
    return [found for found in dict.fromkeys(text(process.origin) for process in capture.processes) if found]


def _redacted(process: Process, hosts: Mapping[str, str], boots: Mapping[str, str]) -> Process:
    host, boot_id = hosts.get(process.origin.host, ""), boots.get(process.origin.boot_id, "")
    origin = replace(process.origin, host=host, boot_id=boot_id)
    info = msgspec.structs.replace(process.info, argv=(), executable="", host=host, boot_id=boot_id)
    launches = tuple(replace(launch, origin=origin, process=info) for launch in process.launches)
    return replace(process, origin=origin, info=info, launches=launches)
