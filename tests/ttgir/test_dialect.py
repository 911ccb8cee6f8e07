"""What is known of operations by their names."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import triton
from golden import FIXTURES, fixture_id, fixtures, parse_with_triton, read
from triton._C import libtriton

from kprof_inject.ttgir.dialect import data_operands_of, is_listed, traits_of
from kprof_inject.ttgir.parser import parse

_MISSING = "missing in kprof_inject/ttgir/dialect.py"


@pytest.mark.parametrize("version", sorted(path.name for path in FIXTURES.glob("[0-9]*")))
def test_every_operation_of_a_triton_is_in_a_table(version: str) -> None:
    unknown = {
        operation.name: fixture_id(path)
        for path in fixtures(version)
        for operation in parse(read(path), path.name).walk()
        if not is_listed(operation.name)
    }

    assert unknown == {}, _MISSING


# Lowering alone uses the others that Triton loads: llvm, nvvm, rocdl, gpu, nvgpu, amdgpu, nvg and proton_gpu.
_DIALECTS = "amdg arith cf gluon index math nvws proton scf tt ttg tti ttng ub"
NEWEST = max((path.name for path in FIXTURES.glob("[0-9]*")), key=lambda name: [*map(int, name.split("."))])


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__ != NEWEST, reason="only the newest Triton is asked")
def test_every_operation_that_the_newest_triton_registers_is_in_a_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    registered = [name for name in _names_in_binary() if _is_registered(name, tmp_path / "one.mlir", capfd)]

    assert len(registered) > 250 and {"ttng.clc_try_cancel", "amdg.async_tdm_wait", "scf.for"} <= {*registered}
    unknown = [name for name in registered if not is_listed(name)]
    assert unknown == [], _MISSING


def _names_in_binary() -> Iterator[str]:
    """Yield all strings of libtriton's read-only data that may be an operation's name."""
    form = re.compile(rb"\0((?:%s)\.[a-z][a-z0-9_.]*)(?=\0)" % _DIALECTS.replace(" ", "|").encode())
    with open(libtriton.__file__, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        # ELF-64: where the section headers are, how long each is, how many there are.
        (first,) = struct.unpack_from("<Q", binary, 0x28)
        size, count = struct.unpack_from("<HH", binary, 0x3A)
        for number in range(count):
            _, kind, flags, _, start, length = struct.unpack_from("<IIQQQQ", binary, first + number * size)
            if kind == _PROGBITS and flags & _ALLOCATED and not flags & (_WRITABLE | _EXECUTABLE):
                yield from sorted({name.decode() for name in form.findall(binary[start : start + length])})


_PROGBITS, _WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 1, 2, 4


def _is_registered(name: str, path: Path, capfd: pytest.CaptureFixture[str]) -> bool:
    path.write_text(f'"{name}"() : () -> ()\n')
    try:
        parse_with_triton(path)
    except RuntimeError:
        return "unregistered operation" not in capfd.readouterr().err
    return True


def test_names_that_no_table_has() -> None:
    assert not is_listed("ttng.fancy_load")
    assert traits_of("ttng.fancy_load").reads_memory
    assert not traits_of("x.y").is_terminator and traits_of("x.y").regions == ""


@pytest.mark.parametrize(
    ("name", "is_generic", "places"),
    [
        ("tt.store", False, (1,)),
        ("tt.descriptor_store", False, (-1,)),
        ("tt.descriptor_store", True, (1,)),
        ("amdgpu.buffer_atomic_cas", True, (2, 3)),
        ("tt.load", False, ()),
    ],
)
def test_where_data_stands_among_addresses(name: str, is_generic: bool, places: tuple[int, ...]) -> None:
    assert data_operands_of(name, is_generic=is_generic) == places


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("tt.atomic_poll", {"reads_global", "is_wait", "is_atomic", "takes_addresses"}),
        ("tt.atomic_load", {"reads_global", "is_atomic", "takes_addresses"}),
        ("tt.atomic_store", {"writes_global", "is_atomic", "takes_addresses"}),
        ("ttng.cluster_barrier", {"is_wait"}),
        ("amdg.cluster_barrier_arrive", {"is_arrival"}),
        ("ttng.clc_try_cancel", {"starts_async"}),
        ("ttng.clc_is_canceled", {"is_indexing"}),
        ("ttng.async_copy_mbarrier_arrive", {"starts_async"}),
        ("ttng.tmem_copy", {"starts_async"}),
        ("amdg.async_tdm_gather", {"starts_async", "takes_addresses"}),
        ("amdg.async_tdm_scatter", {"starts_async", "takes_addresses", "writes_global"}),
        ("amdg.async_tdm_intrinsic_wait", {"is_wait", "waits_for_async"}),
    ],
)
def test_what_newer_operations_do(name: str, traits: set[str]) -> None:
    effects = {"reads_global", "writes_global", "is_wait", "waits_for_async", "starts_async", "is_arrival"}
    others = {"is_atomic", "is_indexing", "takes_addresses"}

    assert {trait for trait in effects | others if getattr(traits_of(name), trait)} == traits
