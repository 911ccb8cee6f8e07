"""Counting from several threads at once."""

from __future__ import annotations

import sys
import threading

from kprof_inject.runtime.launch.lock_free import AtomicCounts, SetOnce


def test_no_two_get_one_number_and_none_is_lost() -> None:
    tally, threads, each = AtomicCounts(), 4, 5_000
    numbers: list[list[int]] = [[] for _ in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together = [
            threading.Thread(target=lambda mine=mine: mine.extend(tally.add("launch") for _ in range(each)))
            for mine in numbers
        ]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(number for of_thread in numbers for number in of_thread) == list(range(threads * each))
    assert tally.counts() == {"launch": threads * each}


def test_asking_for_counts_counts_nothing() -> None:
    tally = AtomicCounts()
    assert tally.counts() == {}
    tally.add_many("left out", 3)
    tally.add_many("none", 0)
    assert tally.counts() == tally.counts() == {"left out": 3}
    assert tally.add("left out") == 3


def test_the_first_of_several_values_is_set() -> None:
    once: SetOnce[int] = SetOnce()
    assert once.get() is None
    threads, seen = 8, []
    begin = threading.Barrier(threads)

    def set_once(value: int) -> None:
        begin.wait()
        seen.append(once.set(value))

    together = [threading.Thread(target=set_once, args=(value,)) for value in range(threads)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert seen == [once.get()] * threads
    assert once.set(threads) == once.get() != threads
