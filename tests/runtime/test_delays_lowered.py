"""Delays become machine code; partitions have the warps that Triton chooses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import triton
from golden import fixture_id, form_of, kernel_of, read
from planning import fixture_view, plan_of
from specialised import warps_of_partitions
from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget
from triton_oracle import installed_fixtures, one_of_each_kernel

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.rewrite import inserted
from kprof_inject.runtime.compiling.instrumentation import lower_without_records, read_module, target_of
from kprof_inject.runtime.compiling.module_check import module_target
from kprof_inject.select.delays import Delay, spin_kernel
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors

pytestmark = pytest.mark.triton

_CLOCK = {"cuda": re.compile(r"mov\.u32 (?:begin|now), %clock;"), "hip": re.compile(r"\bs_memtime\b")}
SELECTORS = parse_selectors(["parts", "func", "loop", "iter"])


# Straight, with loops, branches, calls, partitions, descriptors, copies in flight, and of each target.
OF_EACH_KIND = {
    *("gluon_async_pipeline", "tma_matmul", "ws_matmul", "loop_in_if", "while_if", "noinline_in_loop", "early_return"),
    *("gluon_warp_specialized", "map_elementwise"),
}
PATHS = [path for path in one_of_each_kernel() if kernel_of(path) in OF_EACH_KIND and not form_of(path)]


@pytest.mark.parametrize("path", PATHS, ids=fixture_id)
def test_delays_become_machine_code(path: Path) -> None:
    view = fixture_view(read(path))
    target = module_target(view.module)
    plan = make_plan(view, SELECTORS)
    text = inserted(view.module, [Delay(site.start, 100, number, target) for number, site in enumerate(plan.sites)])
    assert text.count("%kprof_delay_") == len(plan.scopes)
    lowered = lower_without_records(text, target_of(target), {})
    assert lowered.binary[:4] == b"\x7fELF"
    # LLVM may unroll a loop, or join the same code of two ways.
    assert len(_CLOCK[target.backend].findall(lowered.assembly)) >= len(plan.scopes)


def test_the_kernel_that_measures_delays_is_ptx(tmp_path: Path) -> None:
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    (tmp_path / "spins.ptx").write_text(spin_kernel(Target("cuda", 90), [0, 100, 5000]))
    subprocess.run([ptxas, "-arch", "sm_90", tmp_path / "spins.ptx", "-o", tmp_path / "spins.cubin"], check=True)
    assert (tmp_path / "spins.cubin").stat().st_size


def test_a_target_without_a_counter_is_refused() -> None:
    with pytest.raises(KprofError):
        spin = Delay(make_plan(fixture_view(read(one_of_each_kernel()[0])), SELECTORS).sites[0].start, 1, 0,
                     Target("hip", "gfx1250", 32))  # fmt: skip
        _ = spin.line


# Triton's own choice of the warps that run each partition

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
