"""Types of the fields of our JSON files, with their ranges, and the record of a dumped kernel.

Readers decode records of these types, so decoded records are sound.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from kprof_inject.capture.encoding import Record

SCOPE_IDS = 256  # Number of scope ids: a record has 8 bits for one. It is not in ``buffer_layouts``, which needs numpy.

MAX_TAGS = 8
RECORDS_OF_TAG = 2
"""A start and an end, which Proton requires after each start. Both store the value, or the halves of one that is wide,
the lower first. They directly precede the start of the tag's scope; several tags are in their order.
"""
HALF_BITS = 32

MAX_CTA_SHIFT = 12  # at least one of ``2 ** MAX_CTA_SHIFT`` clusters records (see ``cta_samples``)

KERNEL_FILE = "kernel.json"
TTGIR_FILE = "kernel.ttgir"
SOURCES_FILE = "sources.json"

MAX_TEXT_BYTES = 64 << 20  # limit of a module's text, and of all its sources together

# Bounds that no sound capture reaches.
MAX_NAME_LENGTH = 1 << 12
Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
Text = Annotated[str, Meta(max_length=1 << 21)]
FileName = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[^/\\\x00]{1,255}\Z")]
"""Single component of a path, so that no path leads out of its folder."""
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Bytes = Annotated[int, Meta(ge=0, lt=1 << 48)]
Crc32 = Annotated[int, Meta(ge=0, lt=1 << 32)]
# The year 2116. The difference of two such times fits 64 bits.
TimeNs = Annotated[int, Meta(ge=0, lt=1 << 62)]
DurationNs = Annotated[float, Meta(ge=0, lt=1e18)]
MIN_MEASURED = 1e-6
"""Below the steps of every clock and counter: only 0 is smaller. Ratios of smaller numbers would overflow."""
Cycles = Annotated[float, Meta(ge=0, lt=1e9)]
# As wide as the column of timelines.
LaunchIndex = Annotated[int, Meta(ge=0, lt=1 << 31)]
DeviceIndex = Annotated[int, Meta(ge=0, lt=1 << 16)]
# CUDA: "x-dimension of a grid of thread blocks", 2^31 - 1.
END_OF_GRID_SIZES = 1 << 31
GridSize = Annotated[int, Meta(ge=1, lt=END_OF_GRID_SIZES)]
Grid = tuple[GridSize, GridSize, GridSize]
# A CTA has at most 1024 threads, and so 32 warps, or 16 of AMD's; Proton's buffers may say more.
WarpCount = Annotated[int, Meta(ge=1, le=64)]
Warps = Annotated[tuple[Annotated[int, Meta(ge=0, lt=1 << 14)], ...], Meta(max_length=64)]
RingBytes = Annotated[int, Meta(ge=0, lt=1 << 31)]
ClockBits = Literal[32, 64]
BufferChoice = Literal["shared", "global", "auto"]
ScopeId = Annotated[int, Meta(ge=0, lt=SCOPE_IDS)]
LineNumber = Annotated[int, Meta(ge=1, lt=1 << 31)]
CtaShift = Annotated[int, Meta(ge=0, le=MAX_CTA_SHIFT)]
LayoutName = Literal["timed", "untimed"]
MAX_ARGUMENT = (1 << 62) - 1  # limit at which the sum of two arguments fits 64 bits
Argument = Annotated[int, Meta(ge=-MAX_ARGUMENT, le=MAX_ARGUMENT)]

# GPUs run at 0.6 GHz (Jetson) to 3 GHz; the limits leave room on either side.
_MIN_SM_CLOCK_HZ, _MAX_SM_CLOCK_HZ = 3e8, 6e9
SmClockHz = Annotated[float, Meta(ge=_MIN_SM_CLOCK_HZ, le=_MAX_SM_CLOCK_HZ)]  # nominal clock of a GPU's SMs


def require_measured(values: Iterable[float], name: str) -> None:
    """Raise ``ValueError`` for a number that is neither 0 nor large enough to have been measured."""
    for value in values:
        if 0 < value < MIN_MEASURED:
            raise ValueError(f"expected {name} of 0 or >= {MIN_MEASURED:g}, got {value:g}")


class Target(Struct, frozen=True):
    """Triton's ``GPUTarget``."""

    backend: Name
    arch: Annotated[int, Meta(ge=0, lt=1 << 16)] | Name
    warp_size: Literal[32, 64] = 32

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


class CleanMetadata(Struct, frozen=True):
    """Fields that are read of the metadata that Triton gives a kernel; the rest is kept as it is."""

    num_warps: WarpCount | None = None
    num_ctas: Annotated[int, Meta(ge=1, le=64)] = 1
    num_stages: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    maxnreg: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    shared: RingBytes | None = None
    target: Target | None = None
    triton_version: Name | None = None


class Metadata(CleanMetadata, frozen=True, kw_only=True):
    """Metadata of a kernel with records."""

    num_warps: WarpCount
    profile_scratch_size: Annotated[int, Meta(ge=4, lt=1 << 31, multiple_of=4)]


class DumpedKernelRecord(Struct, frozen=True, kw_only=True):
    """Content of a workspace's ``kernel.json``: one compiled variant that ``dump`` saved.

    ``override_key`` and ``file_name`` are the folder and the file that Triton looks for in an override folder.
    ``signature`` has the types of its arguments, ``constants`` the values for which it is compiled, both by name;
    ``environment`` has the variables of the program's environment that affect its compiler.
    """

    name: Name
    override_key: FileName
    file_name: FileName
    target: Target | None = None
    options: dict[Name, Any] = field(default_factory=dict)
    signature: dict[Name, Text] = field(default_factory=dict)
    constants: dict[Name, Text] = field(default_factory=dict)
    metadata: dict[Name, Any] = field(default_factory=dict)
    triton_version: Name = ""
    environment: dict[Name, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_shallow(self.options, "options")
        _ = self.known_metadata

    @property
    def known_metadata(self) -> CleanMetadata:
        """Known fields of Triton's metadata."""
        return known_fields(self.metadata, CleanMetadata, "metadata")


def plausible_sm_clock_hz(hz: float) -> float | None:
    """Return ``hz`` if it can be the nominal clock of a GPU's SMs."""
    return hz if _MIN_SM_CLOCK_HZ <= hz <= _MAX_SM_CLOCK_HZ else None


_MAX_DEPTH = 16  # maximum nesting of Triton's own values; the JSON encoder, which is recursive, can write more


def _require_shallow(value: Any, name: str) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        parts = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [part for of_one in parts for part in of_one]
        if not level:
            return
    raise ValueError(f"expected {name} of a depth <= {_MAX_DEPTH}")


def known_fields(values: dict[str, Any], kind: type[Record], name: str) -> Record:
    """Return the fields of Triton's values that a record has; raises ``ValueError`` for invalid ones."""
    _require_shallow(values, name)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        what, at, path = str(error).partition(" - at `$")
        raise ValueError(f"{what} - at `$.{name}{path}" if at else f"{what} - at `$.{name}`") from None
