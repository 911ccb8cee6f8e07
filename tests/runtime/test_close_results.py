"""Results that differ: by rounding alone, by more, in NaN, in memory that no launch writes, from launch to launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu

from kprof_inject.capture.saved_launch import MemoryRecord
from kprof_inject.runtime.worker.loaded_launch import LoadedLaunch
from kprof_inject.runtime.worker.timed_edits import DEFAULT_TOLERANCES, CloseResults, relative_difference, values_of

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}


@pytest.mark.parametrize("element", DTYPES)
def test_each_type_is_read_as_torch_reads_it(element: str) -> None:
    """Every number of 8 or 16 bits is read, also if bytes are left over."""
    size = DTYPES[element].itemsize
    codes = np.arange(1 << min(8 * size, 16), dtype=np.uint32)
    data = np.zeros((len(codes), size), dtype=np.uint8)
    data[:, -1] = codes >> (8 if size > 1 else 0)
    if size > 1:
        data[:, -2] = codes & 0xFF
    data = data.reshape(-1)
    expected = torch.from_numpy(data.copy()).view(DTYPES[element]).to(torch.float64).numpy()
    assert np.array_equal(values_of(element, data), expected, equal_nan=True)
    if size > 1:
        assert len(values_of(element, data[:-1])) == len(codes) - 1


def as_bytes(*values: float) -> Any:
    return np.array(values, dtype=np.float32).view(np.uint8)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("reference", "other", "initial", "difference"),
    [
        ((1, 4, 2), (1, 4, 2), (0, 0, 0), 0),
        ((1, 4, 2), (1.5, 4, 2), (0, 0, 0), 0.125),
        ((1, 1e30, 2), (1, 1e30, 1.5), (0, 1e30, 0), 0.25),  # what no launch wrote has no magnitude
        ((1, NAN, 2), (1, NAN, 2.5), (0, 0, 0), 0.25),
        ((1, NAN, 2), (1, 3, 2), (0, 0, 0), INF),
        ((1, 3, 2), (1, NAN, 2), (0, 0, 0), INF),
        ((1, INF, 2), (1, -INF, 2), (0, 0, 0), INF),
        ((0, 0), (0, 1e-9), (0, 0), INF),
        ((0.0,), (-0.0,), (1,), 0),
        ((1, NAN), (1, NAN), (NAN, NAN), 0),  # of memory that is overwritten first, the kernel leaves a part
        ((0, 4), (NAN, 4), (NAN, NAN), INF),
        ((0, 4), (0, 4.5), (NAN, NAN), 0.125),
        ((6, 4), (4, 4), (4, 4), 1),  # an update that is left out
        ((1.25, 1.5), (1.25, 1.53125), (1, 1), 0.0625),
        ((4, 4), (4, 4.5), (4, 4), 0.125),  # the results were there before
    ],
)
def test_relative_difference(
    reference: tuple[float, ...], other: tuple[float, ...], initial: tuple[float, ...], difference: float
) -> None:
    found = relative_difference("fp32", as_bytes(*reference), as_bytes(*other), as_bytes(*initial))
    assert found == pytest.approx(difference)


ULP = 2.0**-23


@pytest.mark.parametrize(
    ("element", "reference", "other", "is_accepted"),
    [
        ("fp32", 1 + 1000 * ULP, 1.0, False),  # a small update that is left out
        ("fp32", 1 + 4 * ULP, 1 + 5 * ULP, True),
        ("fp32", 1 + ULP, 1.0, True),
        ("fp64", 1 + 1e-9, 1.0, False),
        ("fp64", 1 + 2e-16, 1.0, True),
    ],
)
def test_an_update_is_compared_with_its_size(element: str, reference: float, other: float, is_accepted: bool) -> None:
    dtype = {"fp32": np.float32, "fp64": np.float64}[element]
    bits = [np.array([value, 1.0], dtype=dtype).view(np.uint8) for value in (reference, other, 1.0)]
    difference = relative_difference(element, *bits)
    assert (difference <= DEFAULT_TOLERANCES[element]) == is_accepted


class Kernel:
    """Memory with two ranges, of numbers and of ``element``, and what launches leave there."""

    def __init__(self, element: str, clean: tuple[float, ...], tolerance: float | None = None) -> None:
        self.gpu = FakeGpu()
        self.device = FakeDevice(self.gpu)
        self._blocks = [self.gpu.allocate_in_host(64) for _ in range(4)]
        records = [
            MemoryRecord(address=block.address, size_bytes=64, offset=0, chunk_crc32=(0,), element=kind)
            for block, kind in zip(self._blocks[:2], (element, "i32"), strict=True)
        ]
        copies = tuple((record, copy.address) for record, copy in zip(records, self._blocks[2:], strict=True))
        self.launch = LoadedLaunch(None, self.device, 0, (), copies)  # type: ignore[arg-type]
        self.results = CloseResults(self.launch, tolerance)
        for number in clean:
            self.results.note(self.leave(number))

    def leave(self, numbers: float, integer: int = 0) -> tuple[int, ...] | None:
        self.launch.refresh()
        dtype: Any = {"fp32": np.float32, "fp16": np.float16}.get(self.launch.copies[0][0].element, np.int32)
        self._blocks[0].bytes.view(dtype)[:] = numbers
        self._blocks[1].bytes.view(np.int32)[0] = integer
        return self.launch.digest()

    def refusal(self, numbers: float, integer: int = 0, place: int = 0) -> str:
        return self.results.refusal_of(place, self.leave(numbers, integer))


VARIES, VARIES_MUCH = (4, 4.0001, 4.0002), (4, 5, 6)


@pytest.mark.parametrize(
    ("element", "clean", "number", "integer", "refusal"),
    [
        ("fp32", (4, 4, 4), 4, 0, ""),
        ("fp32", (4, 4, 4), 4, 1, "its results differ"),
        ("i32", (4, 4, 4), 5, 0, "its results differ"),
        # Results that vary are compared with two launches.
        ("fp32", VARIES, 4.0002, 0, ""),
        ("fp32", VARIES, 4.0003, 0, ""),
        ("fp32", VARIES, 4.01, 0, "its results differ"),
        ("fp32", VARIES_MUCH, 6, 0, ""),
        ("fp32", VARIES_MUCH, 5.5, 0, "own results differ"),
    ],
)
def test_others_are_refused(element: str, clean: tuple[float, ...], number: float, integer: int, refusal: str) -> None:
    kernel = Kernel(element, clean, 0.5 if element == "i32" else None)
    found = kernel.refusal(number, integer)
    assert refusal in found if refusal else found == ""


@pytest.mark.parametrize(("element", "tolerance"), [("fp32", None), ("fp16", None), ("fp32", 0.25)])
def test_numbers_may_differ_within_the_tolerance(element: str, tolerance: float | None) -> None:
    kernel = Kernel(element, (4, 4, 4), tolerance)
    assert kernel.refusal(4, place=2) == "" and kernel.results.differences == {}
    limit = 4 * (tolerance or DEFAULT_TOLERANCES[element])
    assert kernel.refusal(4 + 0.9 * limit, place=3) == ""
    assert 0 < kernel.results.differences[3] <= limit / 4
    refusal = kernel.refusal(4 + 1.2 * limit, place=4)
    assert "its results differ" in refusal and element in refusal
    assert 4 not in kernel.results.differences


def test_no_launch_changes_memory_that_has_the_results() -> None:
    assert not Kernel("fp32", (0, 0, 0)).results.changes_memory
    assert Kernel("fp32", (4, 4, 4)).results.changes_memory
