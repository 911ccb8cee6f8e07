"""What a piece of work takes, for tests of how it grows: apart from what else the machine and this process do."""

import gc
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object]) -> float:
    """The processor time of one run of *work*, in seconds.

    The garbage collector is off meanwhile: a round of it visits all that a whole test run has left, near a second.
    """
    gc.disable()
    try:
        before = time.process_time()
        work()
        return time.process_time() - before
    finally:
        gc.enable()


def assert_linear(work: Callable[[int], object], few: int = 5_000) -> None:
    """Ten times as much takes this process ten times as long, and not a hundred times; the best of three runs each."""
    brief, long = (best_of_three(work, count) for count in (few, 10 * few))
    assert long < 40 * max(brief, 0.005)


def best_of_three(work: Callable[[int], object], count: int) -> float:
    return min(cpu_seconds(lambda: work(count)) for _ in range(3))
