"""The Python API where it has to refuse: what it does on a device is tested there."""

from __future__ import annotations

from pathlib import Path

import pytest

import kprof_inject
from kprof_inject.errors import KprofError
from kprof_inject.workspace_folder import held


def fail(message: str) -> None:
    pytest.fail(message)


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with held(tmp_path, fail), pytest.raises(KprofError, match="is in use by process"):
        kprof_inject.profile(folder=tmp_path)
    profiles = [kprof_inject.profile(folder=tmp_path) for _ in range(2)]
    # Neither holds the folder, nor the one compiler of this process, after it was refused.
    for profile in profiles:
        with held(tmp_path, fail), pytest.raises(KprofError, match="is in use by process"):
            profile.__enter__()


def test_a_folder_is_the_blocks_while_it_lasts_and_has_no_captures_that_hold_nothing(tmp_path: Path) -> None:
    with kprof_inject.profile(folder=tmp_path) as profile:
        with pytest.raises(KprofError, match="is in use by process"):
            kprof_inject.profile(folder=tmp_path)
        assert profile.timelines == profile.timelines == []
        assert [path.name for path in (tmp_path / "captures").iterdir()] == ["001"]
    assert not (tmp_path / "captures").exists()
    with held(tmp_path, fail):
        pass
