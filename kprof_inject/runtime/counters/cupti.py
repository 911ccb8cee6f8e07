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

_TYPES = {
    "z": c_size_t,
    "p": c_void_p,
    "s": c_char_p,
    "i": c_int,
    "B": c_uint8,
    "H": c_uint16,
    "I": c_uint32,
    "Q": c_uint64,
    "3Q": c_uint64 * 3,
}
_PARAMETERS = "structSize:z pPriv:p"
_HOST = f"{_PARAMETERS} pHostObject:p"
_RANGES = f"{_PARAMETERS} pRangeProfilerObject:p"
_SAMPLING = "size:z pPriv:p ctx:p"
_METRICS = "ppMetricNames:p numMetrics:z"
_IMAGE = "pCounterDataImage:p counterDataImageSize:z"

_DECLARED = {
    "cuptiProfilerInitialize": _PARAMETERS,
    "cuptiDeviceGetChipName": f"{_PARAMETERS} deviceIndex:z pChipName:s",
    "cuptiProfilerGetCounterAvailability": f"{_PARAMETERS} ctx:p counterAvailabilityImageSize:z"
    " pCounterAvailabilityImage:p",
    "cuptiProfilerHostInitialize": f"{_PARAMETERS} profilerType:i pChipName:s pCounterAvailabilityImage:p"
    " pHostObject:p",
    "cuptiProfilerHostDeinitialize": _HOST,
    "cuptiProfilerHostConfigAddMetrics": f"{_HOST} {_METRICS}",
    "cuptiProfilerHostGetConfigImageSize": f"{_HOST} configImageSize:z",
    "cuptiProfilerHostGetConfigImage": f"{_HOST} configImageSize:z pConfigImage:p",
    "cuptiProfilerHostEvaluateToGpuValues": f"{_HOST} {_IMAGE} rangeIndex:z {_METRICS} pMetricValues:p",
    "cuptiRangeProfilerEnable": f"{_PARAMETERS} ctx:p pRangeProfilerObject:p",
    "cuptiRangeProfilerDisable": _RANGES,
    "cuptiRangeProfilerGetCounterDataSize": f"{_RANGES} pMetricNames:p numMetrics:z maxNumOfRanges:z"
    " maxNumRangeTreeNodes:I counterDataSize:z",
    "cuptiRangeProfilerCounterDataImageInitialize": f"{_RANGES} counterDataSize:z pCounterData:p",
    "cuptiRangeProfilerSetConfig": f"{_RANGES} configSize:z pConfig:p counterDataImageSize:z pCounterDataImage:p"
    " range:i replayMode:i maxRangesPerPass:z numNestingLevels:H minNestingLevel:H passIndex:z targetNestingLevel:H",
    "cuptiRangeProfilerStart": _RANGES,
    "cuptiRangeProfilerStop": f"{_RANGES} passIndex:z targetNestingLevel:z isAllPassSubmitted:B",
    "cuptiRangeProfilerDecodeData": f"{_RANGES} numOfRangeDropped:z",
    "cuptiRangeProfilerGetCounterDataInfo": f"{_PARAMETERS} {_IMAGE} numTotalRanges:z",
    "cuptiPCSamplingEnable": _SAMPLING,
    "cuptiPCSamplingDisable": _SAMPLING,
    "cuptiPCSamplingStart": _SAMPLING,
    "cuptiPCSamplingStop": _SAMPLING,
    "cuptiPCSamplingGetData": f"{_SAMPLING} pcSamplingData:p",
    "cuptiPCSamplingGetNumStallReasons": f"{_SAMPLING} numStallReasons:p",
    "cuptiPCSamplingGetStallReasons": f"{_SAMPLING} numStallReasons:z stallReasonIndex:p stallReasons:p",
    "cuptiPCSamplingSetConfigurationAttribute": f"{_SAMPLING} numAttributes:z pPCSamplingConfigurationInfo:p",
    "CUpti_PCSamplingConfigurationInfo": "attributeType:i attributeStatus:i attributeData:3Q",
    "CUpti_PCSamplingStallReason": "pcSamplingStallReasonIndex:I samples:I",
    "CUpti_PCSamplingPCData": "size:z cubinCrc:Q pcOffset:Q functionIndex:I pad:I functionName:s"
    " stallReasonCount:z stallReason:p correlationId:I",
    "CUpti_PCSamplingData": "size:z collectNumPcs:z totalSamples:Q droppedSamples:Q totalNumPcs:z remainingNumPcs:z"
    " rangeId:Q pPcData:p nonUsrKernelsTotalSamples:Q hardwareBufferFull:B",
}
STRUCTURES = {
    name: [(field, _TYPES[kind]) for field, kind in (declared.split(":") for declared in fields.split())]
    for name, fields in _DECLARED.items()
}
"""Fields of the structures: those of functions by the function's name, others by their own."""


class CuptiError(KprofError):
    """CUPTI refused a call; ``status`` is its result code."""

    def __init__(self, what: str, status: int, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.status = status


@cache
def structure(name: str) -> Any:
    """Return the ctypes structure with a name in ``STRUCTURES``."""
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
    """CUPTI's functions, with errors as exceptions. Raises ``KprofError`` if the library cannot be loaded."""

    def __init__(self, path: Path) -> None:
        try:
            for name in _NEEDED:
                ctypes.CDLL(str(path.parent / name), mode=ctypes.RTLD_GLOBAL)
            self._functions = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise KprofError(f"CUPTI cannot be loaded: {error}", hint=NEWER_CUPTI) from None

    def call(self, function: str, **fields: Any) -> Any:
        """Call a function with its structure, and return the structure. Raises ``CuptiError``."""
        kind = structure(function)
        parameters = kind(**fields)
        (first, _), *_, (last, _) = STRUCTURES[function]
        setattr(parameters, first, end_of(kind, last))
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
        if not _ONLY_ADMINISTRATORS.search(_DRIVER_PARAMETERS.read_text()):
            return True
        found = _CAPABILITIES.search(_STATUS.read_text())
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_ADMIN & 1)
