"""What holds for all tests.

Pytest puts this folder on ``sys.path``: the tests in folders below import the helpers in it."""

import gc
import signal
from collections.abc import Generator

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
