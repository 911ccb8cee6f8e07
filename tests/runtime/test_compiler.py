"""What stands around Triton's compiler."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from triton import knobs

from kprof_inject.runtime.compiling.compiler import with_room

pytestmark = pytest.mark.triton


def test_where_the_workspace_is_full_the_compiler_works_elsewhere(tmp_path: Path) -> None:
    def compile(source: str) -> tuple[str, str]:
        if Path(knobs.cache.dir).parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return source, knobs.cache.dir

    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        source, cache = with_room(compile)("kernel")
        assert (source, knobs.cache.dir) == ("kernel", str(tmp_path / "cache"))
    assert not Path(cache).exists()


def test_other_failures_of_the_compiler_are_the_programs() -> None:
    def compile() -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "ptxas")

    with pytest.raises(FileNotFoundError, match="ptxas"):
        with_room(compile)()
