"""Call CUPTI, NVIDIA's profiling library, by ctypes.

Each function takes a structure whose first field is its size. ``STRUCTURES`` has the fields that we use, in the order
of CUPTI's headers (12.8, in Triton's wheel); a newer library accepts the shorter structures of an older one.

Two CUPTIs in one process conflict: a process of ours is without torch, which brings one, and in the user's program we
use the one that torch has loaded.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from ctypes import c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from kprof_inject.errors import KprofError
from kprof_inject.runtime.devices.cuda_driver import driver_version

# The folders of the packages that torch needs and of Triton, and those of CUDA's toolkit.
_PACKAGES = ("nvidia/*/lib", "triton/backends/nvidia/lib/cupti*")
_TOOLKIT = ("extras/CUPTI/lib64", "lib64")
NEWER_CUPTI = "install the CUPTI of the driver's CUDA: pip install nvidia-cuda-cupti"
_VERSIONS_OF_MAJOR = 1000  # CUDA Driver API reference, cuDriverGetVersion: 12080 is 12.8
# CUPTI loads them by name. A library that is already loaded is found wherever it is.
_NEEDED = ("libnvperf_host.so", "libnvperf_target.so")

_REASONS = {
    8: "the device has no memory for its counters",
    26: "another profiler uses the device's counters",  # CUPTI_ERROR_HARDWARE_BUSY
    27: "CUPTI does not support this device",
    33: "CUPTI does not support a virtual GPU",
    35: "this user has no permission to read the device's counters",  # CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
    36: "another profiler uses an older interface in this process",
    39: "another profiler is active in this process",
    40: "the virtual GPU's host does not permit to read its counters",
    41: "CUPTI does not support confidential computing",
    43: "CUPTI does not support this MIG device",
    45: "CUPTI does not support this device in WSL",
}
_NOT_PERMITTED = frozenset((35, 40))

_Fields = tuple[tuple[str, Any], ...]
_PARAMETERS: _Fields = (("structSize", c_size_t), ("pPriv", c_void_p))
_RANGE_PROFILER: _Fields = (("pRangeProfilerObject", c_void_p),)
_HOST: _Fields = (("pHostObject", c_void_p),)
_METRICS: _Fields = (("ppMetricNames", c_void_p), ("numMetrics", c_size_t))
_DATA_IMAGE: _Fields = (("pCounterDataImage", c_void_p), ("counterDataImageSize", c_size_t))
_SAMPLING: _Fields = (("size", c_size_t), ("pPriv", c_void_p), ("ctx", c_void_p))

STRUCTURES: dict[str, _Fields] = {
    "CUpti_Profiler_Initialize_Params": _PARAMETERS,
    "CUpti_Device_GetChipName_Params": (*_PARAMETERS, ("deviceIndex", c_size_t), ("pChipName", c_char_p)),
    "CUpti_Profiler_GetCounterAvailability_Params": (
        *_PARAMETERS,
        ("ctx", c_void_p),
        ("counterAvailabilityImageSize", c_size_t),
        ("pCounterAvailabilityImage", c_void_p),
    ),
    "CUpti_Profiler_Host_Initialize_Params": (
        *_PARAMETERS,
        ("profilerType", c_int),
        ("pChipName", c_char_p),
        ("pCounterAvailabilityImage", c_void_p),
        *_HOST,
    ),
    "CUpti_Profiler_Host_Deinitialize_Params": (*_PARAMETERS, *_HOST),
    "CUpti_Profiler_Host_ConfigAddMetrics_Params": (*_PARAMETERS, *_HOST, *_METRICS),
    "CUpti_Profiler_Host_GetConfigImageSize_Params": (*_PARAMETERS, *_HOST, ("configImageSize", c_size_t)),
    "CUpti_Profiler_Host_GetConfigImage_Params": (
        *_PARAMETERS,
        *_HOST,
        ("configImageSize", c_size_t),
        ("pConfigImage", c_void_p),
    ),
    "CUpti_Profiler_Host_EvaluateToGpuValues_Params": (
        *_PARAMETERS,
        *_HOST,
        *_DATA_IMAGE,
        ("rangeIndex", c_size_t),
        *_METRICS,
        ("pMetricValues", c_void_p),
    ),
    "CUpti_RangeProfiler_Enable_Params": (*_PARAMETERS, ("ctx", c_void_p), *_RANGE_PROFILER),
    "CUpti_RangeProfiler_Disable_Params": (*_PARAMETERS, *_RANGE_PROFILER),
    "CUpti_RangeProfiler_GetCounterDataSize_Params": (
        *_PARAMETERS,
        *_RANGE_PROFILER,
        ("pMetricNames", c_void_p),
        ("numMetrics", c_size_t),
        ("maxNumOfRanges", c_size_t),
        ("maxNumRangeTreeNodes", c_uint32),
        ("counterDataSize", c_size_t),
    ),
    "CUpti_RangeProfiler_CounterDataImage_Initialize_Params": (
        *_PARAMETERS,
        *_RANGE_PROFILER,
        ("counterDataSize", c_size_t),
        ("pCounterData", c_void_p),
    ),
    "CUpti_RangeProfiler_SetConfig_Params": (
        *_PARAMETERS,
        *_RANGE_PROFILER,
        ("configSize", c_size_t),
        ("pConfig", c_void_p),
        ("counterDataImageSize", c_size_t),
        ("pCounterDataImage", c_void_p),
        ("range", c_int),
        ("replayMode", c_int),
        ("maxRangesPerPass", c_size_t),
        ("numNestingLevels", c_uint16),
        ("minNestingLevel", c_uint16),
        ("passIndex", c_size_t),
        ("targetNestingLevel", c_uint16),
    ),
    "CUpti_RangeProfiler_Start_Params": (*_PARAMETERS, *_RANGE_PROFILER),
    "CUpti_RangeProfiler_Stop_Params": (
        *_PARAMETERS,
        *_RANGE_PROFILER,
        ("passIndex", c_size_t),
        ("targetNestingLevel", c_size_t),
        ("isAllPassSubmitted", c_uint8),
    ),
    "CUpti_RangeProfiler_PushRange_Params": (*_PARAMETERS, *_RANGE_PROFILER, ("pRangeName", c_char_p)),
    "CUpti_RangeProfiler_PopRange_Params": (*_PARAMETERS, *_RANGE_PROFILER),
    "CUpti_RangeProfiler_DecodeData_Params": (*_PARAMETERS, *_RANGE_PROFILER, ("numOfRangeDropped", c_size_t)),
    "CUpti_RangeProfiler_GetCounterDataInfo_Params": (*_PARAMETERS, *_DATA_IMAGE, ("numTotalRanges", c_size_t)),
    "CUpti_PCSamplingEnableParams": _SAMPLING,
    "CUpti_PCSamplingDisableParams": _SAMPLING,
    "CUpti_PCSamplingStartParams": _SAMPLING,
    "CUpti_PCSamplingStopParams": _SAMPLING,
    "CUpti_PCSamplingGetDataParams": (*_SAMPLING, ("pcSamplingData", c_void_p)),
    "CUpti_PCSamplingGetNumStallReasonsParams": (*_SAMPLING, ("numStallReasons", c_void_p)),
    "CUpti_PCSamplingGetStallReasonsParams": (
        *_SAMPLING,
        ("numStallReasons", c_size_t),
        ("stallReasonIndex", c_void_p),
        ("stallReasons", c_void_p),
    ),
    "CUpti_PCSamplingConfigurationInfoParams": (
        *_SAMPLING,
        ("numAttributes", c_size_t),
        ("pPCSamplingConfigurationInfo", c_void_p),
    ),
    "CUpti_PCSamplingConfigurationInfo": (
        ("attributeType", c_int),
        ("attributeStatus", c_int),
        ("attributeData", c_uint64 * 3),
    ),
    "CUpti_PCSamplingStallReason": (("pcSamplingStallReasonIndex", c_uint32), ("samples", c_uint32)),
    "CUpti_PCSamplingPCData": (
        ("size", c_size_t),
        ("cubinCrc", c_uint64),
        ("pcOffset", c_uint64),
        ("functionIndex", c_uint32),
        ("pad", c_uint32),
        ("functionName", c_char_p),
        ("stallReasonCount", c_size_t),
        ("stallReason", c_void_p),
        ("correlationId", c_uint32),
    ),
    "CUpti_PCSamplingData": (
        ("size", c_size_t),
        ("collectNumPcs", c_size_t),
        ("totalSamples", c_uint64),
        ("droppedSamples", c_uint64),
        ("totalNumPcs", c_size_t),
        ("remainingNumPcs", c_size_t),
        ("rangeId", c_uint64),
        ("pPcData", c_void_p),
        ("nonUsrKernelsTotalSamples", c_uint64),
        ("hardwareBufferFull", c_uint8),
    ),
}


class CuptiError(KprofError):
    """CUPTI refused a call; ``status`` is its result code."""

    def __init__(self, what: str, status: int, hint: str = "") -> None:
        """Keep the result code with the message."""
        super().__init__(what, hint=hint)
        self.status = status


@cache
def structure(name: str) -> Any:
    """Return the ctypes structure with a name of CUPTI's headers."""
    return type(name, (ctypes.Structure,), {"_fields_": STRUCTURES[name]})


def end_of(kind: Any, field: str) -> int:
    """Return the size of a structure up to the end of a field, which CUPTI takes as its size."""
    found = getattr(kind, field)
    return int(found.offset + found.size)


def find_cupti() -> Path:
    """Return the library of the newest CUDA that is not newer than the driver's, or else the oldest one.

    One that is older than the driver may not see its launches (12.8 saw none with driver 580, of CUDA 13.0), and one
    that is newer does not work with it. Raises ``KprofError`` if there is none.
    """
    packages = [(Path(folder), pattern) for folder in sys.path for pattern in _PACKAGES]
    toolkit = [(Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"), pattern) for pattern in _TOOLKIT]
    paths = [path for at, pattern in [*packages, *toolkit] for path in sorted(at.glob(f"{pattern}/libcupti.so.1?"))]
    found = [(int(path.suffix[1:]), path) for path in paths if path.suffix[1:].isdigit()]
    if not found:
        raise KprofError("there is no CUPTI", hint=NEWER_CUPTI)
    newest = driver_version() // _VERSIONS_OF_MAJOR
    majors = sorted({major for major, _ in found})
    wanted = max((major for major in majors if major <= newest), default=majors[0])
    return next(path for major, path in found if major == wanted)


class Cupti:
    """CUPTI's functions, with errors as exceptions."""

    def __init__(self, path: Path) -> None:
        """Load a library. Raises ``KprofError`` if that fails."""
        try:
            for name in _NEEDED:
                ctypes.CDLL(str(path.parent / name), mode=ctypes.RTLD_GLOBAL)
            self._functions = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise KprofError(f"CUPTI cannot be loaded: {error}", hint=NEWER_CUPTI) from None

    def call(self, function: str, kind: str, **fields: Any) -> Any:
        """Call a function with a structure, and return the structure. Raises ``CuptiError``."""
        made = structure(kind)
        parameters = made(**fields)
        (first, _), *_, (last, _) = STRUCTURES[kind]
        setattr(parameters, first, end_of(made, last))
        self.require(function, getattr(self._functions, function)(ctypes.byref(parameters)))
        return parameters

    def require(self, function: str, status: int) -> None:
        """Raise ``CuptiError`` for a result code that is not 0."""
        if status:
            text = c_char_p()
            self._functions.cuptiGetResultString(c_int(status), ctypes.byref(text))
            name = (text.value or b"").decode(errors="replace")
            reason = _REASONS.get(status, f"{function} failed with {name or status}")
            hint = "doctor says how to get it" if status in _NOT_PERMITTED else ""
            raise CuptiError(reason, status, hint)


_DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_ONLY_ADMINISTRATORS = re.compile(r"^RmProfilingAdminOnly: 1$", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s+([0-9a-f]+)$", re.MULTILINE)
_CAP_SYS_ADMIN = 21  # linux/capability.h

HOW_TO_GET_PERMISSION = (
    "an administrator sets NVreg_RestrictProfilingToAdminUsers=0 for the kernel module nvidia, or runs the program "
    "with CAP_SYS_ADMIN (docker run --cap-add=SYS_ADMIN)"
)


def has_nvidia_module() -> bool:
    """Return True if NVIDIA's kernel module is loaded."""
    return _DRIVER_PARAMETERS.exists()


def is_permitted() -> bool:
    """Return True if this user may read the hardware's counters, by the parameters of NVIDIA's kernel module.

    It does not touch the device. Source: NVIDIA, "ERR_NVGPUCTRPERM: Permission issue with Performance Counters".
    Containers have the host's setting.
    """
    try:
        parameters = _DRIVER_PARAMETERS.read_text()
    except OSError:
        return False
    if not _ONLY_ADMINISTRATORS.search(parameters):
        return True
    try:
        found = _CAPABILITIES.search(_STATUS.read_text())
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)
