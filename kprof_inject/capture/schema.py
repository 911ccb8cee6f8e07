"""What stands in the JSON files of a capture: each record with its fields, their ranges, and the rules between them.

The writer encodes these records and the reader decodes them, so that a field's name and its bounds stand here alone.
What has been read is sound: nothing behind this module checks it again. ``docs/capture-format.md`` is the description.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from kprof_inject.errors import KprofError, printable
from kprof_inject.files import read_regular

FORMAT_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Format 1 has no checksums."""
SCOPE_TABLE_VERSION = 2
_READABLE_SCOPE_TABLES = (1, 2)

SCOPE_IDS = 256
"""How many scope ids there are: a record has 8 bits for one. It stands here, and not beside the other bits in
``layouts``, because what selects scopes asks for it and does without numpy."""

PROCESS_FILE = "process.json"
LAUNCHES_FILE = "launches.jsonl"
CLOCK_FILE = "clock.jsonl"
END_FILE = "end.json"
RECORD_COSTS_FILE = "record_costs.json"
KERNELS_FOLDER = "kernels"
KERNEL_FILE = "kernel.json"
TTGIR_FILE = "kernel.ttgir"
SOURCES_FILE = "sources.json"
TIMING_FILE = "timing.json"

MOST_TEXT_BYTES = 64 << 20
"""Of a module's text, and of all its sources together."""
_MOST_JSON_BYTES = 4 << 20

CAPTURE_AGAIN = "capture again: kprof-inject run"

# Bounds that no sound capture reaches.
Name = Annotated[str, Meta(max_length=1 << 12)]
Text = Annotated[str, Meta(max_length=1 << 21)]
FileName = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[^/\\\x00]{1,255}\Z")]
"""One component of a path, so that no path leads out of the folder that it is below."""
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Bytes = Annotated[int, Meta(ge=0, lt=1 << 48)]
Crc32 = Annotated[int, Meta(ge=0, lt=1 << 32)]
# The year 2116. Two such times still have a difference in 64 bits.
TimeNs = Annotated[int, Meta(ge=0, lt=1 << 62)]
DurationNs = Annotated[float, Meta(ge=0, lt=1e18)]
Cycles = Annotated[float, Meta(ge=0, lt=1e9)]
DeviceIndex = Annotated[int, Meta(ge=0, lt=1 << 16)]
# CUDA: "x-dimension of a grid of thread blocks", 2^31 - 1.
GridSize = Annotated[int, Meta(ge=1, lt=1 << 31)]
# A CTA has at most 1024 threads, and so 32 warps, or 16 of AMD's; Proton's buffers may say more.
WarpCount = Annotated[int, Meta(ge=1, le=64)]
Warps = Annotated[tuple[Annotated[int, Meta(ge=0, lt=1 << 14)], ...], Meta(max_length=64)]
RingBytes = Annotated[int, Meta(ge=0, lt=1 << 31)]
ClockBits = Literal[32, 64]
BufferKind = Literal["shared", "global"]
ScopeId = Annotated[int, Meta(ge=0, lt=SCOPE_IDS)]
LineNumber = Annotated[int, Meta(ge=1, lt=1 << 31)]
LayoutName = Literal["timed", "untimed"]

# What GPUs run at, with room to either side: 0.6 GHz (Jetson) to 3 GHz.
_LEAST_SM_CLOCK_HZ, _MOST_SM_CLOCK_HZ = 3e8, 6e9


class ModeRecord(Struct, frozen=True):
    """How Proton records; ``Mode`` has the meaning of each field.

    ``Mode`` would not do here: it has a default for each field, and a capture has to say how it was recorded."""

    buffer: BufferKind
    buffer_bytes: RingBytes
    clock_bits: ClockBits
    warps: Warps = ()
    sched_stores: bool = False

    def __post_init__(self) -> None:
        if any(warp >= following for warp, following in zip(self.warps, self.warps[1:], strict=False)):
            raise ValueError("expected ascending warps")


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """``process.json``. ``run`` is the same for all processes of a capture, ``process`` of each its own."""

    version: int = FORMAT_VERSION
    run: Name = ""
    process: Name = ""
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
    launches: Name = ""
    max_bytes: Count = 0
    max_launches: Count = 0


class LaunchRecord(Struct, frozen=True, kw_only=True):
    """A line of ``launches.jsonl``: a launch whose buffer was saved."""

    line: Count = 0
    variant: FileName
    index: Count
    grid: tuple[GridSize, GridSize, GridSize]
    device: DeviceIndex
    stream: Annotated[int, Meta(ge=0)]
    host_ns: TimeNs
    host_end_ns: TimeNs | None = None
    buffer_bytes: Bytes
    file: FileName
    buffer_crc32: Crc32 | None = None
    graph: bool = False


class DropRecord(Struct, frozen=True, kw_only=True):
    """A line of ``launches.jsonl``: the launch with this file is gone, because a later one stands for it."""

    line: Count = 0
    drop: FileName


class _LineKind(Struct, frozen=True):
    drop: FileName | UnsetType = UNSET


class ClockRecord(Struct, frozen=True):
    """A line of ``clock.jsonl``: what a device's globaltimer read at host time ``host_ns`` ± ``error_ns``."""

    device: DeviceIndex
    host_ns: TimeNs
    device_ns: TimeNs
    error_ns: TimeNs


class EndRecord(Struct, frozen=True):
    """``end.json``. ``launch_lines`` is how many lines ``launches.jsonl`` has, which format 1 does not tell."""

    left_out: dict[Text, Count]
    launches: dict[Name, Count] = field(default_factory=dict)
    launch_lines: Count | None = None


class Resources(Struct, frozen=True):
    """What one build of a kernel takes; None is unknown."""

    registers: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    spills: Count | None = None
    local_words: Count | None = None
    shared_bytes: RingBytes | None = None
    ctas_per_sm: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None


class TimedResources(Resources, frozen=True):
    """The same, with times of single launches, or why there are none."""

    times_ns: tuple[DurationNs, ...] | None = None
    not_timed: Text | None = None


class ReplayRecord(Struct, frozen=True, kw_only=True):
    """A kernel that was launched again to be timed, without records and with them in turn: the n-th times of both are a
    pair. Each is that of ``launches`` launches back to back, divided by their number. ``restored`` says that the
    kernel's memory was put back before each launch, and not only at the end."""

    clean_ns: tuple[DurationNs, ...]
    with_records_ns: tuple[DurationNs, ...]
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    restored: bool = False

    def __post_init__(self) -> None:
        if len(self.clean_ns) != len(self.with_records_ns):
            raise ValueError("expected as many times with records as without")


class TimingRecord(Struct, frozen=True):
    """``timing.json``: device times of single launches, in their order; and those of replays, or why there are none,
    in words that follow *because*."""

    times_ns: tuple[DurationNs, ...]
    not_timed: Text | None = None
    replay: ReplayRecord | None = None
    not_replayed: Text | None = None


class Target(Struct, frozen=True):
    """Triton's ``GPUTarget``."""

    backend: Name
    arch: Annotated[int, Meta(ge=0, lt=1 << 16)] | Name
    warp_size: Literal[32, 64] = 32

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


class CleanMetadata(Struct, frozen=True):
    """What we read of the metadata that Triton gives a kernel; all else in it is kept as it is."""

    num_warps: WarpCount | None = None
    num_ctas: Annotated[int, Meta(ge=1, le=64)] = 1
    num_stages: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    maxnreg: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    shared: RingBytes | None = None
    target: Target | None = None
    triton_version: Name | None = None


class Metadata(CleanMetadata, frozen=True, kw_only=True):
    """Of a kernel with records."""

    num_warps: WarpCount
    profile_scratch_size: Annotated[int, Meta(ge=4, lt=1 << 31, multiple_of=4)]


class DumpedKernelRecord(Struct, frozen=True, kw_only=True):
    """``kernel.json`` of a workspace: one compiled variant that ``dump`` saved.

    ``override_key`` and ``file_name`` are the folder and the file that Triton looks for in an override folder,
    ``options`` what it was compiled with, ``metadata`` what Triton says of it. ``signature`` has the types of its
    arguments, ``constants`` the values that it is compiled for, both by name."""

    name: Name
    override_key: FileName
    file_name: FileName
    target: Target | None = None
    options: dict[Name, Any] = field(default_factory=dict)
    signature: dict[Name, Text] = field(default_factory=dict)
    constants: dict[Name, Text] = field(default_factory=dict)
    metadata: dict[Name, Any] = field(default_factory=dict)
    triton_version: Name = ""

    def __post_init__(self) -> None:
        _require_shallow(self.options, "options")
        _ = self.known_metadata

    @property
    def known_metadata(self) -> CleanMetadata:
        return _known(self.metadata, CleanMetadata, "metadata")


class PointRecord(Struct, frozen=True):
    """A place in a source file."""

    file: Name
    line: Annotated[int, Meta(ge=0, lt=1 << 31)]
    column: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class ScopeRecord(Struct, frozen=True, kw_only=True):
    """One scope of the scope table. ``lines`` are the first and the last line of the TTGIR without records that it goes
    around, from 1; older captures do not tell them. ``ended_by_next`` says that of an iteration which the next one's
    start ends."""

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

    def __post_init__(self) -> None:
        if self.lines and self.lines[0] > self.lines[1]:
            raise ValueError("expected ascending lines")


class PartitionRecord(Struct, frozen=True):
    """A partition of a warp-specialised kernel; ``Partition`` has the meaning of each field."""

    name: Name
    warps: WarpCount | None
    function: Name = ""


class RelaunchRecord(Struct, frozen=True, kw_only=True):
    """Whether a kernel can be launched again from the memory that it began with. ``refusal`` says why not, in words
    that follow *it*; empty if its module shows no reason. ``waits``: it may go round until others change memory."""

    refusal: Text = ""
    waits: bool = False


class ScopeTableRecord(Struct, frozen=True, kw_only=True):
    """What each record name means. An outer scope stands before those in it. ``body_record`` is the name of records
    around the kernel's whole body that belong to no scope; empty without any. Older tables lack ``relaunch``."""

    version: int = SCOPE_TABLE_VERSION
    kernel: Name = ""
    partitions: Annotated[tuple[PartitionRecord, ...], Meta(max_length=SCOPE_IDS)] = ()
    scopes: Annotated[tuple[ScopeRecord, ...], Meta(max_length=SCOPE_IDS)]
    most_records: Count | None = None
    body_record: Name = ""
    relaunch: RelaunchRecord | None = None

    def __post_init__(self) -> None:
        if self.version not in _READABLE_SCOPE_TABLES:
            readable = " and ".join(map(str, _READABLE_SCOPE_TABLES))
            raise ValueError(f"the scope table has version {self.version}, this program reads {readable}")
        for index, scope in enumerate(self.scopes):
            if scope.parent >= index:
                raise ValueError(f"expected a parent of scope {index} that stands before it, got {scope.parent}")
            if scope.partition is not None and scope.partition >= len(self.partitions):
                raise ValueError(f"expected a partition of scope {index} that is there, got {scope.partition}")
        if len({self.body_record, *(scope.record for scope in self.scopes)}) <= len(self.scopes):
            raise ValueError("expected a record of its own for each scope")


class KernelRecord(Resources, frozen=True, kw_only=True):
    """``kernel.json``. ``metadata`` is Triton's, ``clean_metadata`` that of the kernel without records, and ``clean``
    what that takes. The resources are those of the kernel with records; the checksums are of the files beside it."""

    name: Name
    layout: LayoutName
    scope_ids: dict[ScopeId, Name]
    scope_table: ScopeTableRecord
    sm_clock_hz: float
    sm_count: Annotated[int, Meta(ge=0, lt=1 << 16)] = 0
    mode: ModeRecord
    metadata: dict[str, Any]
    clean_metadata: dict[str, Any] = field(default_factory=dict)
    clean: TimedResources = TimedResources()
    ttgir_crc32: Crc32 | None = None
    sources_crc32: Crc32 | None = None

    def __post_init__(self) -> None:
        if self.sm_clock_hz != plausible_sm_clock_hz(self.sm_clock_hz):
            raise ValueError(f"expected 0 or the clock of a GPU, got {self.sm_clock_hz:g} - at `$.sm_clock_hz`")
        num_warps = self.known_metadata.num_warps
        if any(warp >= num_warps for warp in self.mode.warps):
            raise ValueError(f"expected warps of the {num_warps} that a CTA has - at `$.mode.warps`")
        _ = self.known_clean_metadata

    @property
    def known_metadata(self) -> Metadata:
        return _known(self.metadata, Metadata, "metadata")

    @property
    def known_clean_metadata(self) -> CleanMetadata:
        return _known(self.clean_metadata, CleanMetadata, "clean_metadata")

    @property
    def cta_bytes(self) -> int:
        """What the buffer of a launch takes for each CTA of its grid."""
        known = self.known_metadata
        return known.profile_scratch_size * known.num_ctas


Record = TypeVar("Record")


def require_same_recording(kernel: KernelRecord, process: ProcessRecord, where: str) -> None:
    """Raises ``KprofError`` if its process cannot have made a kernel's records; ``where`` names the kernel's file."""
    mode = process.mode
    for name in ("buffer", "clock_bits", "sched_stores") if mode else ():
        given, wanted = getattr(kernel.mode, name), getattr(mode, name)
        if given != wanted:
            raise KprofError(
                f"{where}: $.mode.{name}: expected {wanted} as in the process, got {given}", hint=CAPTURE_AGAIN
            )
    version = _TRITON.match(process.triton)
    known = (int(version[1]), int(version[2])) if version else _FIRST_UNKNOWN
    layout = "timed" if known >= _FIRST_TIMED else "untimed"
    if known < _FIRST_UNKNOWN and kernel.layout != layout:
        wrong = f"expected {layout}, which Triton {printable(process.triton)} writes, got {kernel.layout}"
        raise KprofError(f"{where}: $.layout: {wrong}", hint=CAPTURE_AGAIN)


_TRITON = re.compile(r"(\d{1,4})\.(\d{1,4})")
# A buffer that is read by a wrong layout gives times that make no sense, and nobody would be told.
_FIRST_TIMED, _FIRST_UNKNOWN = (3, 6), (3, 10)


def plausible_sm_clock_hz(hz: float) -> float:
    """``hz`` if it can be the nominal clock of a GPU's SMs, else 0, which stands for an unknown one."""
    return hz if _LEAST_SM_CLOCK_HZ <= hz <= _MOST_SM_CLOCK_HZ else 0.0


_MOST_DEPTH = 16


def _require_shallow(value: Any, name: str) -> None:
    """What is Triton's own may hold anything, but not what would be too deep to write again."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [part for one in level if isinstance(one, dict | list) for part in _parts(one)]
        if not level:
            return
    raise ValueError(f"expected {name} of a depth <= {_MOST_DEPTH}")


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _known(values: dict[str, Any], kind: type[Record], name: str) -> Record:
    _require_shallow(values, name)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        what, at, path = str(error).partition(" - at `$")
        raise ValueError(f"{what} - at `$.{name}{path}" if at else f"{what} - at `$.{name}`") from None


def encode(record: Any) -> bytes:
    """The JSON text of a record, on one line. What UTF-8 cannot hold of an argument or a path is replaced."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_in_utf8(msgspec.to_builtins(record, str_keys=True)))


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(part) for key, part in value.items()}
    return [_in_utf8(part) for part in value] if isinstance(value, list | tuple) else value


def decode(data: bytes, kind: type[Record], where: str, hint: str = CAPTURE_AGAIN) -> Record:
    """The record in a JSON text. Raises ``KprofError`` that begins with ``where`` and names the field."""
    try:
        record: Record = _decoder(cast(Hashable, kind)).decode(data)
        return record
    except msgspec.ValidationError as error:
        raise KprofError(f"{where}: {_at_its_field(str(error))}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KprofError(f"{where}: this is no JSON: {printable(str(error))}", hint=hint) from None
    except RecursionError:
        raise KprofError(f"{where}: this JSON is nested too deeply", hint=hint) from None


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


_MISSING = re.compile(r"Object missing required field `(.*)`")


def _at_its_field(message: str) -> str:
    """msgspec's message with the field's path first: ``$.grid[0]: expected int >= 1``."""
    what, _, path = message.rpartition(" - at ")
    what, path = what or path, (path if what else "$")
    if missing := _MISSING.fullmatch(what):
        return f"{printable(path.strip('`'))}.{missing[1]}: it is missing"
    if "matching regex" in what:
        what = "expected the name of a file, without a folder"
    text = f"{path}: {what[:1].lower()}{what[1:]}".replace("`", "")
    return printable(text[:_LONGEST_MESSAGE])


_LONGEST_MESSAGE = 300
_SEAL = re.compile(rb',\s*"crc32":\s*(\d{1,10})\s*\}\s*\Z')
_LONGEST_SEAL = 64


def sealed(text: bytes, of: str) -> bytes:
    """A JSON object with a checksum as its last member: of all bytes before it, and of ``of``, which says what and
    whose the object is, so that one of another process or file is not taken for it."""
    body = text.rstrip()[:-1].rstrip()
    return b'%s,"crc32":%d}' % (body, zlib.crc32(body, zlib.crc32(of.encode())))


def is_sealed(text: bytes) -> bool:
    return _SEAL.search(text[-_LONGEST_SEAL:]) is not None


def require_seal(text: bytes, of: str, where: str) -> None:
    """Raises ``KprofError`` unless ``sealed`` has made this text for ``of``."""
    seal = _SEAL.search(text, max(0, len(text) - _LONGEST_SEAL))
    if seal is None or int(seal[1]) != zlib.crc32(text[: seal.start()], zlib.crc32(of.encode())):
        raise KprofError(
            f"{where}: the checksum {'does not match' if seal else 'is missing'}: "
            "this was edited, damaged, or taken from another capture",
            hint=CAPTURE_AGAIN,
        )


def read_json(path: Path, within: Path) -> bytes:
    """The bytes of a JSON file of ours. Raises ``KprofError`` as ``read_regular`` does."""
    return read_regular(path, _MOST_JSON_BYTES, within)


class _Version(Struct, frozen=True):
    version: int | None = None


def decode_process(text: bytes, where: str) -> ProcessRecord:
    """What ``process.json`` says. Raises ``KprofError``, also if it is of a format that this program does not read."""
    # An edit may have made it one of another format.
    if is_sealed(text):
        require_seal(text, PROCESS_FILE, where)
    version = decode(text, _Version, where).version
    if version not in READABLE_VERSIONS:
        raise KprofError(
            f"{where}: this capture has format {version}, this program reads "
            f"{' and '.join(map(str, READABLE_VERSIONS))}",
            hint="capture again with this version, or read it with the version that wrote it",
        )
    if version > 1:
        require_seal(text, PROCESS_FILE, where)
    return decode(text, ProcessRecord, where)


def decode_launch_line(line: bytes, where: str) -> LaunchRecord | DropRecord:
    """A line of ``launches.jsonl``. Raises ``KprofError``."""
    # Few lines have the word at all.
    if b"drop" in line and decode(line, _LineKind, where).drop is not UNSET:
        return decode(line, DropRecord, where)
    return decode(line, LaunchRecord, where)
