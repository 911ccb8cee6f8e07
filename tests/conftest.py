"""What holds for all tests.

Pytest puts this folder on ``sys.path``: the tests in folders below import the helpers in it."""

import gc
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

# A shell without job control starts what goes in the background with Ctrl-C ignored, nohup with SIGHUP: programs that
# the tests start would ignore them, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """It makes hundreds of thousands of objects, and no garbage: looking for some is an eighth of its time. Tests, and
    forks of this process, would look through them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def scale_launch_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launch of the kernel ``scale`` that was saved on the fake GPU. Not to be changed."""
    from fake_gpu.saving import save_scale  # imports Triton

    return save_scale(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def scale_launch(scale_launch_once: Path, tmp_path: Path) -> Path:
    """The same launch, for one test to change."""
    return Path(shutil.copytree(scale_launch_once, tmp_path / "scale.launch"))
