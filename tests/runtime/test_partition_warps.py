"""Triton's own choice of the warps that run each partition: generated buffers are written by it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import triton
from golden import fixture_id, form_of, read
from planning import plan_of
from specialised import warps_of_partitions
from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget
from triton_oracle import installed_fixtures

from kprof_inject.runtime.compiling.instrumentation import read_module

pytestmark = pytest.mark.triton

SPECIALISED = [path for path in installed_fixtures() if "ttg.warp_specialize(" in read(path) and not form_of(path)]


@pytest.mark.skipif(triton.__version__.startswith("3.5."), reason="its passes are run otherwise")
@pytest.mark.parametrize("path", SPECIALISED, ids=fixture_id)
def test_the_warps_are_those_that_triton_chooses(path: Path, tmp_path: Path) -> None:
    text = read(path)
    copy = tmp_path / "kernel.ttgir"
    copy.write_text(text)
    arch = int(path.parent.name.removeprefix("cuda-"))
    module = read_module(str(copy), GPUTarget("cuda", arch, 32))
    manager = ir.pass_manager(module.context)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    manager.run(module, "warps")
    (told,) = re.findall(r"warpGroupStartIds = array<i32: ([\d, ]+)>", str(module))

    ours = [warps[0] for warps in warps_of_partitions(plan_of(text, "func"))[1:]]
    # Behind the module's own partitions stand the idle ones.
    assert ours == [int(start) for start in told.split(",")][: len(ours)]
