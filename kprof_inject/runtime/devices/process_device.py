"""The devices of the program's process: torch's."""

from __future__ import annotations

import functools

from kprof_inject.runtime.devices.device import Device


@functools.cache
def devices_of_process() -> Device:
    """Return the devices of this process. All callers share the object, which keeps its memory for reuse."""
    # Imported here, because it imports torch.
    from kprof_inject.runtime.devices.torch_device import torchs_devices

    return torchs_devices()
