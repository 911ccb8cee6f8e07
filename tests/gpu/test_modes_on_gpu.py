"""Every way to record, on a matmul of 256 CTAs of 4 warps and 16 iterations: the same scopes, the same result."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest
from gpu_support import EXAMPLES

torch = pytest.importorskip("torch")

import kprof_inject  # noqa: E402
from kprof_inject import Mode  # noqa: E402

sys.path.insert(0, str(EXAMPLES))

WARPS, CTAS, ITERATIONS = 4, 256, 16
MODES = {
    "default": Mode("auto"),
    "two warps": Mode(warps=(0, 2)),
    "clock 32": Mode(clock_bits=32),
    "sched stores": Mode(sched_stores=True),
    "global": Mode("global"),
    "global, clock 32, one warp": Mode("global", clock_bits=32, warps=(3,)),
}


@pytest.mark.parametrize("name", MODES)
def test_each_mode_records_the_same(name: str) -> None:
    from matmul import matmul

    mode = MODES[name]
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((2048, 1024), (1024, 2048)))
    plain = matmul(a, b)
    # Where stores are moved, each start needs an end.
    form = "two" if mode.sched_stores else "one"
    with kprof_inject.profile(["func", "loop", "iter"], mode=mode, iter_records=form, ctas="all", replay=0) as profile:
        recorded = matmul(a, b)
    timeline = profile.timeline
    assert torch.equal(plain, recorded)
    names = [scope.name for scope in timeline.table.scopes]
    warps = mode.warps or tuple(range(WARPS))
    each = CTAS * len(warps)
    counts = Counter(names[scope] for scope in timeline.scopes["scope"].tolist())
    assert counts == {"func": each, "loop[0]": each, "iter[0]": each * ITERATIONS}
    assert tuple(np.unique(timeline.scopes["warp"]).tolist()) == warps
    assert (timeline.records_lost, timeline.ctas_never_ran) == (0, 0)
    durations = timeline.scopes["end_ns"] - timeline.scopes["start_ns"]
    assert (durations >= 0).all()
    # The function's scope is the CTA, from its first record to its last.
    functions = durations[timeline.scopes["scope"] == names.index("func")]
    whole = timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"]
    print(f"func {np.median(functions)} ns of {np.median(whole)} ns, clock {timeline.clock.clock_hz / 1e6:.0f} MHz")
    assert 0.9 < np.median(functions) / np.median(whole) <= 1.01
