"""What a histogram has to do, by the version of Triton that lowers it."""

from __future__ import annotations

import pytest
from golden import FIXTURES, read

from kprof_inject.analysis.roofs.operation_work import Work, work_of_histograms
from kprof_inject.ttgir.parser import parse


def work_in(elements: int, bins: int, target: str = "cuda:90", version: str = "3.6.0") -> list[Work]:
    line = f"%h = tt.histogram %x, %m : tensor<{elements}xi32, #a> -> tensor<{bins}xi32, #b>"
    module = parse(f"module {{\n  tt.func public @k() {{\n    {line}\n    tt.return\n  }}\n}}\n")
    return list(work_of_histograms(module, target, version).values())


# By the PTX of Triton 3.6: what each of 128 threads counts.
@pytest.mark.parametrize(
    ("elements", "bins", "by_a_thread"),
    [(1024, 256, 64), (2048, 256, 128), (1024, 1024, 256), (1024, 64, 16), (1024, 16, 8), (128, 256, 8)],
)
def test_lanes_count_the_votes_for_their_bins(elements: int, bins: int, by_a_thread: int) -> None:
    counts = 128 * by_a_thread
    assert work_in(elements, bins) == [Work(special=counts, logic=counts)]


@pytest.mark.parametrize(
    ("target", "version"), [("cuda:90", "3.8.0"), ("cuda:90", "4.0.0"), ("cuda:90", ""), ("hip:gfx942", "3.6.0")]
)
def test_of_others_nothing_is_certain(target: str, version: str) -> None:
    assert work_in(1024, 256, target, version) == []


def test_a_fixtures_histogram() -> None:
    module = parse(read(FIXTURES / "3.6.0/cuda-90/histogram_sort.ttgir"))
    assert list(work_of_histograms(module, "cuda:90", "3.6.0+git1").values()) == [Work(special=256, logic=256)]
