"""The loops that measure practical ceilings do the work that they are for, and little else."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from kprof_inject.analysis.limits.rates import DRAM, L2_TO_SM, TENSOR, ceiling, rates_of

pytest.importorskip("triton")
SCRIPT = Path(__file__).parents[2] / "scripts/ceilings"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = spec_from_loader("ceilings", SourceFileLoader("ceilings", str(SCRIPT)))
    assert spec is not None and spec.loader is not None
    module = sys.modules["ceilings"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.triton
@pytest.mark.parametrize(
    ("name", "each"), [("exp2", 1 / 16), ("fp32 products", 16 / 128), ("integers", 6 / 64), ("fp64 products", 16 / 64)]
)
def test_a_loop_executes_what_it_measures(script: Any, name: str, each: float) -> None:
    """Each element takes these cycles in an iteration; what is around the loop adds little."""
    (loop,) = (one for one in script.LOOPS if one.name == name)
    parts = script.instruction_parts(loop, script.compiled_for(loop, "cuda:90"), 10)
    expected = 10 * loop.steps * loop.constants["BLOCK"] * each
    assert expected <= parts[loop.unit] < 1.03 * expected
    assert parts[loop.unit] > 0.98 * max(parts.values())


@pytest.mark.triton
def test_every_loop_compiles(script: Any) -> None:
    rates = rates_of("cuda:90")
    assert rates is not None
    for loop in script.LOOPS:
        script.compiled_for(loop, "cuda:90")
        assert loop.unit != TENSOR or loop.family in rates.tensor_flops
        assert (loop.amount > 0) == (loop.unit in (DRAM, L2_TO_SM, TENSOR))


def test_ceilings_by_device() -> None:
    assert ceiling("NVIDIA H100 80GB HBM3", DRAM) == 0.94
    assert ceiling("another", DRAM) == 0.96
    assert ceiling("NVIDIA H100 80GB HBM3", TENSOR) == ceiling("another", TENSOR) == 0.99
    assert ceiling("another", L2_TO_SM) == 1
