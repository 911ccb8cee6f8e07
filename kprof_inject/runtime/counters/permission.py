"""Find out whether this user may read the hardware's counters, without touching the device.

Source: NVIDIA, "ERR_NVGPUCTRPERM: Permission issue with Performance Counters". Containers have the host's setting.
"""

from __future__ import annotations

import re
from pathlib import Path

_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_ONLY_ADMINISTRATORS = re.compile(r"^RmProfilingAdminOnly: 1$", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s+([0-9a-f]+)$", re.MULTILINE)
_CAP_SYS_ADMIN = 21  # linux/capability.h

HOW_TO_GET_IT = (
    "an administrator sets NVreg_RestrictProfilingToAdminUsers=0 for the kernel module nvidia, or runs the program "
    "with CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN)"
)


def has_nvidia_module() -> bool:
    """Return whether NVIDIA's kernel module is loaded."""
    return _PARAMETERS.exists()


def is_permitted() -> bool:
    """Return whether the driver permits it, as far as its parameters say; false without NVIDIA's kernel module."""
    try:
        parameters = _PARAMETERS.read_text()
    except OSError:
        return False
    return not _ONLY_ADMINISTRATORS.search(parameters) or _is_administrator()


def _is_administrator() -> bool:
    try:
        found = _CAPABILITIES.search(_STATUS.read_text())
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)
