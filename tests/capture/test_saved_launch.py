"""Saved launches on disk: each argument comes back as it was, and what is damaged or makes no sense is refused."""

from __future__ import annotations

import math
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch_files import edit, edit_kernel, read_all, reseal, values_of

from kprof_inject.capture.encoding import decode, encode
from kprof_inject.capture.saved_launch import (
    CHUNK_BYTES,
    MAX_RANGES,
    DescriptorArgument,
    FloatArgument,
    IntegerArgument,
    MemoryRecord,
    OmittedArgument,
    PointerArgument,
    SavedArgument,
    SavedLaunchRecord,
    TensorMapArgument,
    TupleArgument,
    checksums,
    is_saved_launch,
    pointers_in,
    read_saved_launch,
    write_saved_launch,
)
from kprof_inject.errors import KprofError

ADDRESSES = st.integers(0, (1 << 57) - 1)
EXTENTS = st.lists(st.integers(-(1 << 62), (1 << 62) - 1), max_size=5).map(tuple)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)
FLOATS = st.floats() | st.floats(width=32) | st.floats(width=16)

POINTERS = st.builds(PointerArgument, address=ADDRESSES)
FIELDS = st.dictionaries(
    TEXTS.filter(lambda name: name != "base"), st.none() | st.booleans() | INTEGERS | TEXTS | EXTENTS, max_size=4
)
SIMPLE = st.one_of(
    INTEGERS.map(lambda value: IntegerArgument(str(value))),
    FLOATS.map(lambda value: FloatArgument(value.hex())),
    POINTERS,
    st.builds(DescriptorArgument, base=POINTERS, fields=FIELDS),
    st.binary(min_size=128, max_size=128).map(lambda data: TensorMapArgument(data.hex())),
    st.just(OmittedArgument()),
)
ARGUMENTS = st.recursive(
    SIMPLE, lambda parts: st.lists(parts, max_size=3).map(lambda inside: TupleArgument(tuple(inside))), max_leaves=8
)


def record_with(*arguments: SavedArgument, memory: tuple[MemoryRecord, ...] = ()) -> SavedLaunchRecord:
    return SavedLaunchRecord(
        name="scale", variant="scale-1", index=0, grid=(1, 1, 1), arguments=arguments, memory=memory, files={}
    )


def decoded(record: SavedLaunchRecord) -> SavedLaunchRecord:
    return decode(encode(record), SavedLaunchRecord, "launch.json")


@given(st.lists(ARGUMENTS, max_size=4))
def test_arguments_of_every_kind_come_back(arguments: list[SavedArgument]) -> None:
    record = record_with(*arguments)
    assert decoded(record) == record


@given(FLOATS)
def test_floats_come_back_with_all_their_bits(value: float) -> None:
    (argument,) = decoded(record_with(FloatArgument(value.hex()))).arguments
    assert isinstance(argument, FloatArgument)
    found = float.fromhex(argument.value)
    assert math.isnan(found) if math.isnan(value) else struct.pack("d", found) == struct.pack("d", value)


def test_pointers_are_found_in_descriptors_and_tuples() -> None:
    first, second, third = (PointerArgument(address=address) for address in (16, 32, 48))
    nested = TupleArgument((TupleArgument((second,)), OmittedArgument(), third))
    found = pointers_in([DescriptorArgument(base=first, fields={}), IntegerArgument("64"), nested])
    assert list(found) == [first, second, third]


@given(st.lists(st.integers(0, 400), unique=True, min_size=2, max_size=12).map(sorted), st.integers(0, 420))
def test_memory_is_found_by_an_address_in_it(places: list[int], place: int) -> None:
    """Every other gap between the places is a range."""
    pairs = list(zip(places[::2], places[1::2], strict=False))
    memory = tuple(
        MemoryRecord(address=8 * start, size_bytes=8 * (end - start), offset=8 * start, chunk_crc32=(0,))
        for start, end in pairs
    )
    found = record_with(memory=memory).memory_at(8 * place)
    inside = [one for one in memory if one.address <= 8 * place < one.end]
    assert [found] == (inside or [None])


def test_a_saved_launch_is_read_as_it_was_written(scale_launch: Path) -> None:
    saved = read_saved_launch(scale_launch)
    assert saved.record.name == saved.kernel.name == "scale"
    assert saved.record.grid == (16, 1, 1)
    assert is_saved_launch(scale_launch)
    assert not is_saved_launch(scale_launch.parent)
    again = scale_launch.with_name("again.launch")
    shutil.copytree(scale_launch, again)
    write_saved_launch(again, saved.record)
    assert read_saved_launch(again).record == saved.record
    assert checksums(again) == saved.record.files


def test_memory_is_read_in_chunks(scale_launch: Path) -> None:
    """The first range has two chunks and a part of one, the second a single byte."""
    first, second = os.urandom(2 * CHUNK_BYTES + 24), b"x"
    (scale_launch / "memory.bin").write_bytes(first + b"between" + second)

    def place(values: dict[str, Any]) -> None:
        values["memory"][0] |= {"size_bytes": len(first), "offset": 0}
        values["memory"][1] |= {"size_bytes": 1, "offset": len(first) + 7}
        values["memory"][1]["address"] += len(first) // 8 * 8
        values["arguments"][1]["address"] = values["memory"][1]["address"]

    edit(scale_launch, place)
    reseal(scale_launch)
    saved = read_saved_launch(scale_launch)
    chunks = list(saved.chunks(saved.record.memory[0]))
    assert [(offset, len(data)) for offset, data in chunks] == [
        (0, CHUNK_BYTES),
        (CHUNK_BYTES, CHUNK_BYTES),
        (2 * CHUNK_BYTES, 24),
    ]
    assert b"".join(data for _, data in chunks) == first
    assert list(saved.chunks(saved.record.memory[1])) == [(0, second)]


def test_memory_that_is_short_is_refused_before_it_is_read(scale_launch: Path) -> None:
    os.truncate(scale_launch / "memory.bin", 127)
    with pytest.raises(KprofError, match=r"memory.bin has 127 of 128 bytes"):
        read_saved_launch(scale_launch)


def test_a_folder_without_its_record_is_no_saved_launch(scale_launch: Path) -> None:
    (scale_launch / "launch.json").unlink()
    with pytest.raises(KprofError, match="is not a saved launch") as error:
        read_saved_launch(scale_launch)
    assert "--keep-launches" in error.value.hint


def test_who_is_refused_is_told_to_save_it_again(scale_launch: Path) -> None:
    (scale_launch / "launch.json").write_text((scale_launch / "launch.json").read_text().replace("16", "17"))
    with pytest.raises(KprofError, match="its checksum does not match") as error:
        read_saved_launch(scale_launch)
    assert "--keep-launches" in error.value.hint


# Values of ``launch.json`` that make no sense, sealed again, and what the refusal has to name.

Change = Callable[[dict[str, Any]], object]


def at(*path: str | int, value: Any) -> Change:
    """A change of one value."""

    def change(values: Any) -> None:
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = value

    return change


def all_of(*changes: Change) -> Change:
    return lambda values: [change(values) for change in changes]


def with_file(name: str) -> Change:
    """A further file of the kernel."""
    return lambda values: values["files"].update({name: zlib.crc32(b"")})


def nested(levels: int) -> Any:
    inside: Any = {"type": "omitted"}
    for _ in range(levels):
        inside = {"type": "tuple", "parts": [inside]}
    return inside


def in_fields(**fields: Any) -> Any:
    return {"type": "descriptor", "base": {"type": "pointer", "address": 1 << 44}, "fields": fields}


def zeros(number: int) -> dict[str, Any]:
    """A range of 1.5 GiB."""
    chunks = 384
    crc32, sizes, size_bytes = [0] * chunks, [0] * chunks, chunks * CHUNK_BYTES
    address = (1 << 44) + number * (1 << 32)
    return {"address": address, "size_bytes": size_bytes, "offset": 0, "chunk_crc32": crc32, "chunk_bytes": sizes}


FIRST, SECOND = 1 << 44, (1 << 44) + (1 << 16)
HOSTILE: dict[str, tuple[Change, str]] = {
    "another version": (at("version", value=1), "made by an older"),
    "no name": (lambda values: values.pop("name"), "name"),
    "a variant in another folder": (at("variant", value="../scale"), "variant"),
    "no programs": (at("grid", 0, value=0), "grid"),
    "a grid of four": (at("grid", value=[1, 1, 1, 1]), "grid"),
    "memory that begins before the range before it": (at("memory", 1, "address", value=FIRST - 64), "range 1 after"),
    "memory that overlaps": (at("memory", 1, "address", value=FIRST + 32), "range 1 after"),
    "memory that overlaps in the file": (at("memory", 1, "offset", value=32), "range 1 after"),
    "memory after the end of the file": (at("memory", 1, "offset", value=4096), "memory.bin"),
    "an offset that is too large": (at("memory", 1, "offset", value=1 << 53), "offset"),
    "a range beyond the file": (at("memory", 1, "size_bytes", value=65), "memory.bin"),
    "a range that is too large": (at("memory", 1, "size_bytes", value=1 << 40), "size_bytes"),
    "gigabytes of zeros that take no space": (lambda values: values.update(memory=[zeros(0), zeros(1)]), "2147483648"),
    "a large range with too few checksums": (at("memory", 1, "size_bytes", value=CHUNK_BYTES + 1), "checksums"),
    "no checksum": (at("memory", 0, "chunk_crc32", value=[]), "checksums"),
    "another checksum of the memory": (at("memory", 0, "chunk_crc32", value=[0]), "memory.bin"),
    "an address that does not exist": (at("memory", 1, "address", value=1 << 57), "address"),
    "memory that ends beyond all addresses": (at("memory", 1, "address", value=(1 << 57) - 32), "2^57"),
    "an address that digests cannot begin at": (
        all_of(at("memory", 1, "address", value=SECOND + 4), at("arguments", 1, "address", value=SECOND + 4)),
        "multiple of 8",
    ),
    "a digest of another form": (at("memory", 0, "before", value="0x12"), "before"),
    "too many ranges": (
        lambda values: values.update(memory=[values["memory"][0]] * (MAX_RANGES + 1)),
        "memory",
    ),
    "no memory": (at("memory", value=[]), "points to"),
    "a pointer to what was not saved": (at("arguments", 0, "address", value=FIRST + 65), "points to"),
    "an argument of no kind": (at("arguments", 2, value={"type": "pickle", "data": "cos"}), "pickle"),
    "an argument without a kind": (at("arguments", 2, value={"value": "3"}), "type"),
    "an integer of 65 bits": (at("arguments", 2, "value", value=str(1 << 64)), "64 bits"),
    "an integer of many digits": (at("arguments", 2, "value", value="9" * 5000), "another form"),
    "a float that is too large": (at("arguments", 2, value={"type": "float", "value": "0x1.8p+9999"}), "64 bits"),
    "a float in place of an integer": (at("arguments", 2, value={"type": "float", "value": "nan"}), "i32"),
    "an integer in place of a pointer": (at("arguments", 0, value={"type": "integer", "value": "64"}), "*fp32"),
    "a tensor map in place of a pointer": (at("arguments", 0, value={"type": "tensor_map", "data": "00" * 128}), "*fp"),
    "a descriptor with two bases": (at("arguments", 0, value=in_fields(base=[16])), "base"),
    "a descriptor with objects in it": (at("arguments", 0, value=in_fields(shape={"a": 1})), "got object"),
    "a tuple in place of an integer": (at("arguments", 2, value=nested(1)), "i32"),
    "tuples in tuples, many times": (at("arguments", 2, value=nested(17)), "tuples in each other"),
    "tuples in tuples, as often as Python's stack": (at("arguments", 2, value=nested(400)), "parts"),
    "no arguments": (at("arguments", value=[]), "0 arguments"),
    "an argument too many": (lambda values: values["arguments"].append({"type": "omitted"}), "4 arguments"),
    "a hundred thousand arguments": (lambda values: values.update(arguments=[{"type": "omitted"}] * 10**5), "argum"),
    "a file above": (with_file("../secret"), "folder"),
    "a file above, by the way of a folder": (with_file("build/../../secret"), "folder"),
    "a file of the machine": (with_file("/etc/hostname"), "folder"),
    "a file that is a folder": (with_file("build"), "build"),
    "a file that is not there": (with_file("build/scale.hsaco"), "scale.hsaco"),
    "a file's name that is too long": (with_file("x" * 1000), "x"),
    "a file's name with a NUL": (with_file("a\0b"), "a"),
    "another checksum of a file": (at("files", "build/scale.cubin", value=0), "scale.cubin"),
    "machine code without a checksum": (lambda values: values["files"].pop("build/scale.cubin"), "scale.cubin"),
    "a kernel without a checksum": (lambda values: values["files"].pop("kernel.json"), "kernel.json"),
    "no files": (at("files", value={}), "scale"),
    "a name of many megabytes": (at("device_name", value="x" * (5 << 20)), "too large"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_makes_no_sense_is_refused_though_it_is_sealed(scale_launch: Path, case: str) -> None:
    (scale_launch.parent / "secret").write_bytes(b"")
    change, named = HOSTILE[case]
    edit(scale_launch, change)
    with pytest.raises(KprofError) as error:
        read_all(scale_launch)
    assert named in error.value.what
    assert len(error.value.what) < 6000


SIGNATURES = {
    "a tuple of fewer": "('i32',)",
    "a tuple of numbers": "(1, 2)",
    "no tuple": "(1",
    "a call": "(print(),)",
    "brackets without end": "(" * 5000,
    "a constant": "constexpr",
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_an_argument_is_what_the_signature_says(scale_launch: Path, case: str) -> None:
    pair = {"type": "tuple", "parts": [{"type": "integer", "value": "1"}, {"type": "integer", "value": "2"}]}
    edit_kernel(scale_launch, at("signature", "n", value="('i32', 'u64')"))
    edit(scale_launch, at("arguments", 2, value=pair))
    assert read_saved_launch(scale_launch).record.arguments[2] == TupleArgument(
        (IntegerArgument("1"), IntegerArgument("2"))
    )
    edit_kernel(scale_launch, at("signature", "n", value=SIGNATURES[case]))
    with pytest.raises(KprofError, match=r"the argument n is not of type|3 arguments do not match"):
        read_saved_launch(scale_launch)


def test_constants_may_be_among_the_arguments_or_not(scale_launch: Path) -> None:
    """Inductor's launches omit them."""
    edit_kernel(scale_launch, at("signature", "BLOCK", value="constexpr"))
    assert len(read_saved_launch(scale_launch).record.arguments) == 3
    edit(scale_launch, lambda values: values["arguments"].append({"type": "omitted"}))
    assert len(read_saved_launch(scale_launch).record.arguments) == 4
    edit(scale_launch, at("arguments", 3, value={"type": "integer", "value": "1"}))
    with pytest.raises(KprofError, match="the argument BLOCK is not of type constexpr"):
        read_saved_launch(scale_launch)


def test_a_pointer_to_nothing_is_read(scale_launch: Path) -> None:
    edit(scale_launch, at("arguments", 0, "address", value=0))
    assert read_saved_launch(scale_launch).record.arguments[0].address == 0  # type: ignore[union-attr]


def test_only_what_is_named_is_read(scale_launch: Path) -> None:
    """Other files in the folder are ignored, unless they are files of the build, which are all loaded."""
    (scale_launch / "notes.txt").write_text("mine")
    os.mkfifo(scale_launch / "pipe")
    read_all(scale_launch)
    os.mkfifo(scale_launch / "build" / "scale.hsaco")
    with pytest.raises(KprofError, match=r"scale.hsaco: the checksum is missing"):
        read_all(scale_launch)


def test_values_are_refused_wherever_they_stand(scale_launch: Path) -> None:
    """Each value becomes one of another type."""
    original = (scale_launch / "launch.json").read_bytes()
    refused = 0
    for path in paths_in(values_of(scale_launch)):
        for value in ([[None]], -(1 << 70)):
            (scale_launch / "launch.json").write_bytes(original)
            edit(scale_launch, at(*path, value=value))
            try:
                read_all(scale_launch)
            except KprofError:
                refused += 1
            else:
                raise AssertionError(f"{path} may be {value}")
    assert refused > 100


def paths_in(values: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(values, dict):
        parts = [found for key, part in values.items() for found in paths_in(part, (*above, key)) if key != "crc32"]
    elif isinstance(values, list):
        parts = [found for place, part in enumerate(values) for found in paths_in(part, (*above, place))]
    else:
        parts = []
    return [*parts, above] if above else parts
