"""The device of this process: torch's in a user's program, and one of our own in a process of ours, without torch."""

from __future__ import annotations

import functools

from kprof_inject.runtime.devices.device import Device


class _Own:
    """The device that this process took for itself."""

    device: Device | None = None


def use_device(device: Device) -> None:
    """Have this process, which is ours, work on a device without torch."""
    _Own.device = device


@functools.cache
def _of_torch() -> Device:
    # Imported here, because it imports torch.
    from kprof_inject.runtime.devices.torch_device import torchs_devices

    return torchs_devices()


def devices_of_process() -> Device:
    """Return the devices of this process. All callers share the object, which keeps its memory for reuse."""
    return _Own.device or _of_torch()
