"""Being called after an import, and that who imports, or only looks, sees what there is without us."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from kprof_inject.runtime.imports import after_import

NAME = "awaited_by_the_tests"


class Awaited:
    """Waits for a package, and for a module that is there."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        after_import({NAME: self._called, "json": self._called})

    def _called(self, module: ModuleType) -> None:
        self.seen.append((module.__name__, getattr(module, "VALUE", 0)))


@pytest.fixture(autouse=True)
def imports_as_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    yield
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "lib" / NAME
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("VALUE = 5\nLOADER = dict(vars(__loader__))\n")
    (folder / "data.txt").write_text("data")
    importlib.invalidate_caches()
    return folder


def spec_of() -> ModuleSpec:
    spec = importlib.util.find_spec(NAME)
    assert spec is not None and spec.loader is not None
    return spec


def import_it() -> ModuleType:
    return importlib.import_module(NAME)


def execute_by_hand() -> ModuleType:
    spec = spec_of()
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def import_lazily() -> ModuleType:
    spec = spec_of()
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    assert module.VALUE == 5
    return module


def get_data_first() -> ModuleType:
    assert pkgutil.get_data(NAME, "data.txt") == b"data"
    return sys.modules[NAME]


@pytest.mark.parametrize("way", [import_it, execute_by_hand, import_lazily, get_data_first])
def test_whoever_executes_it_is_followed(package: Path, way: Callable[[], ModuleType]) -> None:
    first, second = Awaited(), Awaited()
    module = way()
    assert first.seen == second.seen == [("json", 0), (NAME, 5)]
    # Neither while it was executed nor after it is anything of ours to be seen.
    assert vars(module.__loader__) == module.LOADER == {"name": NAME, "path": str(package / "__init__.py")}
    assert module.__spec__ is not None and module.__spec__.loader is module.__loader__


def test_who_only_looks_sees_what_there_is_without_us(package: Path) -> None:
    plain = spec_of()
    awaited = Awaited()
    spec = spec_of()
    assert type(spec.loader) is type(plain.loader)
    assert (spec.origin, spec.submodule_search_locations) == (plain.origin, plain.submodule_search_locations)
    assert spec == spec_of()
    assert awaited.seen == [("json", 0)]
    import_it()
    assert awaited.seen[1:] == [(NAME, 5)]


def test_one_that_fails_is_followed_the_next_time(package: Path) -> None:
    (package / "__init__.py").write_text("raise ImportError('not yet')")
    awaited = Awaited()
    with pytest.raises(ImportError, match="not yet"):
        import_it()
    (package / "__init__.py").write_text("VALUE = 6")
    import_it()
    assert awaited.seen[1:] == [(NAME, 6)]
