"""The record of the GPU's work in a program: written, read and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprof_inject.capture.capture_files import FILES, read_optional, write
from kprof_inject.capture.measurements import GpuWork, GpuWorkRecord
from kprof_inject.errors import KprofError

RECORD = GpuWorkRecord(
    processes=2,
    work=(
        GpuWork(name="cutlass::Kernel2<…>", kind="kernel", count=7, total_ns=9_000.5),
        GpuWork(name="Memcpy HtoD (Pageable -> Device)", kind="copy", count=1, total_ns=32.0),
    ),
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_optional(tmp_path, GpuWorkRecord) is None
    write(tmp_path, RECORD)
    assert read_optional(tmp_path, GpuWorkRecord) == RECORD


@pytest.mark.parametrize("change", [('"count":7', '"count":8'), ('"copy"', '"magic"'), ("9000.5", '"many"')])
def test_damage_is_noticed(tmp_path: Path, change: tuple[str, str]) -> None:
    write(tmp_path, RECORD)
    path = tmp_path / FILES[GpuWorkRecord]
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(KprofError, match="its checksum does not match"):
        read_optional(tmp_path, GpuWorkRecord)
