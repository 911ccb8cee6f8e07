"""Files of a saved launch: a kernel's machine code, and all arguments and memory that one launch of it began with.

A folder ``NAME.launch`` has ``launch.json`` (``SavedLaunchRecord``), the kernel's files, and ``memory.bin``: the bytes
of each range one after another, sparse where a whole chunk is zero. ``docs/file-formats.md`` describes them.
"""

from __future__ import annotations

import ast
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from kprof_inject.capture.encoding import (
    compressor,
    decode,
    decompressed,
    read_json,
    read_sealed,
    require_version,
    write_sealed,
)
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.schema import (
    KERNEL_FILE,
    SOURCES_FILE,
    TTGIR_FILE,
    Count,
    Crc32,
    DumpedKernelRecord,
    FileName,
    Grid,
    LaunchIndex,
    Name,
    Text,
)
from kprof_inject.capture.scopes import RelaunchRecord
from kprof_inject.errors import KprofError
from kprof_inject.files import open_regular, read_regular

SAVED_LAUNCH_VERSION = 2  # no other version is read
SAVED_LAUNCH_FILE = "launch.json"
SAVED_LAUNCH_ENDING = ".launch"
MEMORY_FILE = "memory.bin"
BUILD_FOLDER = "build"
SAVE_AGAIN = "save it again: kprof-inject profile --keep-launches -- PROG"

CHUNK_BYTES = 4 << 20  # unit of checksums, and of the holes of a sparse file
_MAX_COMPRESSED = 0.9  # compression that saves less is not worth its time when the launch is read
_MAX_KERNEL_FILE_BYTES = 256 << 20
# CUDA addresses have 57 bits at most ("CUDA C++ Programming Guide", unified virtual address space of Hopper).
ADDRESS_END = 1 << 57
MAX_RANGES = 1 << 14  # maximum number of memory ranges of a launch: their records must fit into a JSON file of ours
MAX_LAUNCH_BYTES = 2 << 30
"""Maximum size of a launch's memory: a file that claims more is not one of ours, and is not read."""
DIGEST_ALIGNMENT = 8  # ``Device.digest`` reads words of this size

Address = Annotated[int, Meta(ge=0, lt=ADDRESS_END)]
RangeBytes = Annotated[int, Meta(ge=1, le=MAX_LAUNCH_BYTES)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
"""Digest of a range's bytes, as ``Device.digest`` returns it, in hexadecimal digits."""
_Extent = Annotated[int, Meta(ge=-(1 << 62), lt=1 << 62)]
_Extents = Annotated[tuple[_Extent, ...], Meta(max_length=64)]


class IntegerArgument(Struct, frozen=True, tag="integer"):
    """An integer or a boolean, in decimal digits: JSON readers round long ones."""

    value: Annotated[str, Meta(pattern=r"\A-?[0-9]{1,20}\Z")]

    def __post_init__(self) -> None:
        if not -(1 << 63) <= int(self.value) < 1 << 64:
            raise ValueError("expected an integer of 64 bits")


class FloatArgument(Struct, frozen=True, tag="float"):
    """A floating-point number, as ``float.hex`` writes it: JSON has no infinities and no NaN."""

    value: Annotated[str, Meta(pattern=r"\A-?(0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}|0x0\.0p\+0|inf|nan)\Z")]

    def __post_init__(self) -> None:
        try:
            float.fromhex(self.value)
        except OverflowError:
            raise ValueError("expected a floating-point number of 64 bits") from None


class PointerArgument(Struct, frozen=True, tag="pointer", kw_only=True):
    """An address."""

    address: Address


class DescriptorArgument(Struct, frozen=True, tag="descriptor", kw_only=True):
    """A tensor descriptor that Triton's launcher makes: its tensor, and its other fields."""

    base: PointerArgument
    fields: dict[Name, bool | int | Name | _Extents | None]

    def __post_init__(self) -> None:
        if "base" in self.fields:
            raise ValueError("expected no base among the fields")


class TensorMapArgument(Struct, frozen=True, tag="tensor_map"):
    """A tensor map that the program made (``CUtensorMap``), as 128 bytes in hexadecimal digits."""

    data: Annotated[str, Meta(pattern=r"\A[0-9a-f]{256}\Z")]


class OmittedArgument(Struct, frozen=True, tag="omitted"):
    """A compile-time constant, or None: the launcher ignores its value."""


class TupleArgument(Struct, frozen=True, tag="tuple"):
    """Several arguments in one."""

    parts: Annotated[tuple[SavedArgument, ...], Meta(max_length=1 << 10)]

    def __post_init__(self) -> None:
        # Functions that walk the arguments call themselves at each level.
        if _levels(self) > _MAX_LEVELS:
            raise ValueError(f"expected at most {_MAX_LEVELS} tuples in each other")


_MAX_LEVELS = 16


def _levels(argument: SavedArgument) -> int:
    if not isinstance(argument, TupleArgument):
        return 0
    return 1 + max(map(_levels, argument.parts), default=0)


SavedArgument = (
    IntegerArgument
    | FloatArgument
    | PointerArgument
    | DescriptorArgument
    | TensorMapArgument
    | OmittedArgument
    | TupleArgument
)


class MemoryRecord(Struct, frozen=True, kw_only=True):
    """A range of device memory that the launch may reach, at its address in the program.

    Its bytes are at ``offset`` of the memory file. If they are compressed, ``chunk_bytes`` has the size of each chunk's
    Zstandard frame, which follow each other; 0 is a chunk of zeros. ``before`` and ``after`` are digests of its
    contents before the program's launch and after it. ``element`` is the type of its elements in the kernel's
    signature, if it has a single one. ``is_found`` is true if only other memory refers to it.
    """

    address: Address
    size_bytes: RangeBytes
    offset: Count
    chunk_crc32: tuple[Crc32, ...]
    chunk_bytes: tuple[Annotated[int, Meta(ge=0, lt=2 * CHUNK_BYTES)], ...] = ()
    before: Digest | None = None
    after: Digest | None = None
    element: Name = ""
    is_found: bool = False

    @property
    def end(self) -> int:
        """First address after the range."""
        return self.address + self.size_bytes

    @property
    def file_bytes(self) -> int:
        """Size of the range in the memory file."""
        return sum(self.chunk_bytes) if self.chunk_bytes else self.size_bytes

    def __post_init__(self) -> None:
        if self.address % DIGEST_ALIGNMENT:
            raise ValueError(f"expected an address that is a multiple of {DIGEST_ALIGNMENT}")
        if len(self.chunk_crc32) != chunks_in(self.size_bytes):
            raise ValueError(f"expected {chunks_in(self.size_bytes)} checksums, got {len(self.chunk_crc32)}")
        if self.chunk_bytes and len(self.chunk_bytes) != len(self.chunk_crc32):
            raise ValueError(f"expected {len(self.chunk_crc32)} sizes of chunks, got {len(self.chunk_bytes)}")
        if self.end > ADDRESS_END:
            raise ValueError("expected a range that ends below 2^57")


def chunks_in(size_bytes: int) -> int:
    """Return the number of chunks of a range."""
    return -(-size_bytes // CHUNK_BYTES)


class SavedLaunchRecord(Struct, frozen=True, kw_only=True):
    """Content of ``launch.json``.

    ``memory`` is in ascending order of addresses; that of a launch in a ``graph`` is from the graph's first run.
    ``clean`` has the times of the program's own launches. ``files`` has the checksums of the kernel's files, by path.
    """

    version: int = SAVED_LAUNCH_VERSION
    name: Name
    variant: FileName
    index: LaunchIndex
    grid: Grid
    arguments: Annotated[tuple[SavedArgument, ...], Meta(max_length=1 << 12)]
    memory: Annotated[tuple[MemoryRecord, ...], Meta(max_length=MAX_RANGES)]
    relaunch: RelaunchRecord | None = None
    clean: KernelResources = KernelResources()
    graph: bool = False
    device_name: Name = ""
    device_uuid: Name = ""
    triton: Name = ""
    torch: Name = ""
    python: Name = ""
    tool: Name = ""
    argv: tuple[Text, ...] = ()
    files: dict[Annotated[str, Meta(max_length=1 << 10)], Crc32]

    def __post_init__(self) -> None:
        if self.memory_bytes > MAX_LAUNCH_BYTES:
            raise ValueError(f"expected at most {MAX_LAUNCH_BYTES} bytes - at `$.memory`")
        end = file_end = 0
        for number, memory in enumerate(self.memory):
            if memory.address < end or memory.offset < file_end:
                raise ValueError(f"expected range {number} after the one before - at `$.memory`")
            end, file_end = memory.end, memory.offset + memory.file_bytes

    @property
    def memory_bytes(self) -> int:
        """Size of all memory of the launch."""
        return sum(memory.size_bytes for memory in self.memory)

    def memory_at(self, address: int) -> MemoryRecord | None:
        """Return the range that contains an address."""
        place = bisect_right(self.memory, address, key=lambda memory: memory.address) - 1
        return self.memory[place] if place >= 0 and address < self.memory[place].end else None


@dataclass(frozen=True, slots=True)
class SavedLaunch:
    """A saved launch on disk: its folder, its record, and the kernel's record."""

    folder: Path
    record: SavedLaunchRecord
    kernel: DumpedKernelRecord

    @property
    def build_folder(self) -> Path:
        """Folder with the kernel's machine code and the texts that it was compiled from, as Triton loads it."""
        return self.folder / BUILD_FOLDER

    def chunks(self, memory: MemoryRecord) -> Iterator[tuple[int, bytes]]:
        """Yield each chunk's offset in the range, and its bytes; raises ``KprofError`` if these cannot be read."""
        path, place = self.folder / MEMORY_FILE, memory.offset
        with open_regular(path, self.folder) as file:
            for number, crc32 in enumerate(memory.chunk_crc32):
                offset = number * CHUNK_BYTES
                size_bytes = min(CHUNK_BYTES, memory.size_bytes - offset)
                in_file = memory.chunk_bytes[number] if memory.chunk_bytes else size_bytes
                data = os.pread(file.fileno(), in_file, place)
                place += in_file
                if memory.chunk_bytes:
                    data = decompressed(data, size_bytes)
                if len(data) != size_bytes or zlib.crc32(data) != crc32:
                    raise KprofError(f"{path}: the memory at {memory.address:#x} is damaged", hint=SAVE_AGAIN)
                yield offset, data


def is_saved_launch(folder: Path) -> bool:
    """Return whether a path is the folder of a saved launch."""
    return (folder / SAVED_LAUNCH_FILE).is_file()


def names_saved_launch(path: Path) -> bool:
    """Return whether a path is meant as a saved launch, which may be missing or damaged."""
    return path.name.endswith(SAVED_LAUNCH_ENDING) or is_saved_launch(path)


def read_saved_launch(folder: Path) -> SavedLaunch:
    """Read a saved launch, whose ``chunks`` are checked when they are read; raises ``KprofError``."""
    path = folder / SAVED_LAUNCH_FILE
    if not path.is_file():
        raise KprofError(f"{folder} is not a saved launch", hint=SAVE_AGAIN)
    require_version(path, SAVED_LAUNCH_VERSION, SAVE_AGAIN)
    record = read_sealed(path, SavedLaunchRecord, SAVE_AGAIN)
    for name, crc32 in record.files.items():
        # A file by several names would be read again for each.
        if ".." in Path(name).parts or Path(name).is_absolute() or name != str(Path(name)):
            raise KprofError(f"{path}: {name!r} is not in the launch's folder", hint=SAVE_AGAIN)
        if zlib.crc32(read_regular(folder / name, _MAX_KERNEL_FILE_BYTES, folder)) != crc32:
            raise KprofError(f"{folder / name}: the checksum does not match", hint=SAVE_AGAIN)
    for name in (KERNEL_FILE, TTGIR_FILE, SOURCES_FILE):
        if name not in record.files:
            raise KprofError(f"{path}: {name} is missing", hint=SAVE_AGAIN)
    build = folder / BUILD_FOLDER
    for path_of_build in sorted(build.iterdir()) if build.is_dir() else ():
        if f"{BUILD_FOLDER}/{path_of_build.name}" not in record.files:  # all its files are loaded
            raise KprofError(f"{path_of_build}: the checksum is missing", hint=SAVE_AGAIN)
    kernel = decode(read_json(folder / KERNEL_FILE, folder), DumpedKernelRecord, str(folder / KERNEL_FILE), SAVE_AGAIN)
    if record.memory:
        with open_regular(folder / MEMORY_FILE, folder) as file:
            size_bytes = os.fstat(file.fileno()).st_size
        needed_bytes = record.memory[-1].offset + record.memory[-1].file_bytes
        if size_bytes < needed_bytes:
            what = f"{folder / MEMORY_FILE} has {size_bytes:,} of {needed_bytes:,} bytes"
            raise KprofError(what, hint=SAVE_AGAIN)
    saved = SavedLaunch(folder, record, kernel)
    for (name, kind), argument in zip(parameters(saved), record.arguments, strict=True):
        if not _is_of_kind(argument, kind):
            raise KprofError(f"{folder}: the argument {name} is not of type {kind}", hint=SAVE_AGAIN)
        for pointer in pointers_in([argument]):
            places = (pointer.address, max(pointer.address - 1, 0))  # an empty view may begin where its tensor ends
            if pointer.address and not any(map(record.memory_at, places)):
                what = f"the argument {name} points to {pointer.address:#x}, which was not saved"
                raise KprofError(f"{folder}: {what}", hint=SAVE_AGAIN)
    return saved


def _is_of_kind(argument: SavedArgument, kind: object) -> bool:
    if isinstance(argument, OmittedArgument):
        return True
    if isinstance(kind, str) and kind.startswith("("):
        try:
            kind = ast.literal_eval(kind)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return False
    if isinstance(kind, tuple):
        return (
            isinstance(argument, TupleArgument)
            and len(argument.parts) == len(kind)
            and all(map(_is_of_kind, argument.parts, kind))
        )
    if not isinstance(kind, str) or kind in ("", "constexpr"):
        return False
    if kind.startswith("*"):
        return isinstance(argument, PointerArgument)
    if kind.startswith("tensordesc"):
        return isinstance(argument, DescriptorArgument)
    if kind == "nvTmaDesc":
        return isinstance(argument, TensorMapArgument)
    return isinstance(argument, IntegerArgument if kind[0] in "iu" else FloatArgument)


def checksums(folder: Path) -> dict[str, int]:
    """Return the checksums of the kernel's files in a launch's folder, for its record."""
    own = (folder / SAVED_LAUNCH_FILE, folder / MEMORY_FILE)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in own]
    return {
        str(path.relative_to(folder)): zlib.crc32(read_regular(path, _MAX_KERNEL_FILE_BYTES, folder)) for path in paths
    }


def write_saved_launch(folder: Path, record: SavedLaunchRecord) -> None:
    """Write ``launch.json``, whose presence marks a complete launch."""
    write_sealed(folder / SAVED_LAUNCH_FILE, record)


def parameters(saved: SavedLaunch) -> list[tuple[str, str]]:
    """Return the name and the type of each argument; raises ``KprofError`` if the signature has others."""
    # Inductor's launches omit constants.
    signature, count = saved.kernel.signature, len(saved.record.arguments)
    for found in (list(signature.items()), [item for item in signature.items() if item[1] != "constexpr"]):
        if len(found) == count:
            return found
    raise KprofError(f"{saved.folder}: {count} arguments do not match the signature", hint=SAVE_AGAIN)


def pointers_in(arguments: Sequence[SavedArgument]) -> Iterator[PointerArgument]:
    """Yield the pointers among arguments, also those of descriptors and in tuples."""
    for argument in arguments:
        if isinstance(argument, PointerArgument):
            yield argument
        elif isinstance(argument, DescriptorArgument):
            yield argument.base
        elif isinstance(argument, TupleArgument):
            yield from pointers_in(argument.parts)


def compress(folder: Path) -> None:
    """Compress the memory of a saved launch, if Zstandard is installed and makes it smaller."""
    saved, to_frame = read_saved_launch(folder), compressor()
    if to_frame is None or any(memory.chunk_bytes for memory in saved.record.memory):
        return
    compressed: list[MemoryRecord] = []
    temporary = folder / f"{MEMORY_FILE}.compressed"
    try:
        with temporary.open("wb") as file:
            for memory in saved.record.memory:
                offset = file.tell()
                sizes = [file.write(to_frame(data) if any(data) else b"") for _, data in saved.chunks(memory)]
                compressed.append(replace(memory, offset=offset, chunk_bytes=tuple(sizes)))
            is_smaller = file.tell() < _MAX_COMPRESSED * saved.record.memory_bytes
        if is_smaller:
            # The old record does not fit the new file: without a record, the launch does not exist meanwhile.
            (folder / SAVED_LAUNCH_FILE).unlink()
            temporary.replace(folder / MEMORY_FILE)
            write_saved_launch(folder, replace(saved.record, memory=tuple(compressed)))
    finally:
        temporary.unlink(missing_ok=True)
