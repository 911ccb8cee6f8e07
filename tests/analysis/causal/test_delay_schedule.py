from __future__ import annotations

import pytest

from kprof_inject.analysis.causal.slopes import SHORTEST_CYCLES, delays_for, whole_share


def test_from_what_would_just_show_to_two_iterations() -> None:
    delays = delays_for(1_000_000, 64, 256)
    between = 1_000_000 / 256
    assert delays[:2] == (0, round(0.02 * between))
    assert between < delays[-1] <= 2 * between


def test_no_delay_is_shorter_than_its_own_steps() -> None:
    assert delays_for(51_200, 64, 64)[:2] == (0, SHORTEST_CYCLES)


def test_of_what_is_executed_once_no_more_than_part_of_the_kernel() -> None:
    delays = delays_for(50_000, 1, 1)
    assert delays == (0, 1000, 3000, 9000, 27000)


def test_at_least_four_even_where_an_iteration_is_short() -> None:
    assert delays_for(6400, 64, 64) == (0, 48, 144, 432, 1296)


@pytest.mark.parametrize(("cycles", "by_chain"), [(None, 4), (1e6, None), (0.0, 4.0)])
def test_where_nothing_is_known_any_that_suit_most_loops(cycles: float | None, by_chain: float | None) -> None:
    assert delays_for(cycles, None, by_chain) == (0, 64, 192, 576, 1728)
    assert whole_share(100, cycles, by_chain) == 0


def test_what_a_delay_adds_if_nothing_hides_it() -> None:
    assert whole_share(100, 1_000_000, 256) == pytest.approx(0.0256)


@pytest.mark.parametrize("kernel_cycles", [1e3, 1e6, 1e9, 1e12, 1e15])
def test_no_delay_comes_twice(kernel_cycles: float) -> None:
    """Not even where a kernel is so long that every step is the longest."""
    delays = delays_for(kernel_cycles, 1, 1)
    assert list(delays) == sorted(set(delays))
