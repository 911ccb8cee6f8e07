"""Every kind of place takes a delay and becomes machine code, with the reads of the clock in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import triton
from golden import fixture_id, form_of, kernel_of, read
from planning import fixture_view
from triton_oracle import one_of_each_kernel

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.rewrite import inserted
from kprof_inject.runtime.compiling.instrumentation import lower_without_records, target_of
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
