"""Gives Triton the memory that a launch needs besides its arguments: the profile buffer of each launch with records,
and scratch memory for launches of ours, which the program's own allocator must not hear of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime import _allocation

from kprof_inject.runtime.devices.device import Buffer, Device


class _OfThisThread(threading.local):
    buffer: Any = None


launching = _OfThisThread()
"""What the records of this thread's present launch go to."""


def install() -> None:
    """Have Triton ask here. It has one allocator for each context, so this is called at each launch."""
    _allocation._profile_allocator.set(_allocate)


def _allocate(size: int, alignment: int, stream: int | None) -> Buffer:
    buffer: Buffer = launching.buffer
    return buffer


@contextmanager
def writing_to(buffer: Buffer) -> Iterator[None]:
    """Launches of this thread write their records there. A signal handler's may come in the midst of others'."""
    outer, launching.buffer = launching.buffer, buffer
    try:
        yield
    finally:
        launching.buffer = outer


@contextmanager
def own_scratch(device: Device) -> Iterator[None]:
    """Launches in this context take scratch memory of ours (tensor descriptors made on the device need it), instead of
    calling ``triton.set_allocator``'s function. They follow each other on one stream, so that one buffer will do."""
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
