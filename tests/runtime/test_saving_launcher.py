"""A launch of a kernel that has no records is saved, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpu.kernels import scale
from fake_gpu.saving import saving, tensors

from kprof_inject.errors import KprofError
from kprof_inject.runtime.launch.launcher import SavingLauncher

pytestmark = pytest.mark.triton


def refuse(*_: object) -> None:
    raise KprofError("it takes no records")


def test_a_kernel_without_records_is_saved_and_launched_by_triton_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fake_gpu.saving.write_insertion", refuse)
    with tensors(16, 16) as (x, out), saving(tmp_path, launches="1") as saved:
        x.fill_(2.0)
        kernel = scale[(16,)](x, out, 3)
        assert isinstance(kernel._run, SavingLauncher)
        for n in (4, 5):
            scale[(16,)](x, out, n)
        assert not isinstance(kernel._run, SavingLauncher)
        assert out.tolist() == [10.0] * 16
        assert all(not launch.kernel.records for launch in saved.gpu.ran)
    launch = saved.launch()
    assert launch.record.index == 1
    assert launch.record.arguments[2].value == "4"  # type: ignore[union-attr]
    assert not saved.refusals()


def test_its_failure_is_the_programs_and_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_gpu.saving.write_insertion", refuse)
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale.warmup(x, out, 3, grid=(16,))._init_handles()

        def fail(*_: object) -> None:
            raise RuntimeError("Triton Error [CUDA]: invalid argument")

        with monkeypatch.context() as broken:
            broken.setattr(saved.gpu, "launch", fail)
            with pytest.raises(RuntimeError, match="invalid argument"):
                scale[(16,)](x, out, 3)
        scale[(16,)](x, out, 4)
        assert out.tolist() == (4 * x).tolist()
    assert not saved.folders
