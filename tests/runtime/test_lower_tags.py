"""Tags in machine code: what their records store is the value, and never the clock."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from golden import fixture_id, read
from planning import insertion_of, tagged_loops, view_of_text
from test_lower import described
from triton._C.libtriton import llvm
from triton_oracle import installed_fixtures

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import RECORDS_OF_TAG
from kprof_inject.runtime.compiling.instrumentation import lower
from kprof_inject.runtime.versions import installed_version
from kprof_inject.select.tags import CARRIER, HALF_CARRIER
from kprof_inject.ttgir.scalars import scalars_at

WAYS = [
    ("cuda-90/nested_loops", Mode("shared")),
    ("cuda-100/ws_matmul", Mode("global", 16384, 32)),
    ("hip-gfx942/nested_loops", Mode("shared")),
    ("hip-gfx942/nested_loops", Mode("global", 16384, 32)),
]
"""What reads the clock as a whole and in halves, with partitions, in each memory."""

CLOCK = re.compile(r"mov\.u32\s+(%r\d+), %clock;")
STORED = re.compile(r"st\.(?:shared|global)\S*\.v2\.b32 \[[^]]*\], \{ ?(%r\d+), (%r\d+) ?\}")


def lowered(path: Path, text: str, mode: Mode) -> str:
    return lower(text, *described(path), mode).assembly


def can_lower(path: Path, mode: Mode) -> bool:
    backend = "amd" if path.parent.name.startswith("hip") else "nvidia"
    return mode.buffer == "shared" or backend in installed_version().global_buffer_on


def fixture(kernel: str) -> Path:
    return next(path for path in installed_fixtures() if fixture_id(path).endswith(f"/{kernel}"))


@pytest.mark.triton
@pytest.mark.parametrize(("kernel", "mode"), WAYS)
def test_the_stores_of_tags_have_their_values(kernel: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fixture(kernel)
    if not can_lower(path, mode):
        pytest.skip("no records in global memory")
    text = insertion_of(read(path), *tagged_loops(read(path)), "func").text
    tags = text.count(CARRIER)
    assert tags
    modules: list[str] = []
    before = llvm.to_module

    def seen(module: Any, *arguments: Any) -> Any:
        modules.append(str(module))
        return before(module, *arguments)

    monkeypatch.setattr(llvm, "to_module", seen)
    assembly = lowered(path, text, mode)
    (module,) = modules
    names = re.findall(rf'(%\d+) = llvm\.inline_asm [^\n]*"{CARRIER}"', module)
    assert len(names) == tags
    for name in names:
        assert len(re.findall(rf"{name}\b", module)) == 1 + RECORDS_OF_TAG, "uses of a tag's value"
    if path.parent.name.startswith("cuda"):
        clocks = set(CLOCK.findall(assembly))
        stored = [low for _, low in STORED.findall(assembly)]
        values = [low for low in stored if low not in clocks]
        assert len(values) >= RECORDS_OF_TAG * tags
        assert len(stored) - len(values) == text.count("proton.record") - RECORDS_OF_TAG * tags


@pytest.mark.triton
@pytest.mark.parametrize("kernel", ["cuda-90/attention", "hip-gfx942/attention"])
def test_a_wide_value_is_stored_in_halves(kernel: str) -> None:
    path = fixture(kernel)
    view = view_of_text(read(path))
    loop = view.functions[0].loops[0]
    value = next(one.name for one in scalars_at(view.module, loop.operation) if one.type == "i64")
    done = insertion_of(read(path), f"loop{loop.subscript} --tag wide={value}", "func")
    assert done.text.count(HALF_CARRIER) == 2
    # The values take the place of the counter, which is still read.
    made = lower(done.text, *described(path), Mode("shared"))
    assert made.clock_reads == len(done.plan.records) or kernel.startswith("hip")
