"""Tags in machine code: what their records store is the value, and never the clock."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from golden import beside, fixture_id, read
from planning import insertion_of, tagged_loops, view_of_text
from triton._C.libtriton import llvm
from triton_oracle import installed_fixtures

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import RECORDS_OF_TAG, Target
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.instrumentation import lower, tag_values, target_of
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


def described(path: Path) -> tuple[Any, dict[str, Any]]:
    values = json.loads(beside(path, ".json").read_text())
    return target_of(Target(**values["target"])), values["options"]


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


@pytest.mark.triton
def test_without_tags_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    path = fixture("cuda-90/vector_add")
    monkeypatch.setattr("kprof_inject.runtime.compiling.instrumentation._give_values", lambda _: pytest.fail("it was"))
    lowered(path, insertion_of(read(path), "func").text, Mode("shared"))


class _Operation:
    """One of a module whose records are not behind their carrier."""

    def get_name(self) -> str:
        return "llvm.inline_asm"

    def get_str_attr(self, name: str) -> str:
        assert name == "asm_string"
        return CARRIER

    def get_result(self, number: int) -> object:
        return self


class _Module:
    def walk(self, visit: Any) -> None:
        visit(_Operation())


def test_records_that_are_not_where_they_should_be_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "to_module", lambda *_: pytest.fail("it went on"))
    with tag_values(), pytest.raises(KprofError, match="moved the records of a tag"):
        llvm.to_module(_Module(), None)
