"""The buffer that would have kept every record, from captures whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, Scope, buffer_words, kernel_json, save_launches, start

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Launch
from kprof_inject.timeline.captures import fitted_buffer

H200 = {"backend": "cuda", "arch": 90, "warp_size": 32}


def cta(*records: int) -> Cta:
    """A CTA whose warps write so many records."""
    return Cta([[start(0, cycles) for cycles in range(count)] for count in records])


def launches(
    folder: Path,
    *runs: Sequence[Cta | None],
    slots: int = 4,
    name: str = "kernel",
    shared_bytes: int | None = 0,
    warps: Sequence[int] | None = None,
) -> tuple[Launch, ...]:
    """A capture of these launches of one kernel, which takes ``shared_bytes`` by itself on an H200."""
    buffers = [buffer_words(ctas, slots, recorded=warps) for ctas in runs]
    mode = {} if warps is None else {"warps": list(warps)}
    kernel: dict[str, Any] = kernel_json([Scope("s")], buffers[0], 2, name=name, mode=mode)
    kernel["metadata"]["target"] = H200
    if shared_bytes is not None:
        kernel["clean"] = {"shared_bytes": shared_bytes}
    return save_launches(folder, kernel, buffers, variant=name)


def test_nothing_lost_needs_nothing(tmp_path: Path) -> None:
    assert fitted_buffer(launches(tmp_path, [cta(4, 4), cta(0, 3)]), Mode()) is None


@pytest.mark.parametrize(("most", "ring"), [(5, 8), (8, 8), (9, 16), (1000, 1024)])
def test_the_fullest_warp_decides_for_all(tmp_path: Path, most: int, ring: int) -> None:
    ctas = [cta(4, 2), None, cta(1, most)]
    fit = fitted_buffer(launches(tmp_path, ctas, shared_bytes=130_000), Mode("shared", 64))
    assert fit is not None
    assert fit.mode == Mode("shared", 2 * ring * 8)
    (loss,) = fit.losses
    assert (loss.lost, loss.written, loss.max_in_warp, loss.ring_records) == (most - 4, 7 + most, most, 4)


def test_the_rest_of_the_mode_stays(tmp_path: Path) -> None:
    mode = Mode("global", 64, 32, (1,), True)
    fit = fitted_buffer(launches(tmp_path, [cta(900, 6)], warps=[1]), mode)
    assert fit is not None
    assert fit.mode == Mode("global", 64, 32, (1,), True)
    assert [(loss.lost, loss.written) for loss in fit.losses] == [(2, 6)]


def test_launches_of_a_kernel_are_taken_together(tmp_path: Path) -> None:
    fit = fitted_buffer(launches(tmp_path, [cta(5, 1)], [cta(2, 2)], [cta(1, 12)]), Mode())
    assert fit is not None
    assert [(loss.lost, loss.written, loss.max_in_warp) for loss in fit.losses] == [(9, 23, 12)]


def test_a_buffer_that_would_cost_ctas_lies_in_global_memory(tmp_path: Path) -> None:
    # 1024 records of two warps are 16 KiB. Two CTAs fit on an SM, with 17 KiB more for each, and 1 KiB less.
    roomy = fitted_buffer(launches(tmp_path / "a", [cta(1024, 1)], shared_bytes=98304), Mode())
    tight = fitted_buffer(launches(tmp_path / "b", [cta(1024, 1)], shared_bytes=100352), Mode())
    unknown = fitted_buffer(launches(tmp_path / "c", [cta(1024, 1)], shared_bytes=None), Mode())
    assert roomy is not None
    assert tight is not None
    assert unknown is not None
    assert [fit.mode.buffer for fit in (roomy, tight, unknown)] == ["shared", "global", "global"]


def test_one_buffer_suits_all_kernels_and_the_largest_launch_is_told(tmp_path: Path) -> None:
    small = launches(tmp_path / "a", [cta(40, 1)], name="small")
    wide = launches(tmp_path / "b", [cta(1, 1)] * 50, name="wide")
    fit = fitted_buffer([*small, *wide], Mode())
    assert fit is not None
    assert fit.mode.buffer_bytes == 2 * 64 * 8
    assert [loss.kernel.name for loss in fit.losses] == ["small"]
    assert fit.largest.kernel.name == "wide"
    assert fit.launch_bytes == 50 * 1152  # 40 + 2 * 4 + 1024, in units of 128


def test_a_damaged_launch_does_not_count(tmp_path: Path) -> None:
    first, second = launches(tmp_path, [cta(9, 9)], [cta(1, 1)])
    first.path.write_bytes(first.path.read_bytes()[:-4])
    assert fitted_buffer([first, second], Mode()) is None
