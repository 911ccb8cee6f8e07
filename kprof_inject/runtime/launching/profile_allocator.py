"""Gives Triton the buffer of the launch that a thread is making."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime import _allocation

from kprof_inject.runtime.devices.device import Buffer


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
