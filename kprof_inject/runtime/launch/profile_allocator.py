"""Allocate the memory that a launch needs besides its arguments.

This is the profile buffer of each launch with records, and scratch memory for our own launches, which the program's
allocator must not see.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime import _allocation

from kprof_inject.runtime.devices.device import Buffer, Device


class _PresentLaunch(threading.local):
    buffer: Any = None


present_launch = _PresentLaunch()
"""Holds the buffer of this thread's present launch."""


def install() -> None:
    """Set our allocator of profile buffers. Triton has one for each context, so this is called at each launch."""
    _allocation._profile_allocator.set(_allocate)


def _allocate(size: int, alignment: int, stream: int | None) -> Buffer:
    buffer: Buffer = present_launch.buffer
    return buffer


@contextmanager
def writing_to(buffer: Buffer) -> Iterator[None]:
    """Direct the records of this thread's launches to a buffer.

    A signal handler may launch in the middle of this.
    """
    outer, present_launch.buffer = present_launch.buffer, buffer
    try:
        yield
    finally:
        present_launch.buffer = outer


@contextmanager
def own_scratch(device: Device) -> Iterator[None]:
    """Give launches in this context our own scratch memory, which tensor descriptors made on the device need.

    Triton then does not call the function that the program passed to ``triton.set_allocator``. The launches follow each
    other on one stream, so one buffer of each size is enough.
    """
    buffers: dict[int, Buffer] = {}

    def allocate(size: int, alignment: int, stream: int | None) -> Buffer:
        if size not in buffers:
            buffers[size] = device.zeros(size, stream or 0)
        return buffers[size]

    before = _allocation._allocator.set(allocate)
    try:
        yield
    finally:
        _allocation._allocator.reset(before)
