"""The memory of a saved launch is compressed if that makes it smaller, and read as what it was."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
import zstandard
from launch_files import edit

from kprof_inject.capture import encoding
from kprof_inject.capture.encoding import decompressed, encode
from kprof_inject.capture.saved_launch import (
    CHUNK_BYTES,
    MEMORY_FILE,
    MemoryRecord,
    SavedLaunchRecord,
    checksums,
    compress,
    read_saved_launch,
    write_saved_launch,
)
from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.errors import KprofError

RANDOM = np.random.default_rng(0)


def launch_with(folder: Path, *contents: bytes) -> Path:
    """A saved launch with these ranges of memory."""
    folder.mkdir()
    (folder / "kernel.json").write_bytes(encode(DumpedKernelRecord(name="k", override_key="k", file_name="k")))
    (folder / "kernel.ttgir").write_text("module {}")
    (folder / "sources.json").write_text("{}")
    (folder / MEMORY_FILE).write_bytes(b"".join(contents))
    memory, offset = [], 0
    for number, data in enumerate(contents):
        chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
        memory.append(
            MemoryRecord(
                address=(1 + number) << 32,
                size_bytes=len(data),
                offset=offset,
                chunk_crc32=tuple(map(zlib.crc32, chunks)),
                element="fp32",
            )
        )
        offset += len(data)
    record = SavedLaunchRecord(
        name="k",
        variant="k-1",
        index=0,
        grid=(1, 1, 1),
        arguments=(),
        memory=tuple(memory),
        files=checksums(folder),
    )
    write_saved_launch(folder, record)
    return folder


def contents_of(folder: Path) -> list[bytes]:
    saved = read_saved_launch(folder)
    return [b"".join(data for _, data in saved.chunks(memory)) for memory in saved.record.memory]


REPETITIVE = bytes(range(256)) * 20_000
ZEROS = bytes(CHUNK_BYTES + 1000)
NOISE = RANDOM.bytes(100_000)


@pytest.mark.parametrize("contents", [(REPETITIVE,), (ZEROS,), (REPETITIVE, NOISE, ZEROS)], ids=["one", "zeros", "all"])
def test_compressed_memory_reads_as_what_it_was(tmp_path: Path, contents: tuple[bytes, ...]) -> None:
    folder = launch_with(tmp_path / "a.launch", *contents)
    compress(folder)
    assert (folder / MEMORY_FILE).stat().st_size < 0.9 * sum(map(len, contents))
    assert contents_of(folder) == list(contents)
    before = (folder / MEMORY_FILE).read_bytes()
    compress(folder)
    assert (folder / MEMORY_FILE).read_bytes() == before


def test_noise_stays_as_it_is(tmp_path: Path) -> None:
    folder = launch_with(tmp_path / "a.launch", NOISE)
    compress(folder)
    assert (folder / MEMORY_FILE).read_bytes() == NOISE
    assert not read_saved_launch(folder).record.memory[0].chunk_bytes


def test_without_the_package_nothing_is_compressed_and_what_is_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed, plain = launch_with(tmp_path / "a.launch", REPETITIVE), launch_with(tmp_path / "b.launch", REPETITIVE)
    compress(compressed)

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(encoding.importlib, "import_module", absent)
    compress(plain)
    assert contents_of(plain) == [REPETITIVE]
    with pytest.raises(KprofError, match="compressed") as error:
        contents_of(compressed)
    assert "pip install zstandard" in error.value.hint


def test_a_frame_that_claims_more_is_not_decompressed_to_its_end() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    assert len(bomb) < 1 << 15
    assert len(decompressed(bomb, 1000)) <= 1001


def test_compressed_memory_with_random_damage_is_refused(tmp_path: Path) -> None:
    folder = launch_with(tmp_path / "a.launch", REPETITIVE, ZEROS)
    compress(folder)
    whole, chance = (folder / MEMORY_FILE).read_bytes(), Random(0)
    refusals = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 4))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        del data[len(data) - chance.choice((0, 0, 0, 1, len(data))) :]
        (folder / MEMORY_FILE).write_bytes(data)
        try:
            # A frame has bits without a meaning.
            assert contents_of(folder) == [REPETITIVE, ZEROS]
        except KprofError as error:
            assert "damaged" in error.what or "bytes" in error.what
            refusals += 1
    assert refusals > 250


@pytest.mark.parametrize("sizes", [(0,), (1,), (1 << 60,), (5, 5), ("5",)], ids=str)
def test_a_size_of_a_frame_that_cannot_be_is_refused(tmp_path: Path, sizes: tuple[object, ...]) -> None:
    """It would be memory that is not in the file, or other memory than was saved."""
    folder = launch_with(tmp_path / "a.launch", REPETITIVE[:1000])
    compress(folder)
    assert read_saved_launch(folder).record.memory[0].chunk_bytes
    edit(folder, lambda values: values["memory"][0].update(chunk_bytes=sizes))
    with pytest.raises(KprofError):
        contents_of(folder)
