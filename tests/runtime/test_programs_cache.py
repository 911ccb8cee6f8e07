"""What a program compiled before, without us, is not compiled again for the dump, and its cache stays as it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import PROGRAMS, run_child

from kprof_inject.runtime.program import programs_triton_cache
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.triton

CROSS_COMPILE = PROGRAMS / "cross_compile.py"
MARK = "// from the program's own cache\n"


@pytest.fixture
def kprof(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of the program after a run without us, in which each TTGIR is marked."""
    folder = tmp_path_factory.mktemp("alone")
    run_child([sys.executable, str(CROSS_COMPILE)], folder, env={"TRITON_CACHE_DIR": str(folder / "cache")})
    for path in ttgirs(folder / "cache"):
        path.write_text(path.read_text() + MARK)
    return folder / "cache"


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A copy of ``filled`` at the place that its groups name."""
    copy = tmp_path / "theirs"
    shutil.copytree(filled, copy)
    for group in copy.glob("*/__grp__*"):
        group.write_text(group.read_text().replace(str(filled), str(copy)))
    return copy


def ttgirs(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.ttgir"))


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def dumped(kprof: CommandLine, cache: Path, **variables: str) -> list[bool]:
    """Dump the program, and return of each of its kernels whether it came from the program's cache."""
    before = contents(cache)
    ended = kprof("dump", CROSS_COMPILE, env={"TRITON_CACHE_DIR": str(cache), **variables})
    assert ended.exit_code == 0, ended.stderr
    assert len(ended.json_lines()) == 3
    assert contents(cache) == before
    kernels = Workspace(kprof.folder / "kprof_out").kernels()
    assert len(kernels) == 3
    return [kernel.ttgir().endswith(MARK) for kernel in kernels]


def test_kernels_that_the_program_compiled_before_are_taken_from_its_cache(kprof: CommandLine, cache: Path) -> None:
    assert dumped(kprof, cache) == [True, True, True]
    for kernel in Workspace(kprof.folder / "kprof_out").kernels():
        assert CROSS_COMPILE.with_name("kernels.py").name in str(kernel.ttgir())


def test_the_default_cache_is_in_tritons_home(kprof: CommandLine, cache: Path) -> None:
    home = kprof.folder / "triton_home"
    (home / ".triton").mkdir(parents=True)
    cache.rename(home / ".triton" / "cache")
    assert dumped(kprof, home / ".triton" / "cache", TRITON_CACHE_DIR="", TRITON_HOME=str(home)) == [True, True, True]
    assert programs_triton_cache({"HOME": "/elsewhere"}) == Path("~/.triton/cache").expanduser()
    assert programs_triton_cache({"TRITON_CACHE_DIR": "here", "TRITON_HOME": "/there"}) == Path("here").absolute()


def of_another_file(path: Path) -> None:
    path.write_text(path.read_text().replace("kernels.py", "moved.py"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [Path.unlink, of_another_file], ids=["no TTGIR", "of another file"])
def test_what_has_other_sources_is_compiled(kprof: CommandLine, cache: Path, damage: Callable[[Path], None]) -> None:
    for path in ttgirs(cache):
        damage(path)
    assert dumped(kprof, cache) == [False, False, False]


def test_the_programs_own_cache_manager_stays(kprof: CommandLine, cache: Path) -> None:
    manager = {"TRITON_CACHE_MANAGER": "triton.runtime.cache:FileCacheManager"}
    assert dumped(kprof, cache, **manager) == [False, False, False]
