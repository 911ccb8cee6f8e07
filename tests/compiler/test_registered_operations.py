"""Every operation that Triton registers is in our table of them."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import NEWEST
from triton_oracle import libtriton, parse_with_triton, triton

from kprof_inject.ttgir.dialect import is_listed

# Lowering alone uses the others that Triton loads: llvm, nvvm, rocdl, gpu, nvgpu, amdgpu, nvg and proton_gpu.
_DIALECTS = "amdg arith cf gluon index math nvws proton scf tt ttg tti ttng ub"


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__ != NEWEST, reason="needs the newest Triton")
def test_every_operation_that_the_newest_triton_registers_is_in_a_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    registered = [name for name in _names_in_binary() if _is_registered(name, tmp_path / "one.mlir", capfd)]

    assert len(registered) > 250 and {"ttng.clc_try_cancel", "amdg.async_tdm_wait", "scf.for"} <= {*registered}
    unknown = [name for name in registered if not is_listed(name)]
    assert unknown == [], "put them into kprof_inject/ttgir/dialect.py: under their traits, or into _PLAIN"


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
