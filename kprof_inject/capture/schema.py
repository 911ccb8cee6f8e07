"""Schema of a capture's JSON files: each record with its fields, their ranges, and the rules between them.

The writer encodes these records and the reader decodes them, so a field's name and its bounds are defined only here.
Decoded records are sound: no other module checks them again. ``docs/file-formats.md`` is the description.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from kprof_inject.capture.encoding import Record

FORMAT_VERSION = 3
"""No other version is read."""

SCOPE_IDS = 256
"""Number of scope ids: a record has 8 bits for one. The constant is not in ``buffer_layouts`` with the other bits,
because the selection of scopes uses it and works without numpy.
"""

MAX_TAGS = 8
"""Maximum number of tags of a scope."""
RECORDS_OF_TAG = 2
"""A start and an end, which Proton requires after each start. Both store the value, or the halves of one that is wide,
the lower first. They directly precede the start of the tag's scope; several tags are in their order.
"""
HALF_BITS = 32
"""Bits of a value that one record stores."""

MAX_CTA_SHIFT = 12
"""At least one of ``2 ** MAX_CTA_SHIFT`` clusters records (see ``cta_samples``)."""

PROCESS_FILE = "process.json"
LAUNCHES_FILE = "launches.jsonl"
CLOCK_FILE = "clock.jsonl"
END_FILE = "end.json"
KERNELS_FOLDER = "kernels"
KERNEL_FILE = "kernel.json"
TTGIR_FILE = "kernel.ttgir"
SOURCES_FILE = "sources.json"
TIMING_FILE = "timing.json"

MAX_TEXT_BYTES = 64 << 20
"""Limit of a module's text, and of all its sources together."""

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
MAX_ARGUMENT = (1 << 62) - 1
"""Limit at which the sum of two arguments fits 64 bits."""
Argument = Annotated[int, Meta(ge=-MAX_ARGUMENT, le=MAX_ARGUMENT)]

# GPUs run at 0.6 GHz (Jetson) to 3 GHz; the limits leave room on either side.
_MIN_SM_CLOCK_HZ, _MAX_SM_CLOCK_HZ = 3e8, 6e9


def require_measured(values: Iterable[float], name: str) -> None:
    """Raise ``ValueError`` for a number that is neither 0 nor large enough to have been measured."""
    for value in values:
        if 0 < value < MIN_MEASURED:
            raise ValueError(f"expected {name} of 0 or >= {MIN_MEASURED:g}, got {value:g}")


class ModeRecord(Struct, frozen=True):
    """Recording mode; ``Mode`` describes each field.

    A capture must state how it was recorded, so these fields have no defaults, unlike those of ``Mode``.
    """

    buffer: BufferChoice
    buffer_bytes: RingBytes
    clock_bits: ClockBits
    warps: Warps = ()
    sched_stores: bool = False
    sched_barriers: bool = False

    def __post_init__(self) -> None:
        """Require ascending warps."""
        if any(warp >= following for warp, following in zip(self.warps, self.warps[1:], strict=False)):
            raise ValueError("expected ascending warps")


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """Content of ``process.json``.

    ``made_by`` is the command that captured for its own use; it is empty if the capture was made for the user to read.
    """

    version: int = FORMAT_VERSION
    made_by: Name = ""
    pid: Annotated[int, Meta(ge=0, lt=1 << 32)]
    rank: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    argv: tuple[Text, ...] = ()
    executable: Text = ""
    host: Name = ""
    boot_id: Name = ""
    tool: Name = ""
    python: Name = ""
    torch: Name = ""
    triton: Name = ""
    device_names: tuple[Name, ...] = ()
    device_uuids: tuple[Name, ...] = ()
    mode: ModeRecord | None = None
    kernel: Name = ""
    launches: Name = ""
    max_bytes: Count = 0
    max_launches: Count = 0


class LaunchRecord(Struct, frozen=True, kw_only=True):
    """Line of ``launches.jsonl``: a launch whose buffer was saved.

    ``arguments`` are those of the compiled function, in the order of its parameters: integers and addresses, None for
    others; empty if they are unknown. Of ``2 ** cta_shift`` clusters one recorded (see ``cta_samples``).
    """

    variant: FileName
    index: LaunchIndex
    grid: Grid
    device: DeviceIndex
    stream: Annotated[int, Meta(ge=0)]
    host_ns: TimeNs
    host_end_ns: TimeNs | None = None
    buffer_bytes: Bytes
    file: FileName
    buffer_crc32: Crc32 | None = None
    graph: bool = False
    arguments: Annotated[tuple[Argument | None, ...], Meta(max_length=1 << 12)] = ()
    cta_shift: CtaShift = 0


class DropRecord(Struct, frozen=True, kw_only=True):
    """Line of ``launches.jsonl``: the launch with this file was removed, because a later one replaces it."""

    drop: FileName


class ClockRecord(Struct, frozen=True):
    """Line of ``clock.jsonl``: a device's globaltimer read ``device_ns`` at host time ``host_ns`` ± ``error_ns``."""

    device: DeviceIndex
    host_ns: TimeNs
    device_ns: TimeNs
    error_ns: TimeNs


class EndRecord(Struct, frozen=True):
    """Content of ``end.json``."""

    left_out: dict[Text, Count]
    launches: dict[Name, Count] = field(default_factory=dict)


class Resources(Struct, frozen=True):
    """Resources that one build of a kernel uses; None is unknown."""

    registers: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    spills: Count | None = None
    local_words: Count | None = None
    shared_bytes: RingBytes | None = None
    ctas_per_sm: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None


class TimedResources(Resources, frozen=True):
    """Resources, with times of single launches, or the reason why there are none.

    ``empty_launch_ns`` is the time of an empty kernel, measured in the same way. ``launches`` is the number of
    launches that were made, as far as they were counted; None if unknown.
    """

    times_ns: tuple[DurationNs, ...] | None = None
    not_timed: Text | None = None
    empty_launch_ns: DurationNs | None = None
    launches: Count | None = None

    def __post_init__(self) -> None:
        """Require times that can have been measured."""
        require_measured(self.times_ns or (), "times_ns")


class PairedTimesRecord(Struct, frozen=True, kw_only=True):
    """Times of launches of a kernel without records and with them, in turn.

    The n-th times of both are a pair. Each is the time of ``launches`` launches back to back, divided by their number.
    ``restored`` is true if the kernel's memory was restored before each launch, and not only at the end. ``*_empty_ns``
    are the times of an empty kernel, measured in the same way.
    """

    clean_ns: tuple[DurationNs, ...]
    with_records_ns: tuple[DurationNs, ...]
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    restored: bool = False
    clean_empty_ns: DurationNs | None = None
    with_records_empty_ns: DurationNs | None = None

    def __post_init__(self) -> None:
        """Require pairs of times that can have been measured."""
        if len(self.clean_ns) != len(self.with_records_ns):
            raise ValueError("expected as many times with records as without")
        require_measured(self.clean_ns, "clean_ns")
        require_measured(self.with_records_ns, "with_records_ns")


MAX_GRIDS = 256
"""Grids of a kernel whose launches a capture counts one by one."""


class GridTimesRecord(Struct, frozen=True, kw_only=True):
    """Launches of a kernel with one grid: their number in the process, and times of some without records.

    The times include what launching takes, as those of ``TimingRecord.in_turn`` do.
    """

    grid: Grid
    launches: Count
    clean_ns: tuple[DurationNs, ...] = ()

    def __post_init__(self) -> None:
        """Require times that can have been measured."""
        require_measured(self.clean_ns, "clean_ns")


class TimingRecord(Struct, frozen=True):
    """Content of ``timing.json``: device times of single launches, in their order, and those of replays.

    Without times, or without replays, there is a reason, in words that follow *because*. ``empty_launch_ns`` is the
    time of an empty kernel, measured as single launches. ``in_turn`` has launches of the program itself, if it ran only
    once; ``grids`` counts all launches of its variant by grid, if there are several.
    """

    times_ns: tuple[DurationNs, ...]
    not_timed: Text | None = None
    replay: PairedTimesRecord | None = None
    not_replayed: Text | None = None
    empty_launch_ns: DurationNs | None = None
    in_turn: PairedTimesRecord | None = None
    grids: Annotated[tuple[GridTimesRecord, ...], Meta(max_length=MAX_GRIDS)] = ()

    def __post_init__(self) -> None:
        """Require times that can have been measured."""
        require_measured(self.times_ns, "times_ns")


class Target(Struct, frozen=True):
    """Triton's ``GPUTarget``."""

    backend: Name
    arch: Annotated[int, Meta(ge=0, lt=1 << 16)] | Name
    warp_size: Literal[32, 64] = 32

    def __str__(self) -> str:
        """Return the target as modules name it, such as ``cuda:90``."""
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
    ``options`` are its compile options, ``metadata`` is Triton's. ``signature`` has the types of its arguments,
    ``constants`` the values for which it is compiled, both by name; ``environment`` has the variables of the program's
    environment that affect its compiler.
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
        """Require options and metadata that can be written again."""
        _require_shallow(self.options, "options")
        _ = self.known_metadata

    @property
    def known_metadata(self) -> CleanMetadata:
        """Known fields of Triton's metadata."""
        return _known(self.metadata, CleanMetadata, "metadata")


class PointRecord(Struct, frozen=True):
    """Place in a source file."""

    file: Name
    line: Annotated[int, Meta(ge=0, lt=1 << 31)]
    column: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class TagRecord(Struct, frozen=True):
    """Value that is recorded where a scope begins.

    It has a name, the name of its records, and its name in the module. A value ``is_wide`` if it has 64 bits, not 32.
    """

    name: Name
    record: Name
    value: Name = ""
    is_wide: bool = False


class ScopeRecord(Struct, frozen=True, kw_only=True):
    """Scope of the scope table.

    ``lines`` are its first and last line in the TTGIR without records, from 1.
    ``ended_by_next`` is true for an iteration that the next one's start ends. ``tags`` are in the order of their
    records.
    """

    record: Name
    name: Name
    kind: Name
    label: Name = ""
    selector: Name = ""
    function: Name = ""
    source: PointRecord | None
    called_from: tuple[PointRecord | None, ...]
    parent: Annotated[int, Meta(ge=-1, lt=SCOPE_IDS)]
    partition: Annotated[int, Meta(ge=0, lt=SCOPE_IDS)] | None = None
    crosses: tuple[Annotated[int, Meta(ge=0, lt=SCOPE_IDS)], ...] = ()
    block: Name = ""
    operations: Count = 0
    other_operations: Count = 0
    lines: tuple[LineNumber, LineNumber] | None = None
    ended_by_next: bool = False
    tags: Annotated[tuple[TagRecord, ...], Meta(max_length=MAX_TAGS)] = ()

    def __post_init__(self) -> None:
        """Require ascending lines."""
        if self.lines and self.lines[0] > self.lines[1]:
            raise ValueError("expected ascending lines")


class Partition(Struct, frozen=True):
    """Partition of a warp-specialized kernel.

    ``warps`` is the number of warps that run it (None if unknown), ``function`` the function that its region was
    written as (Gluon takes one for each; empty if unknown).
    """

    name: Name
    warps: WarpCount | None
    function: Name = ""


class RelaunchRecord(Struct, frozen=True, kw_only=True):
    """Facts that decide whether a kernel can be launched again from the memory that it began with.

    ``refusal`` is the reason against it, in words that follow *it*; empty if its module shows none. ``waits`` is true
    if it may loop until others change memory.
    """

    refusal: Text = ""
    waits: bool = False


class ScopeTableRecord(Struct, frozen=True, kw_only=True):
    """Scope table: the meaning of each record name.

    Outer scopes precede inner ones. ``body_record`` is the name of records around the kernel's whole body that belong
    to no scope; empty if there are none.
    """

    kernel: Name = ""
    partitions: Annotated[tuple[Partition, ...], Meta(max_length=SCOPE_IDS)] = ()
    scopes: Annotated[tuple[ScopeRecord, ...], Meta(max_length=SCOPE_IDS)]
    most_records: Count | None = None
    body_record: Name = ""
    relaunch: RelaunchRecord | None = None

    def __post_init__(self) -> None:
        """Require outer scopes before inner ones, and a separate record for each scope and tag."""
        for index, scope in enumerate(self.scopes):
            if scope.parent >= index:
                raise ValueError(f"expected a parent of scope {index} before it, got {scope.parent}")
            if scope.partition is not None and scope.partition >= len(self.partitions):
                raise ValueError(
                    f"expected a partition of scope {index} below {len(self.partitions)}, got {scope.partition}"
                )
        records = [scope.record for scope in self.scopes]
        records += [tag.record for scope in self.scopes for tag in scope.tags]
        if len({self.body_record, *records}) <= len(records):
            raise ValueError("expected a separate record for each scope and each tag")


class KernelRecord(Resources, frozen=True, kw_only=True):
    """Content of a capture's ``kernel.json``.

    ``metadata`` is Triton's, ``clean_metadata`` that of the kernel without records, and ``clean`` its resources. The
    other resources are those of the kernel with records; the checksums are of the files in the same folder.
    ``program_variant`` is the dumped variant that the build was made from. With a ``cta_shift``, each launch records 1
    of ``2 ** cta_shift`` clusters, with None as many as suit its grid (see ``cta_samples``).
    """

    name: Name
    program_variant: Name = ""
    layout: LayoutName
    cta_shift: CtaShift | None = 0
    scope_ids: dict[ScopeId, Name]
    scope_table: ScopeTableRecord
    sm_clock_hz: float
    sm_count: Annotated[int, Meta(ge=0, lt=1 << 16)] = 0
    l2_bytes: Bytes = 0
    dram_bytes_per_s: Annotated[float, Meta(ge=0, lt=1e15)] = 0
    mode: ModeRecord
    metadata: dict[str, Any]
    clean_metadata: dict[str, Any] = field(default_factory=dict)
    clean: TimedResources = TimedResources()
    ttgir_crc32: Crc32 | None = None
    sources_crc32: Crc32 | None = None

    def __post_init__(self) -> None:
        """Require a plausible clock, possible warps, and metadata with valid known fields."""
        if self.sm_clock_hz != plausible_sm_clock_hz(self.sm_clock_hz):
            raise ValueError(f"expected 0 or the clock of a GPU, got {self.sm_clock_hz:g} - at `$.sm_clock_hz`")
        require_measured([self.dram_bytes_per_s], "dram_bytes_per_s")
        num_warps = self.known_metadata.num_warps
        if self.mode.buffer == "auto":
            raise ValueError("expected a buffer of shared or global - at `$.mode.buffer`")
        if any(warp >= num_warps for warp in self.mode.warps):
            raise ValueError(f"expected warps below {num_warps}, the number of a CTA's warps - at `$.mode.warps`")
        _ = self.known_clean_metadata

    @property
    def known_metadata(self) -> Metadata:
        """Known fields of Triton's metadata."""
        return _known(self.metadata, Metadata, "metadata")

    @property
    def known_clean_metadata(self) -> CleanMetadata:
        """Known fields of Triton's metadata of the kernel without records."""
        return _known(self.clean_metadata, CleanMetadata, "clean_metadata")


def plausible_sm_clock_hz(hz: float) -> float:
    """Return ``hz`` if it can be the nominal clock of a GPU's SMs, otherwise 0, which means unknown."""
    return hz if _MIN_SM_CLOCK_HZ <= hz <= _MAX_SM_CLOCK_HZ else 0.0


# Maximum nesting of Triton's own values; the JSON encoder, which is recursive, can write more.
_MAX_DEPTH = 16


def _require_shallow(value: Any, name: str) -> None:
    """Raise ``ValueError`` for a value that is nested too deeply to be written again.

    Triton's own values may hold anything else.
    """
    level = [value]
    for _ in range(_MAX_DEPTH):
        parts = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [part for of_one in parts for part in of_one]
        if not level:
            return
    raise ValueError(f"expected {name} of a depth <= {_MAX_DEPTH}")


def _known(values: dict[str, Any], kind: type[Record], name: str) -> Record:
    _require_shallow(values, name)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        what, at, path = str(error).partition(" - at `$")
        raise ValueError(f"{what} - at `$.{name}{path}" if at else f"{what} - at `$.{name}`") from None
