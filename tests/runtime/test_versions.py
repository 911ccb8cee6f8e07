"""The installed Triton's Proton writes the buffer that its row names; older ones are refused."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import triton
from golden import fixture_id, read
from planning import insertion_of
from test_lower import described
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton_oracle import installed_fixtures

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.instrumentation import instrumented, lower, scope_names
from kprof_inject.runtime.versions import installed_version

pytestmark = pytest.mark.triton

ON_HOPPER = {path.name.split(".")[0]: path for path in installed_fixtures() if fixture_id(path).count("cuda-90")}
TARGETS = {"nvidia": GPUTarget("cuda", 90, 32), "amd": GPUTarget("hip", "gfx942", 64)}
SHARED = Mode("shared")
# The words of a CTA's header, and where the count of its warp 0 stands.
HEADERS = {"untimed": (set(range(4)), 4), "timed": (set(range(10)), 10)}


def test_the_installed_triton_has_a_row_of_its_own() -> None:
    assert ".".join(map(str, installed_version().first)) == triton.__version__.rpartition(".")[0]


def test_the_header_is_stored_where_the_layout_reads_it() -> None:
    path = ON_HOPPER["vector_add"]
    ptx = lower(insertion_of(read(path), "func").text, *described(path), SHARED).assembly
    (row,) = re.findall(r"st\.global\.b32\s+\[(%rd\d+)\], -559038737;", ptx)
    (counts,) = re.findall(rf"mad\.wide\.u32\s+(%rd\d+), %r\d+, 4, {row};", ptx)
    header = {int(offset or 0) // 4 for offset in re.findall(rf"st\.global\.b32\s+\[{row}(?:\+(\d+))?\]", ptx)}
    (count,) = re.findall(rf"st\.global\.b32\s+\[{counts}\+(\d+)\], 4;", ptx)
    assert (header, int(count) // 4) == HEADERS[installed_version().buffer_layout]


def test_scope_ids_have_the_names_of_the_records_in_inlined_helpers_too(tmp_path: Path) -> None:
    path = ON_HOPPER["noinline_in_loop"]
    file = tmp_path / "kernel.ttgir"
    file.write_text(insertion_of(read(path), "func", "op(tt.load)").text)
    names = scope_names(str(file), described(path)[0])
    assert Counter(names.values()) == Counter(["func", "tt.load#0", "tt.load#1", "tt.load#2"])
    assert sorted(names) == [0, 1, 2, 3]


@pytest.mark.parametrize("backend", TARGETS)
def test_the_compiler_is_left_as_it_was(backend: str) -> None:
    compiler = backends[backend].compiler
    before = dict(vars(compiler))
    with pytest.raises(ZeroDivisionError), instrumented(TARGETS[backend], SHARED, 1 << 16):
        raise ZeroDivisionError
    assert dict(vars(compiler)) == before


def test_an_unknown_newer_version_is_taken_for_the_newest_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "__version__", "9.12.1+git")
    assert installed_version().first == (3, 9)


def test_an_older_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "__version__", "3.4.0")
    with pytest.raises(KprofError, match=r"Triton 3\.4\.0 is not supported") as caught:
        installed_version()
    assert caught.value.hint == "install Triton 3.5 or later"
